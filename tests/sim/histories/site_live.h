/* Consumers of live events at the SFIs of the simulated system: struct site_config.live. */
#pragma once

#include "site.h"

/* What the consumers of all SFIs have seen, and what was wrong. */
struct site_live_result {
        uint64_t consumers, offered, given, skipped, deaths, acknowledged, again, lost;
        char wrong[200]; /* "": nothing */
};

/* Lets the consumers receive the rest, and compares the accounts of the SFIs that ended. */
struct site_live_result site_live_finish(struct site *s);
