/* Times of a stream's packets: a histogram, with mean and standard deviation. One writer. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/histogram.h"

struct timing {
        struct histogram ns;
        double mean_ns, squares; /* running mean, and the sum of squared deviations from it (Welford 1962) */
};

/* The time between two arrivals: by the kernel's stamps of both (CLOCK_REALTIME; 0: none), as this program
 * may look late and at several at once; by its own looks, if the stamps say more, because the clock was set.
 */
uint64_t timing_between(uint64_t looks_ns, uint64_t earlier_stamp_ns, uint64_t stamp_ns);

void timing_init(struct timing *t);
void timing_add(struct timing *t, uint64_t ns, uint64_t times);
/* {"mean", "sigma", "p50", "p99", "p999", "max", "histogram": [[most, packets], ...]} in microseconds; null
 * if nothing was added. `most` is the upper edge of a bin, which is at most an eighth lower at its other end.
 */
json_t *timing_describe(const struct timing *t);
