/* Every node of a scenario as a process of its own on this machine: started, watched, ended, and their
 * reports made into one. It starts the same program that systemd would, and decides nothing of event
 * building. One thread. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "evb/conf/scenario.h"

enum launch_net {
        LAUNCH_LOOPBACK, /* an address of 127.0.0.0/8 for each node */
        LAUNCH_LAB,      /* a namespace for each node, joined by a bridge */
};

struct launch_options {
        struct scenario *scenario; /* addresses of nodes are filled in */
        const char *program;       /* of the nodes */
        enum launch_net net;
        bool progress; /* on standard error */
        bool quiet;    /* the report alone has the reasons for status 1 */
        FILE *json;    /* the report; NULL: a summary on standard output */
};

/* SIGTERM and SIGINT end the run; a caller that holds them back (sys/loop.h) finds one waiting afterwards.
 * Runs to the end: bounded whatever the nodes do, once the run is over or told to stop. An exit status: 0 all
 * events complete, 1 fell short, 2 wrong scenario, 77 a privilege is missing. What went wrong has been
 * logged. */
int launch_run(const struct launch_options *options);
