/* Decides when the packets of a stream are due, and records their times in a histogram with mean and standard
 * deviation. Only one thread may write. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/histogram.h"

struct timing {
        struct histogram ns;
        double mean_ns, squares; /* running mean, and the sum of squared deviations from it (Welford 1962) */
};

/* The stamps of packets by the kernel (CLOCK_REALTIME; 0: none). */
struct stamps {
        uint64_t last_ns;
        uint64_t late_ns; /* age of the last packet when it was read */
};

/* Returns the time between the arrivals of the last packet and this one, which was read at read_ns (the same
 * clock). The stamps count, because this program may read packets late, and several at once. If they show a
 * longer time than the program's own readings (looks_ns) permit, the clock was set, and the readings count.
 */
uint64_t stamps_gap(struct stamps *s, uint64_t looks_ns, uint64_t read_ns, uint64_t stamp_ns);

void timing_init(struct timing *t);
void timing_add(struct timing *t, uint64_t ns, uint64_t times);
/* {"mean", "sigma", "p50", "p99", "p999", "max", "histogram": [[most, packets], ...]} in microseconds; null
 * if nothing was added. `most` is the upper edge of a bin; the lower edge is at most an eighth lower. */
json_t *timing_describe(const struct timing *t);

/* The traffic of a stream in equal intervals of time, for a plot of its throughput. The intervals are short
 * at first; their length doubles whenever a long stream has filled them all. One writer. */

#define INTERVALS_MAX 1024u
#define INTERVALS_FIRST_NS UINT64_C(100000000)

struct intervals {
        uint64_t length_ns, last_ns; /* length of an interval; the latest time added */
        uint64_t packets[INTERVALS_MAX], bytes[INTERVALS_MAX];
};

void intervals_init(struct intervals *v);
/* at_ns: time since the beginning of the stream. */
void intervals_add(struct intervals *v, uint64_t at_ns, uint64_t packets, uint64_t bytes);
/* {"seconds", "packets": [...], "bytes": [...]}: the length of an interval, and the complete intervals. */
json_t *intervals_describe(const struct intervals *v);

/* When each packet is due. */

struct spacing {
        uint64_t ns, per; /* `per` packets take `ns` nanoseconds; ns = 0: no spacing */
        uint32_t burst;   /* packets that may leave together */
        /* The next packet is due at due_ns + rest/per (in ns). */
        uint64_t due_ns, rest;
        uint64_t floor_ns; /* the next packet does not leave before this time, so that the rate stays limited
                              while a delay is caught up */
        uint64_t late_ns;  /* a delay of up to this time is caught up at once */
        uint64_t
                /* Time by which the schedule was moved back, because the source or machine was too slow. */
                behind_ns;
};

/* A longer delay is not caught up: the schedule is moved back. */
#define SPACING_LAG_MAX_NS UINT64_C(100000000)

/* `per` is at most 10^13 and `ns` at most 10^15, so that bursts do not overflow. A burst lasts at most
 * `burst_ns`, and has at least one packet and at most `burst_max`; after a delay, two bursts may follow each
 * other. */
void spacing_init(struct spacing *s, uint64_t ns, uint64_t per, uint64_t burst_ns, uint32_t burst_max);
/* Makes the first packet due now. */
void spacing_start(struct spacing *s, uint64_t now_ns);
/* Returns when the next packet is due; 0: no spacing. */
uint64_t spacing_due_ns(const struct spacing *s);
/* Returns how many of n waiting packets leave together, at least one; n >= 1. Then call spacing_sent() with
 * that number, or a smaller one. */
uint32_t spacing_group(const struct spacing *s, uint32_t n);
/* Returns when packet i of a group whose first packet leaves at first_ns must leave, if something else sends
 * it in time. */
uint64_t spacing_leave_ns(const struct spacing *s, uint64_t first_ns, uint32_t i);
/* Records that n packets have left, the first one at now_ns. */
void spacing_sent(struct spacing *s, uint64_t now_ns, uint32_t n);

/* Decides when the receiver's network thread sleeps for a short time instead of waiting for the next packet.
 * A thread that waits in poll(2) is woken by each packet, at 1 Gbit/s about 10^5 times a second. The context
 * that delivers the packet bears the cost. On a virtual machine, waking an idle processor is an interrupt
 * that the hypervisor delivers. If the sender is on the same machine, its own thread wakes the receiver, and
 * is late for its next packet. A sleep that a timer ends has no such cost. So while packets are dense, the
 * thread sleeps, and then receives all packets that have arrived. This requires a socket buffer much larger
 * than one sleep fills, and arrival times from the kernel.  Pure: time and packets go in, and the length of a
 * sleep comes out. */

#define SLEEP_NS UINT64_C(50000)
/* Packets are dense if the average time between them is less than this: a sleep saves nothing if no packet
 * arrives during it. */
#define SLEEP_GAP_NS SLEEP_NS
/* Minimum time for which the socket's buffer must last: a sleep may become this long if the thread then waits
 * for its processor. */
#define SLEEP_BUFFER_NS UINT64_C(10000000)
/* The average covers this time, so that the thread stops sleeping soon after the packets stop. */
#define SLEEP_LOOK_NS UINT64_C(1000000)
/* Maximum part of the buffer's usable half that a packet occupies in addition to its data. The kernel counts
 * whole structures, and memory up to twice the size of the data (socket(7), SO_RCVBUF). */
#define SLEEP_PACKET_BYTES 512u

struct sleep_interval {
        uint64_t room_packets;      /* capacity of the socket's buffer */
        uint64_t begin_ns, packets; /* start and packets of the average; begin_ns 0: not begun */
        uint64_t length_ns;
};

/* buffer_bytes: the usable part of the socket's receive buffer; 0: never sleep. */
void sleep_interval_init(struct sleep_interval *n, uint64_t buffer_bytes, uint32_t packet_bytes);
/* Call this after each attempt to receive, even if no packet was available. */
void sleep_interval_record(struct sleep_interval *n, uint64_t now_ns, uint64_t packets);
/* Returns how long to sleep when the socket is empty; 0: wait for the next packet. */
uint64_t sleep_interval_ns(const struct sleep_interval *n);
