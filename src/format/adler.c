/* The Adler-32 checksum of RFC 1950, several times as fast as zlib's on processors with AVX2, and that of
 * fragments. Without this file, reading events needs no zlib. */
#include <zlib.h>

#include "eformat_encode.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define MODULUS 65521u
#define BLOCK_BYTES 32u
#define LANE_BYTES 4u
/* Sums of so many blocks fit the 32-bit lanes. */
#define BLOCKS_MAX 256u

static __attribute__((target("avx2"))) uint64_t add_wide_lanes(__m256i lanes)
{
        __m128i half = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));

        return (uint64_t)_mm_cvtsi128_si64(half) + (uint64_t)_mm_extract_epi64(half, 1);
}

static __attribute__((target("avx2"))) uint64_t add_lanes(__m256i lanes)
{
        return add_wide_lanes(_mm256_add_epi64(_mm256_srli_epi64(lanes, 32),
                                               _mm256_and_si256(lanes, _mm256_set1_epi64x(UINT32_MAX))));
}

/* Loads the first `size_bytes` bytes, whole lanes, to the end of a block that begins with zeros. Does not
 * touch the memory before them. */
static __attribute__((target("avx2"))) __m256i load_part(const uint8_t *bytes, size_t size_bytes)
{
        static const int32_t masks[2 * BLOCK_BYTES / LANE_BYTES] = {
                [BLOCK_BYTES / LANE_BYTES] = -1, -1, -1, -1, -1, -1, -1, -1};
        __m256i mask = _mm256_loadu_si256((const __m256i *)(masks + size_bytes / LANE_BYTES));

        return _mm256_maskload_epi32((const int *)(bytes + size_bytes - BLOCK_BYTES), mask);
}

/* The checksum's low half is the sum `a` of all bytes, and its high half the sum `b` of `a` after each byte.
 * `size_bytes`: whole lanes, and at most BLOCKS_MAX blocks. Only the first block may be a part of one: its
 * zeros change no sum. */
static __attribute__((target("avx2"))) void add_blocks(uint64_t *a, uint64_t *b, const uint8_t *bytes,
                                                       size_t size_bytes)
{
        const __m256i weights = _mm256_setr_epi8(32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18,
                                                 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1),
                      ones = _mm256_set1_epi16(1), zero = _mm256_setzero_si256();
        /* Sums of the bytes, of these sums before each block, and of the weighted bytes of each block. */
        __m256i low = zero, before = zero, weighted = zero;
        size_t part_bytes = size_bytes % BLOCK_BYTES;

        if (part_bytes > 0) {
                __m256i block = load_part(bytes, part_bytes);

                low = _mm256_sad_epu8(block, zero);
                weighted = _mm256_madd_epi16(_mm256_maddubs_epi16(block, weights), ones);
        }
        for (size_t at = part_bytes; at < size_bytes; at += BLOCK_BYTES) {
                __m256i block = _mm256_loadu_si256((const __m256i *)(bytes + at));

                before = _mm256_add_epi32(before, low);
                low = _mm256_add_epi32(low, _mm256_sad_epu8(block, zero));
                weighted = _mm256_add_epi32(weighted,
                                            _mm256_madd_epi16(_mm256_maddubs_epi16(block, weights), ones));
        }
        *b += *a * size_bytes + add_lanes(_mm256_add_epi32(_mm256_slli_epi32(before, 5), weighted));
        *a += add_wide_lanes(low);
}

static uint32_t sum_vectors(uint32_t sum, const uint8_t *bytes, size_t size_bytes)
{
        uint64_t a = sum & 0xffff, b = sum >> 16;
        size_t at = 0;

        for (; at < size_bytes % LANE_BYTES; at++) {
                a += bytes[at];
                b += a;
        }
        do {
                size_t n = MIN(size_bytes - at, (size_t)BLOCKS_MAX * BLOCK_BYTES);

                add_blocks(&a, &b, bytes + at, n);
                a %= MODULUS;
                b %= MODULUS;
                at += n;
        } while (at < size_bytes);
        return (uint32_t)(b << 16 | a);
}

#define has_vectors() __builtin_cpu_supports("avx2")
#else
static uint32_t sum_vectors(uint32_t sum, const uint8_t *bytes, size_t size_bytes)
{
        (void)bytes;
        (void)size_bytes;
        return sum;
}

#define has_vectors() false
#endif

uint32_t adler_add(uint32_t sum, const void *bytes, size_t size_bytes)
{
        /* zlib begins anew if there are no bytes and `bytes` is NULL. */
        if (size_bytes == 0)
                return sum;
        return has_vectors() ? sum_vectors(sum, bytes, size_bytes)
                             : (uint32_t)adler32_z(sum, bytes, size_bytes);
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
