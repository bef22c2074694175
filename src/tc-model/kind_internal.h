/* What the kinds share: reading nested attributes with their lengths checked, rates as the kernel wants them.
 */
#pragma once

#include <linux/pkt_sched.h>

#include "evb/tc-model/kind.h"
#include "evb/tc-model/units.h"

/* The attributes of a nest by type, those above `max` left out; the last of a kind wins, as in the kernel. */
void kind_read(const struct nlattr *nest, const struct nlattr **ret, unsigned max);
/* The payload as a structure of at least that size, copied; false: too short or not there. */
bool kind_get(const struct nlattr *a, void *ret, size_t size_bytes);
uint32_t kind_get_u32(const struct nlattr *a, uint32_t otherwise);
uint64_t kind_get_u64(const struct nlattr *a, uint64_t otherwise);

/* A rate in the 32 bits of the old form, as much as fits. With the link layer named no rate table is needed.
 */
struct tc_ratespec kind_ratespec(uint64_t rate_bytes, uint16_t overhead_bytes);
/* Of a link layer that is not Ethernet: as ATM, which sends whole cells. */
bool kind_counts_cells(const struct tc_ratespec *rate);
/* Adds the 64-bit rate where 32 bits do not hold it. */
void kind_put_rate64(struct nlmsghdr *m, uint16_t type, uint64_t rate_bytes);
void kind_add_rate_words(struct strbuf *b, const char *word, uint64_t rate_bytes);
