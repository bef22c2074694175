/* Adds up times and describes them. */
#include "timing.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

/* Stamps and looks of two packets differ by less, unless somebody set the clock. */
#define STEP_NS (100 * NS_PER_MS)
/* A bin of the report has so many buckets of the histogram. */
#define BUCKETS_OF_BIN 4u

uint64_t timing_between(uint64_t looks_ns, uint64_t earlier_stamp_ns, uint64_t stamp_ns)
{
        if (earlier_stamp_ns == 0 || stamp_ns <= earlier_stamp_ns ||
            stamp_ns - earlier_stamp_ns > looks_ns + STEP_NS)
                return looks_ns;
        return stamp_ns - earlier_stamp_ns;
}

void timing_init(struct timing *t)
{
        histogram_init(&t->ns);
        t->mean_ns = t->squares = 0;
}

void timing_add(struct timing *t, uint64_t ns, uint64_t times)
{
        double off = (double)ns - t->mean_ns;

        if (times == 0)
                return;
        histogram_add(&t->ns, ns, times);
        t->mean_ns += off * (double)times / (double)t->ns.count;
        t->squares += off * ((double)ns - t->mean_ns) * (double)times;
}

static double quantile_us(const struct timing *t, double q)
{
        return (double)histogram_quantile(&t->ns, q) / 1e3;
}

/* Bins that differ by 6 to 12 %; empty ones are left out. */
static json_t *describe_bins(const struct histogram *h)
{
        json_t *all = json_array();

        for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i += BUCKETS_OF_BIN) {
                uint64_t n = 0;

                for (unsigned k = i; k < i + BUCKETS_OF_BIN; k++)
                        n += h->buckets[k];
                if (n > 0)
                        json_array_append_new(
                                all, json_pack("[f, I]",
                                               (double)histogram_upper_edge(i + BUCKETS_OF_BIN - 1) / 1e3,
                                               (json_int_t)n));
        }
        return all;
}

json_t *timing_describe(const struct timing *t)
{
        if (t->ns.count == 0)
                return json_null();
        return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "mean", t->mean_ns / 1e3, "sigma",
                         sqrt(t->squares / (double)t->ns.count) / 1e3, "p50", quantile_us(t, 0.5), "p99",
                         quantile_us(t, 0.99), "p999", quantile_us(t, 0.999), "max", (double)t->ns.max / 1e3,
                         "histogram", describe_bins(&t->ns));
}

/* Adds up packets and bytes by the time at which they came. */

void intervals_init(struct intervals *v)
{
        memset(v, 0, sizeof *v);
        v->length_ns = INTERVALS_FIRST_NS;
}

/* Joins each two intervals, so that the second half is free. */
static void halve(struct intervals *v)
{
        for (size_t i = 0; i < INTERVALS_MAX / 2; i++) {
                v->packets[i] = v->packets[2 * i] + v->packets[2 * i + 1];
                v->bytes[i] = v->bytes[2 * i] + v->bytes[2 * i + 1];
        }
        memset(v->packets + INTERVALS_MAX / 2, 0, sizeof v->packets / 2);
        memset(v->bytes + INTERVALS_MAX / 2, 0, sizeof v->bytes / 2);
        v->length_ns *= 2;
}

void intervals_add(struct intervals *v, uint64_t at_ns, uint64_t packets, uint64_t bytes)
{
        while (at_ns / v->length_ns >= INTERVALS_MAX)
                halve(v);
        v->packets[at_ns / v->length_ns] += packets;
        v->bytes[at_ns / v->length_ns] += bytes;
        v->last_ns = MAX(v->last_ns, at_ns);
}

json_t *intervals_describe(const struct intervals *v)
{
        json_t *packets = json_array(), *bytes = json_array();

        for (uint64_t i = 0; i < v->last_ns / v->length_ns; i++) {
                json_array_append_new(packets, json_integer((json_int_t)v->packets[i]));
                json_array_append_new(bytes, json_integer((json_int_t)v->bytes[i]));
        }
        return json_pack("{s:f, s:o, s:o}", "seconds", (double)v->length_ns / 1e9, "packets", packets,
                         "bytes", bytes);
}
