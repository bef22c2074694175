/* The triggers from outside in the report of a run. */
#pragma once

#include <jansson.h>

#include "run_reasons.h"

/* Adds their counters, null if the DFM made the triggers, and the times in which no trigger was taken.
 * `sums`: of launch_sums(). */
void trigger_summary_add(json_t *report, const struct launch *l, const uint64_t *sums);
void trigger_summary_write(const struct launch *l);
void trigger_summary_write_times(const struct launch *l);
/* Whether each offered trigger was taken or refused once. */
bool trigger_summary_balances(const struct launch *l, struct accounts *a);
