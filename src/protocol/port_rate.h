/* Finds the share of the planned rate that a receiver's port sustains without loss. If neither the receiver's
 * socket nor the sender's own queue explains a loss, the port carries less than the plan assumes, because of
 * other traffic or a slower switch. The share then drops to 0.7 of the share that arrived. It recovers along
 * the cubic function of RFC 9438 (CUBIC), sections 4.2 and 4.6: fast at first, slowly near the share at which
 * the loss occurred, then faster again. Unlike a TCP connection, this function measures the loss over a fixed
 * interval, because all senders together fill the port. Pure: no clock, no allocation. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/* The planned rate; shares are in thousandths of it. */
#define PORT_RATE_FULL 1000u
/* The smallest share, with which senders still reach the receiver. */
#define PORT_RATE_LEAST 50u
/* Interval of observations. */
#define PORT_RATE_LOOK_NS (100 * NS_PER_MS)
/* A decrease needs this time to reach all senders and to drain the switch's buffer. A loss counts one
 * observation later. */
#define PORT_RATE_REACT_NS (400 * NS_PER_MS)
/* Time from a decrease back to the share at which the loss occurred. */
#define PORT_RATE_RECOVER_NS (10 * NS_PER_S)
/* Fewer losses in an interval, or a smaller fraction of its packets, do not count: they may be bit errors. */
#define PORT_RATE_LOST_MIN 8u
#define PORT_RATE_LOST_PERMILLE 1u
/* Senders report drops in their own queues later than the gaps appear, by up to this time. */
#define PORT_RATE_EXCUSE_NS (3 * NS_PER_S)

/* Totals since the start, in packets. */
struct port_rate_counts {
        uint64_t received, lost; /* lost: missing by their sequence numbers, wherever they were lost */
        uint64_t socket_drops;   /* of the receiver's own socket */
        uint64_t source_drops;   /* of the senders' own queues */
};

struct port_rate {
        uint32_t permille; /* the share now */
        uint64_t look_ns;  /* time of the next observation */
        struct port_rate_counts seen;
        /* Losses that were still missing one observation later; other packets were only overtaken. */
        uint64_t confirmed, received_before;
        uint32_t plateau;      /* the share that arrived when the last loss occurred */
        uint64_t decreased_ns; /* time of the last decrease */
        uint64_t excused_ns;   /* until this time, losses prove nothing about the port */
        /* Values to restore if the senders' own queues explain the loss later, or if the packets arrive. */
        uint32_t undo_permille, undo_plateau;
        uint64_t undo_lost;        /* 0: nothing to undo */
        uint64_t undo_base;        /* number of missing packets before that loss */
        uint64_t undo_source_base; /* drops of the senders' own queues before that loss */
        uint64_t undo_decreases;   /* decreases that are undone together */
        /* For reports. */
        uint64_t decreases, lost; /* lost: packets that led to decreases */
        uint64_t lost_before; /* part of `lost`: packets before the present, or last, time below the plan */
        uint64_t since_ns, below_ns; /* since_ns: start of the present time below the plan; below_ns: sum of
                                        the earlier times */
        uint32_t least;              /* smallest share since since_ns */
};

void port_rate_init(struct port_rate *p, uint64_t now_ns);
/* Observes one interval; call it at look_ns or later. True: the share changed. */
bool port_rate_look(struct port_rate *p, uint64_t now_ns, const struct port_rate_counts *now);
/* Total time below the planned rate. */
uint64_t port_rate_below_ns(const struct port_rate *p, uint64_t now_ns);
