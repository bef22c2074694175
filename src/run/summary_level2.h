/* Level 2 in the report of a run. */
#pragma once

#include <jansson.h>

#include "run_reasons.h"

/* Adds `events_rejected`, and `level2` (null without level 2). `sums`: of launch_sums(). Takes over
 * `latency`. */
void summary_level2_add(json_t *report, const struct launch *l, const uint64_t *sums, json_t *latency);
/* Whether the ROSs account for each fragment that level 2 requested. */
bool summary_level2_balances(const struct launch *l, struct accounts *a);
/* For people; nothing without level 2. */
void summary_write_level2(const struct launch *l);
