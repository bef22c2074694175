/* The share of a port's rate that control messages may use, and a budget that limits a sender to it.  A port
 * that carries data loses packets if other traffic needs more than the plan of the data leaves. So each
 * sender of control messages has a budget for each port: a token bucket, computed like GCRA of ITU-T I.371,
 * with one time instead of a count of tokens. After a pause, a message is sent at once. At a high rate, it
 * waits until the budget is paid, and collects entries in this time. So the interval between messages grows
 * with the rate. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ethernet, IPv4 and UDP headers, as a qdisc counts them. IPv6 needs 20 more. */
#define BUDGET_HEADER_BYTES 42u
#define BUDGET_HEADER6_BYTES 62u

struct budget {
        uint64_t rate_bps; /* 0: unlimited */
        uint64_t paid_ns;  /* when all messages sent so far will be paid for */
        uint32_t header_bytes;
};

/* A burst of two frames may exceed the rate, so that rare messages need not wait for each other. */
#define BUDGET_BURST_BYTES 3028u

void budget_init(struct budget *b, uint64_t rate_bps, uint32_t header_bytes);
/* The earliest time at which another message may be sent; 0: at once. */
uint64_t budget_next_ns(const struct budget *b);
/* Charges a message of `bytes` bytes, without headers. A message that cannot wait may be charged too; later
 * messages then wait longer. */
void budget_charge(struct budget *b, uint64_t now_ns, size_t bytes);

static inline bool budget_allows(const struct budget *b, uint64_t now_ns)
{
        return b->rate_bps == 0 || now_ns >= budget_next_ns(b);
}

/* The inputs from which the share of control messages is computed. */
struct budget_demand {
        uint64_t link_bps; /* of each port; 0: unknown */
        uint32_t n_ros, n_sfi;
        uint64_t fragment_bytes; /* usual payload of one ROS's fragment; 0: unknown */
        bool with_info;          /* assignments carry event information */
        uint32_t mtu_bytes;
        uint32_t header_bytes;   /* BUDGET_HEADER_BYTES or BUDGET_HEADER6_BYTES */
        uint32_t trailer_bytes;  /* of each control message, for its tag */
        uint32_t overhead_bytes; /* bytes that a port counts in addition to these */
        uint64_t keep_alive_ns;
        uint64_t configured_bps; /* 0: automatic */
};

/* Limits in bits/s on the wire, including headers, at any trigger rate. All 0: the link's rate is unknown, so
 * nothing is limited. Every node computes the same limits from its scenario. */
struct budget_plan {
        double event_rate_hz;  /* of one SFI whose port is saturated with data; 0: unknown */
        uint64_t needed_bps;   /* rate that the assignments of this many events need */
        uint64_t share_bps;    /* rate of control messages from all senders into the port of an SFI */
        uint64_t assign_bps;   /* part of share_bps for the DFM */
        uint64_t announce_bps; /* into the port of each ROS, from the DFM */
        uint64_t request_bps;  /* into the port of each ROS, from one SFI */
        uint64_t update_bps;   /* into the port of the DFM, from one SFI */
        uint64_t alive_bps;    /* into the port of the DFM, from one ROS */
        uint64_t totals_bps;   /* into the port of each SFI, from all ROSs */
        uint32_t header_bytes; /* of each message, as a port counts them */
};

struct budget_plan budget_plan_make(const struct budget_demand *d);
