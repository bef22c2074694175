/* What a report of a run says about times without progress. */
#pragma once

#include <jansson.h>

#include "run/launched_run.h"

/* Adds stalled_seconds, stall_reason and ended_by_stall to the report of a node that was killed, from its
 * counters. */
void summary_stall_of_killed(json_t *node, const struct child *c);
/* Adds stalls, stalled_seconds and stall_reason of the DFM, whose report is `dfm`, to the report of the run.
 */
void summary_stall_add(json_t *report, const json_t *dfm);
/* Prints a line if the run was stalled. */
void summary_stall_print(const json_t *report);
