/* Units of the kernel's packet schedulers: bytes per second, and ticks of 64 ns. Source: PSCHED_SHIFT in the
 * kernel's include/net/pkt_sched.h, unchanged since 2.6.31; see /proc/net/psched. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TC_TICK_NS 64u

/* The time of `bytes` at a rate, rounded up: a burst must never be smaller than requested (libnl and tc round
 * down). At most UINT32_MAX; rate_bytes is not 0. */
uint32_t tc_ticks_of_bytes(uint64_t bytes, uint64_t rate_bytes);
/* The bytes that pass within a time, rounded down. */
uint64_t tc_bytes_of_ticks(uint32_t ticks, uint64_t rate_bytes);
/* The kernel computes times by its own multiplication, so the results may differ by a tick or two. */
bool tc_ticks_equal(uint32_t a, uint32_t b);
/* Converts bit/s to byte/s, rounded up. */
uint64_t tc_rate_bytes(uint64_t bps);

/* The kernel's table of transmission times for 256 packet sizes (struct qdisc_rate_table), which CBQ still
 * needs: entry i is for packets of up to (i + 1) << cell_log bytes. Returns the smallest cell_log for packets
 * up to max_bytes. */
#define TC_RATE_TABLE_SIZE 256
uint8_t tc_rate_table(uint32_t table[TC_RATE_TABLE_SIZE], uint64_t rate_bytes, uint32_t max_bytes,
                      uint32_t min_bytes);
