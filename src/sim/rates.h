/* The arithmetic of a link, a switch port, and a token bucket. Times are in picoseconds, so that a byte at
 * 400 Gbit/s (20 ps) is exact; at other rates the time of a packet is rounded down by less than 1 ps, as in
 * run/exact_port.h. Bytes count the frame with its Ethernet header. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PS_PER_NS UINT64_C(1000)

/* Returns the time that bytes take at a rate, which must not be 0. */
uint64_t rates_time_ps(uint64_t bytes, uint64_t rate_bps);

/* A link sends one frame at a time. */
struct sim_link {
        uint64_t rate_bps; /* 0: infinite */
        uint64_t end_ps;   /* when the link will have sent all frames that it has received */
};

/* Returns when the link will have sent a frame that it receives now. */
uint64_t sim_link_send(struct sim_link *l, uint64_t now_ps, uint32_t bytes);

/* A switch port: a queue of limited size, which includes the frame being sent, and drops frames that do not
 * fit. docs/lab-port.md describes the rule. */
struct sim_port {
        uint64_t rate_bps, buffer_bytes; /* rate 0: infinite, drops nothing */
        uint64_t end_ps;
        uint64_t carried, dropped;
        uint64_t longest_ps; /* the longest queue so far, as the time to send it */
};

/* Maximum number of bytes that the port held at once; 0 without a rate. */
uint64_t sim_port_most_bytes(const struct sim_port *p);
/* Call this in the order of arrivals. False: the frame is dropped. *ret_leaves_ps: when the port will have
 * sent the frame. */
bool sim_port_accept(struct sim_port *p, uint64_t arrival_ps, uint32_t bytes, uint64_t *ret_leaves_ps);

/* The token bucket of a qdisc. TBF passes a packet if there are enough tokens for all of it; HTB passes it if
 * any token is left, and the balance may become negative. Stored as the time at which the bucket is full
 * (GCRA of ITU-T I.371). */
struct sim_bucket {
        uint64_t rate_bps; /* 0: passes everything */
        uint64_t burst_ps;
        uint64_t full_ps;
        uint32_t overhead_bytes; /* overhead of each packet, added to its size */
        bool debt;               /* HTB */
};

/* Initializes a full bucket. `burst_bytes` excludes the overhead of packets. */
void sim_bucket_init(struct sim_bucket *b, uint64_t rate_bps, uint64_t burst_bytes, uint32_t overhead_bytes,
                     bool debt);
/* Returns when a packet may pass; 0: at any time; NEVER_NS: never, because it is larger than the burst. */
uint64_t sim_bucket_next_ps(const struct sim_bucket *b, uint32_t bytes);
/* Removes the tokens of a packet that passes. */
void sim_bucket_charge(struct sim_bucket *b, uint64_t now_ps, uint32_t bytes);
