/* Counts values in buckets whose width is 1/32 of their power of two. */
#include "base/histogram.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

#define SUB_BUCKETS (UINT64_C(1) << HISTOGRAM_SUB_BITS)

static unsigned bucket_of(uint64_t value)
{
        if (value < 2 * SUB_BUCKETS)
                return (unsigned)value;
        unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;

        return (unsigned)((shift << HISTOGRAM_SUB_BITS) + (value >> shift));
}

uint64_t histogram_upper_edge(unsigned bucket)
{
        if (bucket < 2 * SUB_BUCKETS)
                return bucket;
        unsigned shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
        uint64_t mantissa = (bucket & (SUB_BUCKETS - 1)) + SUB_BUCKETS;

        return (mantissa << shift) + ((UINT64_C(1) << shift) - 1);
}

void histogram_init(struct histogram *h)
{
        memset(h, 0, sizeof *h);
        h->min = UINT64_MAX;
}

void histogram_add(struct histogram *h, uint64_t value, uint64_t times)
{
        if (times == 0)
                return;
        h->count += times;
        h->sum += value * times;
        h->min = MIN(h->min, value);
        h->max = MAX(h->max, value);
        h->buckets[bucket_of(value)] += times;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
        if (from->count == 0)
                return;
        into->count += from->count;
        into->sum += from->sum;
        into->min = MIN(into->min, from->min);
        into->max = MAX(into->max, from->max);
        for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
                into->buckets[i] += from->buckets[i];
}

uint64_t histogram_quantile(const struct histogram *h, double q)
{
        uint64_t rank = (uint64_t)ceil(q * (double)h->count), seen = 0;

        rank = MAX(rank, UINT64_C(1));
        for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
                seen += h->buckets[i];
                if (seen >= rank)
                        return MIN(histogram_upper_edge(i), h->max);
        }
        return h->count > 0 ? h->max : 0;
}
