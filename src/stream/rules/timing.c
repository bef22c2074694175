/* Accumulates times and describes them. */
#include "timing.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

/* The kernel's stamps and the readings of the clock for two packets differ by less than this, unless the
 * clock was set. */
#define STEP_NS (100 * NS_PER_MS)
/* Number of histogram buckets per bin of the report. */
#define BUCKETS_OF_BIN 4u

uint64_t stamps_gap(struct stamps *s, uint64_t looks_ns, uint64_t read_ns, uint64_t stamp_ns)
{
        const struct stamps last = *s;

        *s = (struct stamps){stamp_ns, stamp_ns > 0 ? read_ns - MIN(stamp_ns, read_ns) : 0};
        if (last.last_ns == 0 || stamp_ns <= last.last_ns ||
            stamp_ns - last.last_ns > looks_ns + last.late_ns + STEP_NS)
                return looks_ns;
        return stamp_ns - last.last_ns;
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

/* Describes bins whose limits differ by 6 to 12 %; empty bins are skipped. */
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

/* Adds up packets and bytes by their arrival times. */

void intervals_init(struct intervals *v)
{
        memset(v, 0, sizeof *v);
        v->length_ns = INTERVALS_FIRST_NS;
}

/* Merges pairs of intervals, so that the second half is free. */
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

/* After a delay, packets leave at 11/10 of the rate, because a burst at full speed would overflow the buffers
 * that the spacing protects. A delay shorter than the duration of a group does not count, because timers are
 * often late. */
#define CATCH_UP_NUMERATOR 10
#define CATCH_UP_DENOMINATOR 11

void spacing_init(struct spacing *s, uint64_t ns, uint64_t per, uint64_t burst_ns, uint32_t burst_max)
{
        uint64_t burst = ns > 0 ? burst_ns * per / ns : burst_max;

        *s = (struct spacing){.ns = ns, .per = per, .late_ns = burst_ns};
        s->burst = (uint32_t)MAX(MIN(burst, (uint64_t)burst_max), UINT64_C(1));
}

void spacing_start(struct spacing *s, uint64_t now_ns)
{
        s->due_ns = s->floor_ns = now_ns;
        s->rest = 0;
}

uint64_t spacing_due_ns(const struct spacing *s)
{
        return s->ns == 0 ? 0 : MAX(s->due_ns, s->floor_ns);
}

uint32_t spacing_group(const struct spacing *s, uint32_t n)
{
        return MIN(n, s->burst);
}

/* Returns the minimum time for n packets while a delay is caught up. */
static uint64_t least_ns(const struct spacing *s, uint32_t n)
{
        return s->ns * n / s->per * CATCH_UP_NUMERATOR / CATCH_UP_DENOMINATOR;
}

uint64_t spacing_leave_ns(const struct spacing *s, uint64_t first_ns, uint32_t i)
{
        return MAX(s->due_ns + (s->rest + s->ns * i) / s->per, first_ns + least_ns(s, i));
}

void spacing_sent(struct spacing *s, uint64_t now_ns, uint32_t n)
{
        uint64_t step = s->rest + s->ns * n, from_ns = MIN(spacing_due_ns(s), now_ns);

        if (s->ns == 0)
                return;
        s->floor_ns = MAX(from_ns, now_ns - MIN(s->late_ns, now_ns)) + least_ns(s, n);
        if (now_ns > s->due_ns + SPACING_LAG_MAX_NS) {
                s->behind_ns += now_ns - s->due_ns;
                s->due_ns = now_ns;
        }
        s->due_ns += step / s->per;
        s->rest = step % s->per;
}

/* Averages the time between packets, and compares it with the capacity of the socket's buffer. */

void sleep_interval_init(struct sleep_interval *n, uint64_t buffer_bytes, uint32_t packet_bytes)
{
        *n = (struct sleep_interval){.room_packets = buffer_bytes / (packet_bytes + SLEEP_PACKET_BYTES)};
}

/* Neither product overflows, because a gap is short here, and no buffer holds 2^40 packets. */
static uint64_t decide(const struct sleep_interval *n, uint64_t elapsed_ns)
{
        uint64_t gap_ns = n->packets > 0 ? elapsed_ns / n->packets : UINT64_MAX;

        return gap_ns < SLEEP_GAP_NS && n->room_packets * gap_ns >= SLEEP_BUFFER_NS ? SLEEP_NS : 0;
}

void sleep_interval_record(struct sleep_interval *n, uint64_t now_ns, uint64_t packets)
{
        if (n->begin_ns == 0)
                n->begin_ns = now_ns;
        else
                n->packets += packets;
        if (now_ns - n->begin_ns < SLEEP_LOOK_NS)
                return;
        n->length_ns = decide(n, now_ns - n->begin_ns);
        n->begin_ns = now_ns;
        n->packets = 0;
}

uint64_t sleep_interval_ns(const struct sleep_interval *n)
{
        return n->length_ns;
}
