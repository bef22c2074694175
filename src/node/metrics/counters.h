/* The metrics that follow from the table of counters (STATS_COUNTERS). */
#pragma once

#include "page.h"

void metrics_write_counters(struct metrics_writer *w, const uint64_t values[static METRICS_COUNTERS]);
