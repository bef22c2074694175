/* When the packets of a stream are due. The interval is a fraction of nanoseconds, and what remains of each
 * step is carried to the next, so that rounding never loses time. Pure. */
#pragma once

#include <stdint.h>

struct spacing {
        uint64_t ns, per; /* `per` packets take `ns` nanoseconds; ns = 0: no spacing */
        uint32_t burst;   /* packets that may leave together */
        /* The next packet is due at due_ns + rest/per. */
        uint64_t due_ns, rest;
        uint64_t floor_ns; /* it does not leave before, so that catching up stays gentle */
        uint64_t late_ns;  /* a delay of so much is caught up at once */
        uint64_t
                behind_ns; /* time by which the schedule was moved back: the source or machine was too slow */
};

/* A lag beyond this is not caught up: the schedule moves. */
#define SPACING_LAG_MAX_NS UINT64_C(100000000)

/* `per` is at most 10^13 and `ns` at most 10^15, so that bursts do not overflow. A burst takes at most
 * `burst_ns`, and has at least one packet and at most `burst_max`; after a delay, two may follow each other.
 */
void spacing_init(struct spacing *s, uint64_t ns, uint64_t per, uint64_t burst_ns, uint32_t burst_max);
/* The first packet is due now. */
void spacing_start(struct spacing *s, uint64_t now_ns);
/* When the next packet is due; 0: no spacing. */
uint64_t spacing_due_ns(const struct spacing *s);
/* How many of n waiting packets leave together, at least one; n >= 1. Call spacing_sent() with that number,
 * or less. */
uint32_t spacing_group(const struct spacing *s, uint32_t n);
/* When packet i of a group leaves whose first one leaves at first_ns, if something else sends it in time. */
uint64_t spacing_leave_ns(const struct spacing *s, uint64_t first_ns, uint32_t i);
/* n packets have left, the first one at now_ns. */
void spacing_sent(struct spacing *s, uint64_t now_ns, uint32_t n);
