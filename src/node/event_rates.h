/* Derives the speed of a run from the counters of a DFM, for its own report and for that of the whole run. */
#pragma once

#include <jansson.h>

#include "data/stats.h"

/* The time from the first to the last complete event; 0: fewer than two. */
double event_rates_span_seconds(const struct node_stats *dfm);
/* Rate of complete events in that time, without the first one; 0: unknown. */
double event_rates_hz(const struct node_stats *dfm);
double event_rates_bytes_per_second(const struct node_stats *dfm);
/* {"p50", "p99", "p999", "max"} in microseconds, null without samples. */
json_t *event_rates_latency(const struct histogram *latency_ns);
/* Adds event_rate_hz, throughput_bytes_per_second, building_seconds (from the first trigger to the last
 * complete event) and latency_us; null if unknown. */
void event_rates_add(json_t *report, const struct node_stats *dfm);
