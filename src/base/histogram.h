/* A log-linear histogram of 64-bit values: exact below 64, within 1/32 (3.2 %) above; fixed size, mergeable.
 * One writer. Plain data, suitable for shared memory. */
#pragma once

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 5
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
        uint64_t count, sum, min, max;
        uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_init(struct histogram *h);
void histogram_add(struct histogram *h, uint64_t value, uint64_t times);
void histogram_merge(struct histogram *into, const struct histogram *from);
/* The largest value of a bucket. */
uint64_t histogram_upper_edge(unsigned bucket);
/* The upper edge of the bucket with the q-th quantile (0 to 1), never above the true maximum. 0: empty. */
uint64_t histogram_quantile(const struct histogram *h, double q);
