/* The state of a node in one JSON object, for `evb status`. */
#pragma once

#include "openmetrics.h"

/* From malloc(); NULL: out of memory. `now_ns`: the clock of the other times. */
char *metrics_status_text(const struct metrics_view *v, uint64_t now_ns);
