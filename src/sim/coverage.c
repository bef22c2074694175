/* Follows each chunk that an SFI stores, from its bytes to the built event, independently of the core's
 * bitmap: which bytes of which fragment arrived, for which event, and where in the buffer. */
#include <stdlib.h>
#include <string.h>

#include "sim_internal.h"

static struct sim_range *ranges_of(struct sim_coverage *c)
{
        return c->more ?: &c->first;
}

static void reserve(struct sim_coverage *c)
{
        struct sim_range *more;

        if (c->n == 0 || c->n < c->size)
                return;
        c->size = MAX(2 * c->size, 8u);
        more = sim_must(malloc(c->size * sizeof *more));
        memcpy(more, ranges_of(c), c->n * sizeof *more);
        free(c->more);
        c->more = more;
}

/* Most chunks continue the last range. */
static void add_range(struct sim_coverage *c, uint32_t from, uint32_t to)
{
        struct sim_range *r = ranges_of(c);
        uint32_t first = c->n, behind;

        while (first > 0 && r[first - 1].to >= from)
                first--;
        for (behind = first; behind < c->n && r[behind].from <= to; behind++) {
                from = MIN(from, r[behind].from);
                to = MAX(to, r[behind].to);
        }
        if (first == behind) {
                reserve(c);
                r = ranges_of(c);
        }
        memmove(&r[first + 1], &r[behind], (c->n - behind) * sizeof *r);
        r[first] = (struct sim_range){from, to};
        c->n = c->n - (behind - first) + 1;
}

static void add_chunk(const struct sim *s, struct sim_node *n, const struct sfi_chunk *c)
{
        struct sim_slot *slot = &n->slots[c->slot];
        uint64_t base = c->at - c->chunk.offset;
        struct sim_coverage *cover;

        if (!slot->coverage || slot->event != c->chunk.event) {
                sim_coverage_clear(s, n, slot);
                n->n_covered++;
                slot->event = c->chunk.event;
                slot->coverage = sim_must(calloc(s->n_ros, sizeof *slot->coverage));
        }
        cover = &slot->coverage[c->source];
        /* Meanwhile, the core has given the memory to another fragment. */
        if (cover->base != base)
                cover->n = 0;
        cover->base = base;
        if (c->chunk.length > 0)
                add_range(cover, c->chunk.offset, c->chunk.offset + c->chunk.length);
}

void sim_coverage_add(const struct sim *s, struct sim_node *n, const struct sfi_chunk *chunks, size_t k)
{
        for (size_t i = 0; i < k; i++) {
                if (chunks[i].verdict == SFI_STORE)
                        add_chunk(s, n, &chunks[i]);
        }
}

bool sim_coverage_all(const struct sim_slot *slot, const struct sfi_built *built, uint32_t ros)
{
        const struct sfi_fragment *f = &built->fragments[ros];
        struct sim_coverage *c;

        if (f->bytes == 0)
                return true;
        if (!slot->coverage || slot->event != built->event)
                return false;
        c = &slot->coverage[ros];
        return c->base == f->at && c->n == 1 && ranges_of(c)->from == 0 && ranges_of(c)->to == f->bytes;
}

void sim_coverage_clear(const struct sim *s, struct sim_node *n, struct sim_slot *slot)
{
        if (!slot->coverage)
                return;
        for (uint32_t i = 0; i < s->n_ros; i++)
                free(slot->coverage[i].more);
        free(slot->coverage);
        slot->coverage = NULL;
        n->n_covered--;
}

/* Does not access slots that were never used, because there are many, and their memory may not be allocated
 * yet. */
void sim_coverage_clear_all(const struct sim *s, struct sim_node *n)
{
        for (uint32_t i = 0; n->n_covered > 0 && i < n->n_slots; i++)
                sim_coverage_clear(s, n, &n->slots[i]);
}
