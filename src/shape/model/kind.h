/* The supported kinds of qdiscs and filters, in one table, with one file per kind. A kind encodes its
 * parameters as netlink attributes, decodes, compares and prints them as words of a tc command. It never
 * trusts its input. */
#pragma once

#include <libmnl/libmnl.h>
#include <linux/pkt_sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "shape/model/object.h"

struct tc_kind {
        const char *name;
        /* Adds the attributes within TCA_OPTIONS. */
        void (*encode)(struct nlmsghdr *m, const struct tc_object *o);
        /* Sets o->params. -EBADMSG: truncated, contradictory, or with features that the parameters cannot
         * express. */
        int (*decode)(struct tc_object *o, const struct nlattr *options);
        bool (*equal)(const struct tc_object *a, const struct tc_object *b);
        void (*words)(const struct tc_object *o, struct strbuf *b);
};

extern const struct tc_kind tc_kind_htb, tc_kind_tbf, tc_kind_cbq, tc_kind_bfifo, tc_kind_pfifo,
        tc_kind_fq_codel, tc_kind_u32, tc_kind_fq, tc_kind_bpf, tc_kind_edt;

/* NULL: unsupported kind. */
const struct tc_kind *tc_kind_find(const char *name);

/* Stores the attributes of a nest by type, ignoring types above `max`. The last attribute of a type wins, as
 * in the kernel. */
void kind_read(const struct nlattr *nest, const struct nlattr **ret, unsigned max);
/* Copies the payload as a structure of at least that size. False: too short or absent. */
bool kind_get(const struct nlattr *a, void *ret, size_t size_bytes);
uint32_t kind_get_u32(const struct nlattr *a, uint32_t otherwise);
uint64_t kind_get_u64(const struct nlattr *a, uint64_t otherwise);

/* Returns a rate in the old 32-bit form, saturated. The form specifies the link layer, so no rate table is
 * needed. */
struct tc_ratespec kind_ratespec(uint64_t rate_bytes, uint16_t overhead_bytes);
/* True if the link layer is not Ethernet but ATM, which sends whole cells. */
bool kind_counts_cells(const struct tc_ratespec *rate);
/* Adds the 64-bit rate if it exceeds 32 bits. */
void kind_put_rate64(struct nlmsghdr *m, uint16_t type, uint64_t rate_bytes);
void kind_add_rate_words(struct strbuf *b, const char *word, uint64_t rate_bytes);

/* ---- Units of the kernel's packet schedulers: bytes per second, and ticks of 64 ns. Source: PSCHED_SHIFT in
 * the kernel's include/net/pkt_sched.h, unchanged since 2.6.31; see /proc/net/psched. ---- */

#define TC_TICK_NS 64u

/* Returns the time to send `bytes` bytes at a rate, rounded up, because a burst must never be smaller than
 * requested (libnl and tc round down). At most UINT32_MAX; rate_bytes must not be 0. */
uint32_t tc_ticks_of_bytes(uint64_t bytes, uint64_t rate_bytes);
/* The number of bytes sent within a time, rounded down. */
uint64_t tc_bytes_of_ticks(uint32_t ticks, uint64_t rate_bytes);
/* The kernel computes times with a multiplication of its own, so the results may differ by a tick or two. */
bool tc_ticks_equal(uint32_t a, uint32_t b);
/* Converts bit/s to byte/s, rounded up. */
uint64_t tc_rate_bytes(uint64_t bps);

/* The kernel's table of transmission times for 256 packet sizes (struct qdisc_rate_table), which CBQ still
 * needs: entry i is for packets of up to (i + 1) << cell_log bytes. Returns the smallest cell_log for packets
 * up to max_bytes. */
#define TC_RATE_TABLE_SIZE 256
uint8_t tc_rate_table(uint32_t table[TC_RATE_TABLE_SIZE], uint64_t rate_bytes, uint32_t max_bytes,
                      uint32_t min_bytes);
