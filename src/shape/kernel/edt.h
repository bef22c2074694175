/* The backend edt: a BPF program at a device's egress gives each packet to a destination its departure time
 * (skb->tstamp, "earliest departure time"), which the qdisc fq below keeps. Rates are in one map, which
 * edt_change() changes without touching a queue; the program's times and counts are in another, so that a new
 * rate never resets them. In trees, a destination is a class of the kind "edt", and the attached program is a
 * filter of the kind "bpf".
 *
 * With HTB that the device offloads, which does not classify, the program instead sets the class of each
 * packet to a destination (skb->priority), and of control messages and IPv6 neighbour discovery to it.
 *
 * Loading needs CAP_BPF and CAP_NET_ADMIN, and Linux 5.8. Reading the maps of another process also needs
 * CAP_SYS_ADMIN. One thread. The BPF program also includes this file. */
#pragma once

#include <stdint.h>

/* The program refers to the two maps by these numbers, which the loader replaces. */
#define EDT_RATES_MARK 0xed7a7e
#define EDT_STATES_MARK 0xed757a
/* Times of the program are in units of 1/64 ns, so that rounding up costs less than 0.02 % at 100 Gbit/s.
 * They wrap after 9 years. */
#define EDT_TIME_BITS 6
#define EDT_UNITS_PER_S (UINT64_C(1000000000) << EDT_TIME_BITS)
/* fq drops packets with later times. */
#define EDT_HORIZON_S UINT64_C(3600)
/* Packets that wait longer than the limit divided by this are marked. The other half of the limit takes what
 * a sender still sends until it sees the mark. */
#define EDT_LIMIT_PER_MARK 2

/* IPv4 addresses are mapped (::ffff:0:0/96, RFC 4291, 2.5.5.2). */
struct edt_key {
        uint8_t bytes[16];
};

struct edt_rate {
        uint64_t rate_bps, limit_bytes;
        uint64_t limit_units;          /* the time that limit_bytes last at this rate */
        uint32_t index;                /* of the destination's state */
        uint32_t class, control_class; /* not 0: packets get a class, and no departure time */
        uint16_t control_port, overhead_bytes;
};

struct edt_state {
        uint64_t next_units; /* departure of the next packet, as CLOCK_MONOTONIC */
        uint64_t packets, bytes, drops;
};

#ifndef __bpf__
#include "shape/model/netlink_message.h"

struct edt {
        int rates, states, program; /* -1: not open */
        uint32_t program_id;
};

#define EDT_CLOSED ((struct edt){-1, -1, -1, 0})

/* Makes the maps and loads the program, unless they are open. A negative errno, as of bpf_load(). */
int edt_load(struct edt *e);
/* Opens the maps of an attached program, unless they are open. -EPERM: needs CAP_SYS_ADMIN; -EBADMSG: another
 * program. */
int edt_open(struct edt *e, uint32_t program_id);
void edt_close(struct edt *e);
/* Adds, changes or deletes a destination. Loads the program first if it is not. */
int edt_change(struct edt *e, const struct tc_change *change);
/* Adds a class for each destination. */
int edt_read(const struct edt *e, struct tc_tree *tree);
#endif
