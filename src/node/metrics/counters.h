/* Makes metrics and JSON objects from the table of counters (data/stats.h), and computes the rates of a run
 * from the counters of a DFM. */
#pragma once

#include <jansson.h>

#include "data/stats.h"
#include "writer.h"

/* Reads the counters of the current run, and updates those of the whole process. `before`: the values of the
 * latter when the run began. A count of a run decreases if an event or a packet that counted as lost was only
 * late. Counters of the process must not decrease: they keep the highest count of each run. What is left over
 * counts only after the run has `ended`, because most of it is still in use before. */
void counters_read(const struct node_stats *s, bool ended, const uint64_t before[static COUNTERS],
                   uint64_t run[static COUNTERS], uint64_t process[static COUNTERS]);

void counters_write_metrics(struct metrics_writer *w, const uint64_t values[static COUNTERS]);
/* Sets all counters of a node, under their names. */
void counters_set_all(json_t *o, const struct node_stats *s);
/* Sets the counters of an object. Counters that none of these roles (bits by COUNTER_ROLE()) has are null. */
void counters_set(json_t *o, enum counter_object object, unsigned roles,
                  const uint64_t values[static COUNTERS]);
/* Finds a counter in the status of a node; NULL: absent. */
const json_t *counters_find(const json_t *status, size_t counter);
/* Returns the discarded items of a node, by kind and reason: {"packets": {"malformed": 0, ...}, ...}. Kinds
 * that do not exist for the role are null. The caller owns the object; NULL: out of memory. */
json_t *counters_make_discarded(const uint64_t values[static COUNTERS], enum node_role role);

/* Returns the time from the first to the last complete event; 0: there are fewer than two. */
double event_rates_span_seconds(const struct node_stats *dfm);
/* Returns the rate of complete events in that time, without the first one; 0: unknown. */
double event_rates_hz(const struct node_stats *dfm);
double event_rates_bytes_per_second(const struct node_stats *dfm);
/* Returns {"p50", "p99", "p999", "max"} in microseconds, null without samples. */
json_t *event_rates_latency(const struct histogram *latency_ns);
/* Adds event_rate_hz, throughput_bytes_per_second, building_seconds (from the first trigger to the last
 * complete event) and latency_us; unknown values are null. */
void event_rates_add(json_t *report, const struct node_stats *dfm);
