/* The Adler-32 checksum of RFC 1950, several times as fast as zlib's on processors with AVX2, and that of
 * fragments. Without this file, reading events needs no zlib. */
#include <zlib.h>

#include "eformat_encode.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define MODULUS 65521u
#define BLOCK_BYTES 32u
/* Sums of so many blocks fit the 32-bit lanes. */
#define BLOCKS_MAX 1024u

static __attribute__((target("avx2"))) uint64_t add_lanes(__m256i lanes)
{
        uint32_t v[8];
        uint64_t sum = 0;

        _mm256_storeu_si256((__m256i *)v, lanes);
        for (size_t i = 0; i < ARRAY_SIZE(v); i++)
                sum += v[i];
        return sum;
}

/* The checksum's low half is the sum of all bytes, and its high half that of the low half after each byte. */
static __attribute__((target("avx2"))) uint32_t sum_blocks(uint32_t sum, const uint8_t *bytes, size_t blocks)
{
        const __m256i weights = _mm256_setr_epi8(32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18,
                                                 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1),
                      ones = _mm256_set1_epi16(1), zero = _mm256_setzero_si256();
        /* Sums of the bytes, of these sums before each block, and of the weighted bytes of each block. */
        __m256i low = zero, before = zero, weighted = zero;
        uint64_t a = sum & 0xffff, b = sum >> 16;

        for (size_t i = 0; i < blocks; i++) {
                __m256i block = _mm256_loadu_si256((const __m256i *)(bytes + i * BLOCK_BYTES));

                before = _mm256_add_epi32(before, low);
                low = _mm256_add_epi32(low, _mm256_sad_epu8(block, zero));
                weighted = _mm256_add_epi32(weighted,
                                            _mm256_madd_epi16(_mm256_maddubs_epi16(block, weights), ones));
        }
        b += a * blocks * BLOCK_BYTES + BLOCK_BYTES * add_lanes(before) + add_lanes(weighted);
        a += add_lanes(low);
        return (uint32_t)(b % MODULUS << 16 | a % MODULUS);
}

static uint32_t sum_vectors(uint32_t sum, const uint8_t **bytes, size_t *size_bytes)
{
        while (*size_bytes >= BLOCK_BYTES) {
                size_t blocks = MIN(*size_bytes / BLOCK_BYTES, (size_t)BLOCKS_MAX);

                sum = sum_blocks(sum, *bytes, blocks);
                *bytes += blocks * BLOCK_BYTES;
                *size_bytes -= blocks * BLOCK_BYTES;
        }
        return sum;
}

#define has_vectors() __builtin_cpu_supports("avx2")
#else
static uint32_t sum_vectors(uint32_t sum, const uint8_t **bytes, size_t *size_bytes)
{
        (void)bytes;
        (void)size_bytes;
        return sum;
}

#define has_vectors() false
#endif

uint32_t adler_add(uint32_t sum, const void *bytes, size_t size_bytes)
{
        const uint8_t *at = bytes;

        if (has_vectors())
                sum = sum_vectors(sum, &at, &size_bytes);
        /* zlib begins anew if there are no bytes and `at` is NULL. */
        return size_bytes > 0 ? (uint32_t)adler32_z(sum, at, size_bytes) : sum;
}

uint32_t adler_join(uint32_t sum, uint32_t next, uint64_t next_bytes)
{
        return (uint32_t)adler32_combine(sum, next, (z_off_t)next_bytes);
}

/* Compares the Adler-32 of the bytes with the word behind them. */
static enum eformat_sum verify_adler(const uint8_t *bytes, size_t size_bytes)
{
        uint32_t sum = adler_add(ADLER_BEGIN, bytes, size_bytes);

        return sum == eformat_word(bytes, size_bytes / 4) ? EFORMAT_SUM_OK : EFORMAT_SUM_WRONG;
}

enum eformat_sum eformat_verify_sum(const struct eformat_fragment *f)
{
        const uint8_t *stamp = stamp_find(f);
        enum eformat_sum sum = EFORMAT_SUM_NONE;

        if (stamp)
                sum = verify_adler(f->bytes, (size_t)(stamp - f->bytes) + 4 * (STAMP_WORDS - 1));
        if (sum == EFORMAT_SUM_WRONG || f->checksum_type == EFORMAT_CHECKSUM_NONE)
                return sum;
        if (f->checksum_type != EFORMAT_CHECKSUM_ADLER32)
                return EFORMAT_SUM_UNKNOWN;
        return verify_adler(f->payload, 4 * (size_t)f->payload_words);
}
