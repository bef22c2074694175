/* A switch port and the link beside it as arithmetic, in two BPF programs.
 *
 * The decision, at the port's egress, is one virtual queue. `end` is the time at which the port will have
 * sent all that it has carried. A packet that arrives needs bytes * 8 / rate: end = max(end, arrival) + that.
 * If `end` is then more than buffer * 8 / rate after the arrival, the buffer is full and the packet is
 * dropped. So a drop depends on arrival times and sizes alone, never on a timer. The buffer also holds the
 * packet that the port is sending, as in a TBF whose burst and limit add up to the buffer.
 *
 * The stamp, at the port's ingress, is the link from the node: a packet leaves the node at the timestamp that
 * the kernel gave it when the veth passed it on (or, without one, now), and arrives when an ideal link of the
 * rate has sent it and all before it. The packet's mark carries the lower 32 bits of that time in ns to the
 * decision. So a processor that runs soft interrupts late does not make packets arrive together. A packet
 * that is older than one already decided uses the time in which the port was idle after its arrival, if there
 * was any (src/run/port_history.h).
 *
 * Times are in picoseconds of CLOCK_MONOTONIC, so that a byte at 400 Gbit/s (20 ps) is exact; at any other
 * rate a packet's time is rounded down to 1 ps. Bytes are those of the frame on the wire with its Ethernet
 * header, without preamble and checksum.
 *
 * A super-packet counts as its segments, each with its own headers, and arrives over the time that the port's
 * rate needs for them: its last segment arrives at the arrival of the packet. It is carried or dropped whole,
 * and is dropped if its last segment would not fit. The testbed disables segmentation offload, so
 * super-packets are rare there.
 *
 * Needs CAP_BPF and CAP_NET_ADMIN, and Linux 6.1 with the BPF JIT (compare-and-exchange, CLOCK_TAI). One
 * thread; the programs run on any processor, and a lock lets one decide at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct exact_port;

struct exact_port_counts {
        uint64_t packets, bytes;                 /* carried */
        uint64_t dropped_packets, dropped_bytes; /* did not fit */
};

struct exact_port_config {
        uint64_t rate_bps, buffer_bytes; /* both greater than 0 */
        /* The longest burst that the queue of a link passes at once: marks may be ahead of the present by as
         * much, and by 1 s at most. */
        uint64_t burst_bytes;
        /* For tests: a packet leaves its node, and arrives at the port, at skb->tstamp, in ns of
         * CLOCK_MONOTONIC, whatever its mark. */
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
