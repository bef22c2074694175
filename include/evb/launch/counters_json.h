/* A node's page of counters as JSON and back, for nodes whose page is on another machine. */
#pragma once

#include <jansson.h>

#include "evb/base/histogram.h"
#include "evb/data/stats.h"

json_t *counters_to_json(const struct node_stats *s);
/* What is missing or no number counts as 0: another version's page has other counters. -EBADMSG: no such
 * page. */
int counters_from_json(struct node_stats *ret, const json_t *page);

/* Filled buckets alone. */
json_t *histogram_to_json(const struct histogram *h);
int histogram_from_json(struct histogram *ret, const json_t *o); /* -EBADMSG */
