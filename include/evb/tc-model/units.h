/* Time, rate and burst as the kernel's packet schedulers count them: bytes per second and ticks of 64 ns.
 * Source: PSCHED_SHIFT in the kernel's include/net/pkt_sched.h, the same since 2.6.31; /proc/net/psched shows
 * it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TC_TICK_NS 64u

/* The time that so many bytes take at a rate, rounded up: a burst must never come out smaller than asked
 * (libnl and tc round down). At most UINT32_MAX; rate_bytes is not 0. */
uint32_t tc_ticks_of_bytes(uint64_t bytes, uint64_t rate_bytes);
/* What passes within a time, rounded down. */
uint64_t tc_bytes_of_ticks(uint32_t ticks, uint64_t rate_bytes);
/* The kernel computes times by a multiplication of its own, and may come out a tick or two from us. */
bool tc_ticks_equal(uint32_t a, uint32_t b);
/* bit/s to byte/s, rounded up, and back; exact for whole bytes. */
uint64_t tc_rate_bytes(uint64_t bps);

/* The kernel's table of transmission times for 256 sizes of packets (struct qdisc_rate_table), as CBQ still
 * wants it: entry i is for packets of up to (i + 1) << cell_log bytes. Returns cell_log, the least for
 * packets up to max_bytes. */
#define TC_RATE_TABLE_SIZE 256
uint8_t tc_rate_table(uint32_t table[TC_RATE_TABLE_SIZE], uint64_t rate_bytes, uint32_t max_bytes,
                      uint32_t min_bytes);
