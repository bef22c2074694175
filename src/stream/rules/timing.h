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

/* What a stream carried in equal intervals of its time, for its throughput against time. The intervals begin
 * short, and double when a long stream has filled them all. One writer. */

#define INTERVALS_MAX 1024u
#define INTERVALS_FIRST_NS UINT64_C(100000000)

struct intervals {
        uint64_t length_ns, last_ns; /* of an interval; the latest time that was added */
        uint64_t packets[INTERVALS_MAX], bytes[INTERVALS_MAX];
};

void intervals_init(struct intervals *v);
/* at_ns: since the beginning of the stream. */
void intervals_add(struct intervals *v, uint64_t at_ns, uint64_t packets, uint64_t bytes);
/* {"seconds", "packets": [...], "bytes": [...]}: the length of an interval, and those that are over. */
json_t *intervals_describe(const struct intervals *v);
