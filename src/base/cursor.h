/* A bounds-checked cursor over little-endian bytes, to read and write messages. An access beyond the end sets
 * `failed`, reads 0 and writes nothing; check `failed` once, at the end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <endian.h>

#include "base/util.h"

struct reader {
        const uint8_t *at, *end;
        bool failed;
};

struct writer {
        uint8_t *at, *end;
        bool failed;
};

static inline struct reader reader_init(const void *bytes, size_t size_bytes)
{
        return (struct reader){.at = bytes, .end = (const uint8_t *)bytes + size_bytes};
}

static inline struct writer writer_init(void *bytes, size_t size_bytes)
{
        return (struct writer){.at = bytes, .end = (uint8_t *)bytes + size_bytes};
}

static inline size_t reader_left(const struct reader *r)
{
        return (size_t)(r->end - r->at);
}

static inline size_t writer_left(const struct writer *w)
{
        return (size_t)(w->end - w->at);
}

/* Returns the next `size_bytes` bytes in place; NULL if fewer are left. */
static inline const void *reader_consume(struct reader *r, size_t size_bytes)
{
        const uint8_t *here = r->at;

        if (r->failed || size_bytes > reader_left(r)) {
                r->failed = true;
                return NULL;
        }
        r->at += size_bytes;
        return here;
}

static inline void *writer_reserve(struct writer *w, size_t size_bytes)
{
        uint8_t *here = w->at;

        if (w->failed || size_bytes > writer_left(w)) {
                w->failed = true;
                return NULL;
        }
        w->at += size_bytes;
        return here;
}

#define CURSOR_ACCESS(bits)                                                                                  \
        static inline uint##bits##_t reader_u##bits(struct reader *r)                                        \
        {                                                                                                    \
                const void *p = reader_consume(r, bits / 8);                                                 \
                uint##bits##_t v = 0;                                                                        \
                                                                                                             \
                if (p)                                                                                       \
                        memcpy(&v, p, sizeof v);                                                             \
                return le##bits##toh(v);                                                                     \
        }                                                                                                    \
        static inline void writer_u##bits(struct writer *w, uint##bits##_t v)                                \
        {                                                                                                    \
                void *p = writer_reserve(w, bits / 8);                                                       \
                                                                                                             \
                v = htole##bits(v);                                                                          \
                if (p)                                                                                       \
                        memcpy(p, &v, sizeof v);                                                             \
        }

CURSOR_ACCESS(16)
CURSOR_ACCESS(32)
CURSOR_ACCESS(64)
#undef CURSOR_ACCESS

static inline uint8_t reader_u8(struct reader *r)
{
        const uint8_t *p = reader_consume(r, 1);

        return p ? *p : 0;
}

static inline void writer_u8(struct writer *w, uint8_t v)
{
        uint8_t *p = writer_reserve(w, 1);

        if (p)
                *p = v;
}

/* A number in groups of 7 bits, the lowest first; bit 7 of a byte is set if another group follows (LEB128,
 * DWARF 5, section 7.6). */
static inline uint64_t reader_varint(struct reader *r)
{
        const uint8_t *at = r->at;
        uint64_t v = 0;

        if (likely(!r->failed && at < r->end && *at < 0x80))
                return *r->at++;
        for (unsigned shift = 0; shift < 64 && !r->failed && at < r->end; shift += 7) {
                uint64_t byte = *at++;

                v |= (byte & 0x7f) << shift;
                if (byte >= 0x80)
                        continue;
                /* The tenth group has room for one bit. */
                if (shift == 63 && byte > 1)
                        break;
                r->at = at;
                return v;
        }
        r->failed = true;
        return 0;
}

static inline void writer_varint(struct writer *w, uint64_t v)
{
        for (; v >= 0x80; v >>= 7)
                writer_u8(w, (uint8_t)(v | 0x80));
        writer_u8(w, (uint8_t)v);
}

/* Maps a signed difference to a number that is small if its absolute value is: 0, -1, 1, -2, ... */
static inline uint64_t zigzag(int64_t v)
{
        return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0);
}

static inline int64_t unzigzag(uint64_t v)
{
        return (int64_t)(v >> 1 ^ (v & 1 ? UINT64_MAX : 0));
}
