/* The receive bitmap of the SFI's buffer: which blocks hold data. */
#include "sfi_slots.h"

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
                uint64_t *word = &t->block_bits[first / 64];

                fresh += (uint32_t)__builtin_popcountll(mask & ~*word);
                *word |= mask;
                first += part, n -= part;
        }
        return fresh;
}

bool sfi_slots_missing_range(const struct sfi_slots *t, const struct sfi_fragment *f, uint32_t from_bytes,
                             uint32_t *ret_from, uint32_t *ret_to)
{
        uint64_t base = f->at / EVB_BLOCK_BYTES;
        uint32_t i = from_bytes / EVB_BLOCK_BYTES, n = sfi_blocks(f->bytes), from;

        while (i < n && t->block_bits[(base + i) / 64] >> (base + i) % 64 & 1)
                i++;
        if (i == n)
                return false;
        from = i;
        while (i < n && !(t->block_bits[(base + i) / 64] >> (base + i) % 64 & 1))
                i++;
        *ret_from = from * EVB_BLOCK_BYTES;
        *ret_to = MIN(i * EVB_BLOCK_BYTES, f->bytes);
        return true;
}
