/* Arrays of bits: bit i is bit i % 64 of word i / 64. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

static inline bool bits_get(const uint64_t *words, uint64_t i)
{
        return words[i / 64] >> i % 64 & 1;
}

static inline void bits_set(uint64_t *words, uint64_t i, bool value)
{
        uint64_t mask = UINT64_C(1) << i % 64;

        words[i / 64] = value ? words[i / 64] | mask : words[i / 64] & ~mask;
}
