/* The numbers of triggers as boards count them: where a frame carries its counter, and how a counter that
 * starts over becomes a 64-bit number. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The counter must begin in this part of a frame, because a byte stream delivers this part in one piece. */
#define NUMBER_OFFSET_MAX_BYTES 65535u
/* "65535.7:64:be mod 18446744073709551615" */
#define NUMBER_FIELD_TEXT_MAX 48

/* A counter in a frame. */
struct number_field {
        uint32_t offset_bytes; /* at most NUMBER_OFFSET_MAX_BYTES */
        unsigned bits;         /* 1 to 64; 0: frames contain no number */
        bool big_endian;
        /* The bit of the byte, 0 to 7, at which the field begins. It counts from the least significant bit
         * or, if big_endian, from the most significant bit, in the order in which the bytes are sent. */
        uint8_t bit;
        uint64_t modulus; /* the period of the counter, at most 2^32; 0: all values of its bits */
};

/* Number of bytes up to the end of the counter. */
static inline size_t number_field_end(const struct number_field *f)
{
        return f->offset_bytes + (f->bit + f->bits + 7) / 8;
}

/* Triggers have 32-bit numbers, so higher bits of a counter cannot be compared. */
#define NUMBER_PERIOD_MAX (UINT64_C(1) << 32)

/* Period of a counter with this many bits, at most NUMBER_PERIOD_MAX; 0 if `bits` is 0. */
static inline uint64_t number_period(unsigned bits)
{
        return bits == 0 ? 0 : UINT64_C(1) << (bits < 32 ? bits : 32);
}

/* Period of a field's counter; its modulus is at most NUMBER_PERIOD_MAX too. */
static inline uint64_t number_field_period(const struct number_field *f)
{
        return f->modulus > 0 ? f->modulus : number_period(f->bits);
}

/* Parses "OFFSET[.BIT]:BITS[:be]". Returns the text that follows; NULL: this is not a field. */
const char *number_field_parse(struct number_field *ret, const char *text);
/* Formats the same text, with " mod N" if the field has a modulus; returns `text`. */
char *number_field_format(const struct number_field *f, char text[static NUMBER_FIELD_TEXT_MAX]);

/* With fewer values, a counter starts over so often that its frames are matched by their order: the triggers
 * may be ahead of the frames by more than half of its values. */
#define NUMBER_NARROW (UINT64_C(1) << 15)

/* Reads the counter from the first `n` bytes of a frame. False: the bytes end before the counter does. */
bool number_read(const struct number_field *f, const uint8_t *bytes, size_t n, uint64_t *ret);
/* Writes the counter of this number, modulo the period of the field, into a frame that has all of the field's
 * bytes. Other bits stay. */
void number_write(const struct number_field *f, uint64_t number, uint8_t *frame);

/* Returns the number nearest to `near` that equals `counter` modulo `period` (0: 2^64). Of two equally near
 * numbers, returns the lower one. Never negative. */
uint64_t number_nearest(uint64_t counter, uint64_t period, uint64_t near);
/* The same for a counter of `bits` (1 to 64). */
uint64_t number_extend(uint64_t counter, unsigned bits, uint64_t near);
