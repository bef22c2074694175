/* The state of a node in one JSON object, for `evb status`. */
#pragma once

#include <jansson.h>

#include "openmetrics.h"

/* From malloc(); NULL: out of memory. `now_ns`: the clock of the other times. */
char *metrics_status_text(const struct metrics_view *v, uint64_t now_ns);
/* What scenario_digest() makes, as an array: the digest of the keys' names, then that of each value. */
json_t *status_make_digest(const struct member_keys *keys);
