/* When packets of a stream are due, and what is measured of their times: a histogram, with mean and standard
 * deviation. One writer. */
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

/* When each packet is due. */

struct spacing {
        uint64_t ns, per; /* `per` packets take `ns` nanoseconds; ns = 0: no spacing */
        uint32_t burst;   /* packets that may leave together */
        /* The next packet is due at due_ns + rest/per. */
        uint64_t due_ns, rest;
        uint64_t floor_ns; /* it does not leave before, so that catching up stays gentle */
        uint64_t late_ns;  /* a delay of up to this time is caught up at once */
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

/* Decides when the receiver's network thread sleeps for a moment, instead of waiting for the next packet.
 *
 * A thread that waits in poll(2) is woken by each packet, at 1 Gbit/s some 10^5 times a second. Whoever
 * brings the packet to the socket pays for it: on a virtual machine, waking an idle processor is an interrupt
 * that the hypervisor delivers, and where the sender is on the same machine, its own thread does it and is
 * late for its next packet. A thread that sleeps by a timer is woken by nobody. So while packets are dense,
 * it sleeps, and takes all that came meanwhile at once. The socket's buffer must hold much more than that,
 * and the times of arrival must be the kernel's.
 *
 * Pure: time and packets go in, and the length of a nap comes out. */

#define SLEEP_NS UINT64_C(50000)
/* Packets are dense if they are on average less than this apart: a nap saves nothing if no packet comes in
 * it. */
#define SLEEP_GAP_NS SLEEP_NS
/* The least time for which the socket's buffer must last: a nap of a thread that then has to wait for its
 * processor may become as long. */
#define SLEEP_BUFFER_NS UINT64_C(10000000)
/* The average is that of this time, so that naps end soon after the packets. */
#define SLEEP_LOOK_NS UINT64_C(1000000)
/* A packet takes at most that of the usable half of the buffer beside its data: the kernel counts whole
 * structures and memory that is at most twice as large as the data (socket(7), SO_RCVBUF). */
#define SLEEP_PACKET_BYTES 512u

struct sleep_interval {
        uint64_t room_packets;      /* that the socket's buffer holds */
        uint64_t begin_ns, packets; /* of the average; begin_ns 0: it has not begun */
        uint64_t length_ns;
};

/* buffer_bytes: the usable part of the socket's receive buffer; 0: there are no naps. */
void sleep_interval_init(struct sleep_interval *n, uint64_t buffer_bytes, uint32_t packet_bytes);
/* Call it after each attempt to receive, also if no packet was there. */
void sleep_interval_record(struct sleep_interval *n, uint64_t now_ns, uint64_t packets);
/* How long to sleep when the socket is empty; 0: wait for the next packet. */
uint64_t sleep_interval_ns(const struct sleep_interval *n);
