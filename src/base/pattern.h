/* The bytes of a `pattern` source. Byte i of source s in event e depends only on (seed, s, e, i), so that any
 * reader can check it; e is the L1 ID of the event. The 64-bit little-endian word k (bytes 8k to 8k+7) is key
 * + k * PATTERN_STEP (mod 2^64), where the key mixes seed, source and event. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PATTERN_STEP UINT64_C(0x9E3779B97F4A7C15)

uint64_t pattern_key(uint64_t seed, uint32_t source, uint64_t event);
/* Writes bytes [offset, offset + n) of the pattern. */
void pattern_fill(uint64_t key, void *to, size_t offset, size_t n);
/* The index in `bytes` of the first byte that differs from the pattern at `offset`; `n` if none differs. */
size_t pattern_check(uint64_t key, const void *bytes, size_t offset, size_t n);
