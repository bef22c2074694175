/* The state that an exact port shares with its BPF programs, and the history of the port before its front
 * (the latest arrival), so that a packet that is decided late finds the port as it was when the packet
 * arrived.
 *
 * That time is divided into slots. Each holds the port's idle time within it, and its peak, which is the
 * largest backlog. A late packet uses idle time after its own arrival, slot by slot; idle time is used once.
 * Until its cost is fully placed, a late packet delays the packets that arrived after it, so it also raises
 * the peaks of their slots. Cost that is left when the front is reached is added to the port's end. A late
 * packet is dropped if it finds the buffer full, or if the backlog in a later slot already exceeds the
 * buffer. Packets that were accepted cannot be dropped later. So a late packet may push the backlog above the
 * buffer, and the next packets at the front are dropped instead. Otherwise a port full of large packets would
 * drop every small packet that is decided late. In total, the port carries as much as if it decided packets
 * in the order of their arrivals. The order within a slot is unknown.
 *
 * The slots form a ring. Each holds its number, which is the time at its start divided by its length. A slot
 * with another number has not been used: the port was idle for all of it. So recording idle time costs
 * nothing. */
#pragma once

#include <linux/bpf.h>
#include <stdint.h>

#include "run/exact_port.h"

/* The programs refer to the two maps by these numbers, which the loader replaces. */
#define PORT_STATE_MARK 0x5057a7e
#define PORT_SLOTS_MARK 0x5057075
/* A slot is at least this fraction of the buffer, and of 64 KiB, and less than twice as long as required. */
#define SLOTS_PER_BUFFER 16u
#define SLOTS_PER_SUPER 64u
/* The ring covers at least 512 times the buffer, and 8 MiB at the port's rate. */
#define PORT_SLOTS 8192
/* An older timestamp or mark is not from this program, or the clock was set. */
#define LATE_MOST_NS 1000000000
#define PS_PER_NS 1000
/* A bit lasts this long at 1 bit/s, and a byte 8 times as long. */
#define BIT_PS UINT64_C(1000000000000)

struct port_slot {
        uint64_t number, idle_ps, peak_ps;
};

/* Written before the programs are loaded. */
struct port_rule {
        uint64_t rate_bps, buffer_ps;
        uint64_t slot_bits;     /* a slot lasts 2^slot_bits ps */
        uint64_t ahead_ns;      /* marks may be ahead of the current time by this time */
        uint64_t tai_ns;        /* CLOCK_TAI - CLOCK_REALTIME, which changes only with leap seconds */
        uint64_t by_timestamps; /* see exact_port_config */
};

/* The value of the map that a port's programs share. */
struct port_state {
        struct bpf_spin_lock lock; /* for end_ps, front_ps and the slots */
        uint64_t end_ps;   /* when the port will have sent all carried packets; not before the front */
        uint64_t front_ps; /* the latest arrival */
        uint64_t link_ps;  /* when the link from the node will have sent all its packets */
        struct exact_port_counts counts;
        struct port_rule rule;
};
