/* Runs one role as a process: it opens sockets and files, takes part in a run until the run ends or a signal
 * stops it, drains, and reports. The core makes the protocol decisions. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "conf/scenario.h"

/* Exit status for a temporary failure (EX_TEMPFAIL of sysexits.h): a service manager restarts the node. */
#define NODE_STATUS_AGAIN 75

/* The source of a node's scenario. At SIGHUP the node reads it again, and changes `scenario`. */
struct node_source {
        struct scenario *scenario;
        const char *config;          /* file */
        const char *const *settings; /* settings from the command line */
        size_t n_settings;
        bool logs; /* log.level sets the log level; false: the environment or an option has set the level */
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
/* Opens and closes everything that the node needs at its start, but creates no file and shapes nothing.
 * Returns the exit status that node_run() would fail with, and logs the errors; 0: the node would start. */
int node_check(const struct node_options *options);
