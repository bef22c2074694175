/* Manages the SFI's buffer: how much of it an event needs, which slot gives up its memory first, and the
 * receive bitmap, with one bit for each block that holds data. sfi_slots.c allocates the memory. */
#include "sfi_slots.h"

static bool yields_to(const struct sfi_slot *a, const struct sfi_slot *b)
{
        if (a->assigned != b->assigned)
                return b->assigned;
        return a->assigned ? a->order > b->order : a->event > b->event;
}

uint32_t sfi_slots_victim(const struct sfi_slots *t, uint32_t slot)
{
        uint32_t youngest = heap_first(&t->holding);

        if (youngest == HEAP_NONE || !yields_to(&t->items[youngest], &t->items[slot]))
                return SLOT_NONE;
        return youngest;
}

bool sfi_slots_have_room(const struct sfi_slots *t, uint32_t slot, uint32_t bytes)
{
        uint64_t free_bytes = arena_size_bytes(t->arena) - arena_used_bytes(t->arena);

        return arena_block_bytes(t->arena, bytes) <= free_bytes || sfi_slots_victim(t, slot) != SLOT_NONE;
}

/* Incomplete events only raise the estimate. Their other fragments are assumed to have the same sizes. */
void sfi_slots_learn_size(struct sfi_slots *t, uint32_t slot, bool whole)
{
        uint64_t bytes = 0;
        uint32_t known = 0;

        for (uint32_t i = 0; i < t->n_ros; i++) {
                const struct sfi_fragment *f = sfi_fragment(t, slot, i);

                if (f->known || whole)
                        bytes += arena_block_bytes(t->arena, f->bytes);
                known += f->known || whole;
        }
        if (known > 0)
                bytes = bytes * t->n_ros / known;
        if (bytes >= t->event_bytes)
                t->event_bytes = bytes;
        else if (whole)
                t->event_bytes -= (t->event_bytes - bytes) / 64;
}

static uint64_t word_mask(uint64_t bit, uint64_t n)
{
        return (n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1) << bit;
}

void sfi_slots_clear_blocks(struct sfi_slots *t, uint64_t at, uint32_t bytes)
{
        uint64_t first = at / EVB_BLOCK_BYTES, n = sfi_blocks(bytes);

        while (n > 0) {
                uint64_t bit = first % 64, part = MIN(n, 64 - bit);

                t->block_bits[first / 64] &= ~word_mask(bit, part);
                first += part, n -= part;
        }
}

uint32_t sfi_slots_set_blocks(struct sfi_slots *t, uint64_t at, uint32_t bytes)
{
        uint64_t first = at / EVB_BLOCK_BYTES, n = sfi_blocks(bytes);
        uint32_t fresh = 0;

        while (n > 0) {
                uint64_t bit = first % 64, part = MIN(n, 64 - bit), mask = word_mask(bit, part);
                uint64_t *word = &t->block_bits[first / 64], held = *word & mask;

                /* Most data arrive once, and a count of bits is a function call. */
                fresh += (uint32_t)part - (held ? (uint32_t)__builtin_popcountll(held) : 0);
                *word |= mask;
                first += part, n -= part;
        }
        return fresh;
}

/* The first of the blocks [i, n) from the block `base` on that is held, or that is missing; n: none. */
static uint32_t find_block(const struct sfi_slots *t, uint64_t base, uint32_t i, uint32_t n, bool held)
{
        for (uint64_t bit; i < n; i += (uint32_t)(64 - bit)) {
                uint64_t word = t->block_bits[(base + i) / 64];

                bit = (base + i) % 64;
                word = (held ? word : ~word) >> bit;
                if (word)
                        return MIN(i + (uint32_t)__builtin_ctzll(word), n);
        }
        return n;
}

bool sfi_slots_missing_range(const struct sfi_slots *t, const struct sfi_fragment *f, uint32_t from_bytes,
                             uint32_t *ret_from, uint32_t *ret_to)
{
        uint64_t base = f->at / EVB_BLOCK_BYTES;
        uint32_t n = sfi_blocks(f->bytes), from = find_block(t, base, from_bytes / EVB_BLOCK_BYTES, n, false);

        if (from == n)
                return false;
        *ret_from = from * EVB_BLOCK_BYTES;
        *ret_to = MIN(find_block(t, base, from, n, true) * EVB_BLOCK_BYTES, f->bytes);
        return true;
}
