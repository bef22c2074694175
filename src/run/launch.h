/* Runs every node of a scenario as a process on this machine: starts, watches and stops the nodes, and merges
 * their reports. Each node is the same program that systemd would start. One thread. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "conf/scenario.h"
#include "sys/machine_watch.h"

enum launch_net {
        LAUNCH_LOOPBACK, /* one address of 127.0.0.0/8 per node */
        LAUNCH_LAB,      /* one network namespace per node, joined by a bridge */
};

struct launch_options {
        struct scenario *scenario; /* launch_run() sets the nodes' addresses */
        const char *program;       /* of the nodes */
        enum launch_net net;
        bool progress;               /* show progress on standard error */
        bool quiet;                  /* do not log the reasons for status 1, which the report contains */
        bool keep_records;           /* write CORE.run.json next to event files */
        FILE *json;                  /* for the report; NULL: a summary on standard output */
        bool raised;                 /* give nodes precedence over ordinary processes, if permitted */
        struct machine_watch *watch; /* runs while triggers arrive; NULL: none */
};

/* Runs to the end and returns the exit status: 0 all events complete, 1 the run fell short, 2 invalid
 * scenario, 77 a privilege is missing. Logs errors. SIGTERM and SIGINT stop the run; a caller that holds them
 * (sys/loop.h) finds one pending afterwards. Once the run is over or stopped, every wait for a node is
 * bounded. */
int launch_run(const struct launch_options *options);
