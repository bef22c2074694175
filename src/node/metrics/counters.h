/* The metrics that follow from the table of counters (STATS_COUNTERS). */
#pragma once

#include <jansson.h>

#include "openmetrics.h"

void metrics_write_counters(struct metrics_writer *w, const uint64_t values[static METRICS_COUNTERS]);
/* What a node discarded, by kind and reason: {"packets": {"malformed": 0, ...}, ...}. Kinds that the role
 * does not have are null. The caller owns it; NULL: out of memory. */
json_t *metrics_make_discarded(const uint64_t values[static METRICS_COUNTERS], enum node_role role);
