/* The report of a stream. Each end makes its part, and both ends merge the parts into the same report, except
 * for the role. */
#pragma once

#include <jansson.h>

#include "stream/stream.h"
#include "sys/machine_watch.h"

/* {"cpu", "user", "system", ...} for each processor, in percent of the time between two readings. */
json_t *report_processors(const struct processors *begin, const struct processors *end);
/* "futex", "signal=200", ... */
#define REPORT_WAKE_MAX 32
const char *report_wake(const struct wake *w, char text[static REPORT_WAKE_MAX]);
/* Returns the difference of two counters, or null if `known` is false. */
json_t *report_difference(bool known, uint64_t begin, uint64_t end);

/* Merges the parts. A part may be NULL if the peer sent none. Borrows both. */
json_t *report_merge(bool is_sender, const json_t *sender, const json_t *receiver);
