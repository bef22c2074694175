/* Chooses the address bits that select the bucket of a u32 table: those that spread the destinations best. */
#include <arpa/inet.h>
#include <string.h>

#include "layout_internal.h"

#define BUCKETS 256
#define SHIFTS 25 /* positions of eight bits in a word of 32 */

uint32_t layout_hash_bucket(const struct layout_hash *h, const struct tc_address *a)
{
        uint32_t word;

        memcpy(&word, a->bytes + 4 * h->word, sizeof word);
        return ntohl(word) >> h->shift & (BUCKETS - 1);
}

/* Number of filters passed when each destination is looked up once. */
static uint64_t cost(const struct layout_hash *h, const struct tc_plan *p, bool v6)
{
        uint32_t n[BUCKETS] = {};
        uint64_t sum = 0;

        for (size_t i = 0; i < p->n; i++) {
                if ((p->addresses[i].n_bytes == 16) == v6)
                        sum += ++n[layout_hash_bucket(h, &p->addresses[i])];
        }
        return sum;
}

void layout_hash_choose(struct layout_hash *ret, const struct tc_plan *p, bool v6,
                        const struct layout_hash *old)
{
        uint64_t least = UINT64_MAX;

        /* Tries the last bits first, so that they win a tie. */
        for (unsigned word = v6 ? 4 : 1; word-- > 0;) {
                for (unsigned shift = 0; shift < SHIFTS; shift++) {
                        struct layout_hash h = {word, shift};
                        uint64_t c = cost(&h, p, v6);

                        if (c >= least)
                                continue;
                        least = c;
                        *ret = h;
                }
        }
        if (old && cost(old, p, v6) <= 2 * least)
                *ret = *old;
}
