/* The supported kinds of qdiscs and filters, in one table with one file per kind. A kind encodes its
 * parameters as netlink attributes, decodes, compares and prints them as words of a tc command. It never
 * trusts its input. */
#pragma once

#include <libmnl/libmnl.h>
#include <linux/pkt_sched.h>

#include "shape/model/object.h"
#include "shape/model/units.h"

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

extern const struct tc_kind tc_kind_htb, tc_kind_tbf, tc_kind_cbq, tc_kind_bfifo, tc_kind_pfifo, tc_kind_u32;

/* NULL: unsupported kind. */
const struct tc_kind *tc_kind_find(const char *name);

/* Stores the attributes of a nest by type, ignoring types above `max`. The last of a type wins, as in the
 * kernel. */
void kind_read(const struct nlattr *nest, const struct nlattr **ret, unsigned max);
/* Copies the payload as a structure of at least that size. False: too short or absent. */
bool kind_get(const struct nlattr *a, void *ret, size_t size_bytes);
uint32_t kind_get_u32(const struct nlattr *a, uint32_t otherwise);
uint64_t kind_get_u64(const struct nlattr *a, uint64_t otherwise);

/* A rate in the old 32-bit form, saturated. It names the link layer, so no rate table is needed. */
struct tc_ratespec kind_ratespec(uint64_t rate_bytes, uint16_t overhead_bytes);
/* True if the link layer is not Ethernet but ATM, which sends whole cells. */
bool kind_counts_cells(const struct tc_ratespec *rate);
/* Adds the 64-bit rate if it exceeds 32 bits. */
void kind_put_rate64(struct nlmsghdr *m, uint16_t type, uint64_t rate_bytes);
void kind_add_rate_words(struct strbuf *b, const char *word, uint64_t rate_bytes);
