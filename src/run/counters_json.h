/* A node's counters as JSON and back, for nodes on other machines. */
#pragma once

#include <jansson.h>

#include "base/histogram.h"
#include "data/stats.h"

json_t *counters_to_json(const struct node_stats *s);
/* Returns -EBADMSG if a counter is missing, not an integer or negative. */
int counters_from_json(struct node_stats *ret, const json_t *counters);

/* Writes only the buckets that are not empty. */
json_t *histogram_to_json(const struct histogram *h);
int histogram_from_json(struct histogram *ret, const json_t *o); /* -EBADMSG */
