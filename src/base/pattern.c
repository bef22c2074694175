/* Makes and checks the pattern that test sources send. The size of a fragment is decided in
 * data/fragment_source.h. */
#include "base/pattern.h"

#include <endian.h>
#include <string.h>

#include "base/random.h"
#include "base/util.h"

uint64_t pattern_key(uint64_t seed, uint32_t source, uint64_t event)
{
        return random_mix(random_mix(seed ^ ((uint64_t)source << 32)) ^ event);
}

static uint64_t word_at(uint64_t key, size_t word)
{
        return htole64(key + word * PATTERN_STEP);
}

/* Returns the number of bytes up to the next whole word, at most n. */
static size_t head_bytes(size_t offset, size_t n)
{
        return MIN((8 - offset % 8) % 8, n);
}

static void fill_part(uint64_t key, uint8_t *to, size_t offset, size_t n)
{
        uint64_t word = word_at(key, offset / 8);

        memcpy(to, (const uint8_t *)&word + offset % 8, n);
}

/* Vectors halve the time. Not all x86-64 processors have them, so the program checks at run time. */
#if defined(__x86_64__)
#define VECTORS __attribute__((target("avx2")))
#define has_vectors() __builtin_cpu_supports("avx2")
#else
#define VECTORS
#define has_vectors() false
#endif

typedef uint64_t vector __attribute__((vector_size(32)));
#define VECTOR_STEP (sizeof(vector) / 8 * PATTERN_STEP)
#define VECTOR_AT(key, word)                                                                                 \
        ((vector){(key) + (word)*PATTERN_STEP, (key) + ((word) + 1) * PATTERN_STEP,                          \
                  (key) + ((word) + 2) * PATTERN_STEP, (key) + ((word) + 3) * PATTERN_STEP})

/* Returns how many words it wrote. */
static VECTORS size_t fill_vectors(uint64_t key, uint8_t *to, size_t word, size_t words)
{
        vector next = VECTOR_AT(key, word);
        size_t done = 0;

        for (; words - done >= sizeof next / 8; done += sizeof next / 8) {
                memcpy(to + 8 * done, &next, sizeof next);
                next += VECTOR_STEP;
        }
        return done;
}

/* Returns how many words it compared. *ret_differ is 0 if all are correct. */
static VECTORS size_t check_vectors(uint64_t key, const uint8_t *bytes, size_t word, size_t words,
                                    uint64_t *ret_differ)
{
        vector next = VECTOR_AT(key, word), differ = {};
        size_t done = 0;

        for (; words - done >= sizeof next / 8; done += sizeof next / 8) {
                vector here;

                memcpy(&here, bytes + 8 * done, sizeof here);
                differ |= here ^ next;
                next += VECTOR_STEP;
        }
        *ret_differ = differ[0] | differ[1] | differ[2] | differ[3];
        return done;
}

void pattern_fill(uint64_t key, void *to, size_t offset, size_t n)
{
        uint8_t *at = to;
        size_t head = head_bytes(offset, n);

        if (head > 0)
                fill_part(key, at, offset, head);
        at += head, offset += head, n -= head;

        size_t words = n / 8, first = offset / 8;

        for (size_t i = has_vectors() ? fill_vectors(key, at, first, words) : 0; i < words; i++) {
                uint64_t word = word_at(key, first + i);

                memcpy(at + 8 * i, &word, 8);
        }
        if (n % 8 > 0)
                fill_part(key, at + n / 8 * 8, offset + n / 8 * 8, n % 8);
}

static size_t first_wrong(uint64_t key, const uint8_t *bytes, size_t offset, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                uint64_t word = word_at(key, (offset + i) / 8);

                if (bytes[i] != ((const uint8_t *)&word)[(offset + i) % 8])
                        return i;
        }
        return n;
}

size_t pattern_check(uint64_t key, const void *bytes, size_t offset, size_t n)
{
        const uint8_t *at = bytes;
        size_t head = head_bytes(offset, n), words = (n - head) / 8, first = (offset + head) / 8;
        uint64_t differ = 0;

        for (size_t i = has_vectors() ? check_vectors(key, at + head, first, words, &differ) : 0; i < words;
             i++) {
                uint64_t word;

                memcpy(&word, at + head + 8 * i, 8);
                differ |= word ^ word_at(key, first + i);
        }
        size_t tail = head + words * 8;
        if (likely(differ == 0) && first_wrong(key, at, offset, head) == head &&
            first_wrong(key, at + tail, offset + tail, n - tail) == n - tail)
                return n;
        return first_wrong(key, at, offset, n);
}
