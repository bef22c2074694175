/* Keeps the schedule of packets: an absolute one, so that a late packet does not delay those after it. */
#include "spacing.h"

#include "base/util.h"

/* After a delay, packets follow each other at 11/10 of the rate: a burst at full speed would overflow what
 * the spacing protects. A delay as short as a group takes is none: timers are late again and again. */
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

/* The shortest time for n packets, while a delay is caught up. */
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

/* Averages the time between packets, and compares it with what the socket's buffer holds. */

void sleep_interval_init(struct sleep_interval *n, uint64_t buffer_bytes, uint32_t packet_bytes)
{
        *n = (struct sleep_interval){.room_packets = buffer_bytes / (packet_bytes + SLEEP_PACKET_BYTES)};
}

/* Neither product overflows: a gap is short here, and no buffer holds 2^40 packets. */
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
