/* One role as a running process: opens its sockets and files, runs until the run is over or a signal stops
 * it, drains, and reports. Protocol decisions are the core's; this is where they meet sockets, files and the
 * clock. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "evb/conf/scenario.h"

/* Exit status for a temporary failure (EX_TEMPFAIL of sysexits.h): a service manager restarts the node. */
#define NODE_STATUS_AGAIN 75
/* A service only logs this at SIGHUP. */
#define NODE_HANGUP_TEXT "SIGHUP ignored: a node does not read its scenario again; SIGTERM ends it"

struct node_options {
        const struct scenario *scenario;
        const char *name; /* of the node */
        FILE *json;       /* where its report goes; NULL: nowhere */
        bool quiet;       /* no summary on standard error */
};

/* Runs to the end. Returns an exit status: 0 done, 1 the run fell short (events lost, output failed), 2 the
 * scenario is wrong for this node, 77 a privilege is missing, 75 a temporary failure. What went wrong has
 * been logged. */
int node_run(const struct node_options *options);
/* Opens and closes everything that the node's start needs, without changing anything: it creates no file and
 * shapes nothing. Returns the exit status, and logs the messages, that node_run() would have at its start; 0:
 * it would start. */
int node_check(const struct node_options *options);
