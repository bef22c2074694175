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

bool number_read(const struct number_field *f, const uint8_t *frame, size_t n, uint64_t *ret)
{
        size_t end = number_field_end(f), bytes = end - f->offset_bytes;
        unsigned shift = f->big_endian ? (unsigned)(8 * bytes) - f->bit - f->bits : f->bit;
        unsigned __int128 v = 0;

        if (n < end)
                return false;
        for (size_t i = 0; i < bytes; i++)
                v = v << 8 | frame[f->offset_bytes + (f->big_endian ? i : bytes - 1 - i)];
        v >>= shift;
        *ret = (uint64_t)v & (f->bits < 64 ? (UINT64_C(1) << f->bits) - 1 : UINT64_MAX);
        return true;
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
