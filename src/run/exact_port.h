/* Computes a switch port and its link, in two BPF programs.
 *
 * The decision, at the port's egress, is one virtual queue. `end` is the time at which the port will have
 * sent everything that it has accepted. A packet that arrives needs bytes * 8 / rate, so end = max(end,
 * arrival) + bytes * 8 / rate. If `end` is then more than buffer * 8 / rate after the arrival, the buffer is
 * full and the packet is dropped. So a drop depends only on arrival times and sizes, never on a timer. The
 * buffer also holds the packet that the port is sending, as in a TBF whose burst and limit add up to the
 * buffer.
 *
 * The stamp, at the port's ingress, is the link from the node: a packet leaves the node at the timestamp that
 * the kernel gave it when the veth passed it on (or, without a timestamp, now), and arrives when an ideal
 * link of the rate has sent it and all earlier packets. The packet's mark carries the lower 32 bits of that
 * time in ns to the decision. So packets do not arrive together because a processor runs soft interrupts
 * late. A packet that is older than one already decided uses the time in which the port was idle after its
 * arrival, if there was any (src/run/port_program.h).
 *
 * Times are in picoseconds of CLOCK_MONOTONIC, so that a byte at 400 Gbit/s (20 ps) is exact; at any other
 * rate a packet's time is rounded down to 1 ps. Bytes include the Ethernet header, but not preamble and
 * checksum.
 *
 * A super-packet counts as its segments, each with its own headers. They arrive at the port's rate, the last
 * one at the arrival time of the packet. It is carried or dropped whole, and is dropped if its last segment
 * would not fit. The testbed disables segmentation offload, so super-packets are rare there.
 *
 * This file requires CAP_BPF and CAP_NET_ADMIN, and Linux 6.1 with the BPF JIT (compare-and-exchange,
 * CLOCK_TAI). One thread; the programs run on any processor, and a lock lets one decide at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct exact_port;

struct exact_port_counts {
        uint64_t packets, bytes;                 /* carried */
        uint64_t dropped_packets, dropped_bytes; /* did not fit into the buffer */
};

struct exact_port_config {
        uint64_t rate_bps, buffer_bytes; /* both greater than 0 */
        /* The longest burst that a link's queue passes at once. Marks may be ahead of the current time by as
         * much, and by at most 1 s. */
        uint64_t burst_bytes;
        /* For tests: skb->tstamp, in ns of CLOCK_MONOTONIC, is the time at which a packet leaves its node,
         * and also at which it arrives at the port, whatever its mark. */
        bool use_timestamps;
};

/* Loads the programs. -EPERM, -ENOSYS or -EINVAL if the kernel or the privileges do not suffice. */
int exact_port_new(struct exact_port **ret, const struct exact_port_config *config);
struct exact_port *exact_port_free(struct exact_port *p);
/* The programs for cls_bpf with direct action; borrowed. The decision returns TC_ACT_UNSPEC (carried) or
 * TC_ACT_SHOT; the stamp returns TC_ACT_UNSPEC. */
int exact_port_decision(const struct exact_port *p);
int exact_port_stamp(const struct exact_port *p);
int exact_port_read(const struct exact_port *p, struct exact_port_counts *ret);
