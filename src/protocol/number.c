/* Reads the counters of frames and extends them. */
#include "protocol/number.h"

bool number_read(const struct number_field *f, const uint8_t *payload, size_t n, uint64_t *ret)
{
        unsigned bytes = f->bits / 8;
        uint64_t v = 0;

        if (n < number_field_end(f))
                return false;
        for (unsigned i = 0; i < bytes; i++)
                v = v << 8 | payload[f->offset_bytes + (f->big_endian ? i : bytes - 1 - i)];
        *ret = v;
        return true;
}

uint64_t number_extend(uint64_t counter, unsigned bits, uint64_t near)
{
        uint64_t mask = bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1, half = mask / 2 + 1;
        uint64_t ahead = (counter - near) & mask, behind = mask - ahead + 1;

        if (bits >= 64)
                return counter;
        return ahead < half || behind > near ? near + ahead : near - behind;
}
