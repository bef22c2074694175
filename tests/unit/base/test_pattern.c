/* The pattern, compared with its definition byte by byte. */
#include "../test.h"

#include "base/pattern.h"

#define KEY UINT64_C(0xFEDCBA9876543210)
#define OFFSETS 17u
#define LENGTHS 150u

static uint8_t byte_at(size_t i)
{
        return (uint8_t)((KEY + i / 8 * PATTERN_STEP) >> i % 8 * 8);
}

/* Each alignment and length, so that vectors, words and single bytes all take part. */
TEST_EACH(it_writes_what_it_defines, offset, OFFSETS)
{
        for (size_t n = 0; n < LENGTHS; n++) {
                uint8_t bytes[LENGTHS + 1];

                memset(bytes, 0x5A, sizeof bytes);
                pattern_fill(KEY, bytes, offset, n);
                for (size_t i = 0; i < n; i++)
                        assert_int_equal(bytes[i], byte_at(offset + i));
                assert_int_equal(bytes[n], 0x5A);
                assert_int_equal(pattern_check(KEY, bytes, offset, n), n);
        }
}

TEST_EACH(it_finds_each_wrong_bit, offset, OFFSETS)
{
        uint8_t bytes[LENGTHS];

        pattern_fill(KEY, bytes, offset, LENGTHS);
        for (size_t bit = 0; bit < 8 * LENGTHS; bit++) {
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
                assert_int_equal(pattern_check(KEY, bytes, offset, LENGTHS), bit / 8);
                bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
}
