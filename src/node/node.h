/* Runs one role as a process: it opens sockets and files, takes part in a run until the run ends or a signal
 * stops it, drains, and reports. The protocol decisions are in layer core. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "conf/scenario.h"

/* Exit status for a temporary failure (EX_TEMPFAIL of sysexits.h): a service manager restarts the node. */
#define NODE_STATUS_AGAIN 75

/* Where a node's scenario comes from. At SIGHUP the node reads it again, and changes `scenario`. */
struct node_source {
        struct scenario *scenario;
        const char *config;          /* file */
        const char *const *settings; /* from the command line */
        size_t n_settings;
        bool logs; /* the level of the log follows log.level; otherwise, the environment or an option set it
                    */
};

struct node_options {
        const struct scenario *scenario;
        const struct node_source *source; /* NULL: SIGHUP changes nothing */
        const char *name;                 /* of the node */
        FILE *json;                       /* receives the report; NULL: no report */
};

/* Runs the node to its end and returns an exit status: 0 success, 1 the run fell short (events lost, output
 * failed), 2 the scenario does not fit this node, 77 a privilege is missing, 75 a temporary failure. The
 * cause is logged. */
int node_run(const struct node_options *options);
/* Opens and closes what the node needs at its start, but creates no file and shapes nothing. Returns the exit
 * status and logs the errors of a failing node_run(); 0: the node would start. */
int node_check(const struct node_options *options);
