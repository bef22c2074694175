/* The numbers of triggers as boards count them: where a frame carries its counter, and how a counter of few
 * bits becomes a number of 64. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The counter must begin in this first part of a frame, which a byte stream delivers in one piece. */
#define NUMBER_OFFSET_MAX_BYTES 65535u

/* A counter in a frame's payload. */
struct number_field {
        uint32_t offset_bytes; /* at most NUMBER_OFFSET_MAX_BYTES */
        unsigned bits;         /* 16, 24, 32 or 64; 0: frames carry no number */
        bool big_endian;
};

/* Number of bytes of payload up to the end of the counter. */
static inline size_t number_field_end(const struct number_field *f)
{
        return f->offset_bytes + f->bits / 8;
}

/* Reads the counter from the first `n` bytes of a frame's payload. False: they end before it. */
bool number_read(const struct number_field *f, const uint8_t *payload, size_t n, uint64_t *ret);

/* The number nearest to `near` whose low `bits` (1 to 64) are those of `counter`. If two are as near, the
 * lower one. Never one below 0. */
uint64_t number_extend(uint64_t counter, unsigned bits, uint64_t near);
