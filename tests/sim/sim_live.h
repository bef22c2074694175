/* Consumers of live events at the SFIs of the simulated system: struct sim_config.live. */
#pragma once

#include "sim.h"

/* What the consumers of all SFIs have seen, and what was wrong. */
struct sim_live_result {
        uint64_t consumers, offered, given, skipped, deaths, acknowledged, again, lost;
        char wrong[200]; /* "": nothing */
};

/* Lets the consumers receive the rest, and compares the accounts of the SFIs that ended. */
struct sim_live_result sim_live_finish(struct sim *s);
