/* A node that stands by: it waits, connected to its DFM, for the orders of `evb lab`, and makes each run as a
 * child process, so that one run leaves nothing to the next. The DFM's node is also where all connect to. */
#pragma once

#include "evb/conf/scenario.h"

struct standby_options {
        const struct scenario *scenario;
        const char *name;   /* of the node */
        const char *config; /* the scenario's file, and what the command line sets over it: every run begins
                               with them */
        const char *const *settings;
        size_t n_settings;
};

/* Until a signal ends it. An exit status: 0, 1 failed, 2 the scenario is wrong for this node. What went wrong
 * is logged. */
int standby_run(const struct standby_options *options);
