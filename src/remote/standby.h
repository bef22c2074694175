/* A standby node: keeps a connection to the DFM's command server and executes the coordinator's commands.
 * Each run is a child process, so no run affects the next. The DFM's standby node also runs the command
 * server. */
#pragma once

#include "conf/scenario.h"

struct standby_options {
        const struct scenario *scenario;
        const char *name; /* of the node */
        /* The scenario's file and the command line's settings, with which every run begins. */
        const char *config;
        const char *const *settings;
        size_t n_settings;
};

/* Runs until a signal. Returns the exit status: 0, 2 the scenario is invalid for this node, 75
 * (NODE_STATUS_AGAIN) a temporary failure. Logs errors. */
int standby_run(const struct standby_options *options);
