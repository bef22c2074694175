/* Reads the counters of frames and extends them. */
#include "protocol/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_digits(const char **text, unsigned long most, unsigned long *ret)
{
        char *end;

        if (**text < '0' || **text > '9')
                return false;
        *ret = strtoul(*text, &end, 10);
        *text = end;
        return *ret <= most;
}

const char *number_field_parse(struct number_field *ret, const char *text)
{
        unsigned long offset, bit = 0, bits;

        if (!parse_digits(&text, NUMBER_OFFSET_MAX_BYTES, &offset) ||
            (*text == '.' && (text++, !parse_digits(&text, 63, &bit))) || *text++ != ':' ||
            !parse_digits(&text, 64, &bits) || bits == 0 || offset + bit / 8 > NUMBER_OFFSET_MAX_BYTES)
                return NULL;
        *ret = (struct number_field){
                .offset_bytes = (uint32_t)(offset + bit / 8),
                .bits = (unsigned)bits,
                .bit = bit % 8,
                .big_endian = strncmp(text, ":be", 3) == 0,
        };
        return text + 3 * ret->big_endian;
}

char *number_field_format(const struct number_field *f, char text[static NUMBER_FIELD_TEXT_MAX])
{
        char bit[4] = "", modulus[32] = "";

        if (f->bit > 0)
                snprintf(bit, sizeof bit, ".%u", f->bit % 8u);
        if (f->modulus > 0)
                snprintf(modulus, sizeof modulus, " mod %" PRIu64, f->modulus);
        snprintf(text, NUMBER_FIELD_TEXT_MAX, "%u%s:%u%s%s", f->offset_bytes, bit, f->bits % 100,
                 f->big_endian ? ":be" : "", modulus);
        return text;
}

/* Position of byte i of the field, from the least significant one. */
static size_t byte_at(const struct number_field *f, size_t i)
{
        return f->big_endian ? number_field_end(f) - 1 - i : f->offset_bytes + i;
}

/* Number of bits of its last byte, or with big-endian of its first one, below the field. */
static unsigned shift_of(const struct number_field *f)
{
        size_t bytes = number_field_end(f) - f->offset_bytes;

        return f->big_endian ? (unsigned)(8 * bytes) - f->bit - f->bits : f->bit;
}

static uint64_t mask_of(const struct number_field *f)
{
        return f->bits < 64 ? (UINT64_C(1) << f->bits) - 1 : UINT64_MAX;
}

bool number_read(const struct number_field *f, const uint8_t *frame, size_t n, uint64_t *ret)
{
        size_t end = number_field_end(f);
        unsigned __int128 v = 0;

        if (n < end)
                return false;
        for (size_t i = end - f->offset_bytes; i-- > 0;)
                v = v << 8 | frame[byte_at(f, i)];
        *ret = (uint64_t)(v >> shift_of(f)) & mask_of(f);
        return true;
}

void number_write(const struct number_field *f, uint64_t number, uint8_t *frame)
{
        uint64_t value = (f->modulus > 0 ? number % f->modulus : number) & mask_of(f);
        unsigned __int128 bits = (unsigned __int128)value << shift_of(f), mask = (unsigned __int128)mask_of(f)
                                                                                 << shift_of(f);

        for (size_t i = 0; i < number_field_end(f) - f->offset_bytes; i++) {
                uint8_t *byte = &frame[byte_at(f, i)];

                *byte = (uint8_t)((*byte & ~(uint8_t)(mask >> 8 * i)) | (uint8_t)(bits >> 8 * i));
        }
}

uint64_t number_nearest(uint64_t counter, uint64_t period, uint64_t near)
{
        uint64_t ahead, behind;

        if (period == 0)
                return counter;
        ahead = (counter % period + period - near % period) % period;
        behind = period - ahead;
        return ahead < behind || behind > near ? near + ahead : near - behind;
}

uint64_t number_extend(uint64_t counter, unsigned bits, uint64_t near)
{
        return number_nearest(counter, bits >= 64 ? 0 : UINT64_C(1) << bits, near);
}
