/* The decision of a switch port as arithmetic: a BPF program that holds one virtual queue.
 *
 * `end` is the time at which the port will have sent all that it has carried. A packet that arrives needs
 * bytes * 8 / rate: end = max(end, arrival) + that. If `end` is then more than buffer * 8 / rate after the
 * arrival, the buffer is full and the packet is dropped. So a drop depends on arrival times and sizes alone,
 * never on a timer. The buffer also holds the packet that the port is sending, as in a TBF whose burst and
 * limit add up to the buffer.
 *
 * Times are in picoseconds, so that a byte at 400 Gbit/s (20 ps) is exact; at any other rate a packet's time
 * is rounded down to 1 ps. Bytes are those of the frame on the wire with its Ethernet header, without
 * preamble and checksum.
 *
 * A super-packet counts as its segments, each with its own headers, and arrives over the time that the port's
 * rate needs for them: its last segment arrives now. It is carried or dropped whole, and is dropped if its
 * last segment would not fit. The testbed disables segmentation offload, so super-packets are rare there.
 *
 * Needs CAP_BPF and CAP_NET_ADMIN, and Linux 5.12 with the BPF JIT (compare-and-exchange). One thread; the
 * program runs on any processor. */
#pragma once

#include <stdint.h>

struct exact_port;

struct exact_port_counts {
        uint64_t packets, bytes;                 /* carried */
        uint64_t dropped_packets, dropped_bytes; /* did not fit */
        /* Packets whose attempts to change `end` all failed because other processors changed it: they were
         * carried and counted in `end`. */
        uint64_t contended_packets;
};

/* When a packet arrives: when the program runs, or, for tests, at its timestamp (skb->tstamp, ns). Packets of
 * TCP bear a timestamp that means something else. */
enum exact_port_clock { EXACT_PORT_NOW, EXACT_PORT_TIMESTAMP };

/* Loads the program for a port of a rate and a buffer, both greater than 0. -EPERM, -ENOSYS or -EINVAL if the
 * kernel or the privileges do not suffice. */
int exact_port_new(struct exact_port **ret, enum exact_port_clock clock, uint64_t rate_bps,
                   uint64_t buffer_bytes);
struct exact_port *exact_port_free(struct exact_port *p);
/* The program, for cls_bpf or BPF_PROG_TEST_RUN on egress; borrowed. It returns TC_ACT_UNSPEC (carried) or
 * TC_ACT_SHOT. */
int exact_port_program(const struct exact_port *p);
int exact_port_read(const struct exact_port *p, struct exact_port_counts *ret);
