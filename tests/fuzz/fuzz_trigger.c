/* Datagrams of a trigger box, and the numbers in frames of detector boards. */
#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "protocol/number.h"
#include "protocol/trigger_packet.h"
#include "fuzz.h"

static bool check_packet(const uint8_t *bytes, size_t n)
{
        struct trigger_packet p;
        char text[64];

        if (trigger_packet_decode(&p, bytes, n) != TRIGGER_PACKET_OK) {
                memset(text, 'x', sizeof text);
                trigger_packet_explain(bytes, n, text, sizeof text);
                assert(text[0] && strnlen(text, sizeof text) < sizeof text);
                return false;
        }
        assert(p.n <= TRIGGER_ENTRIES_MAX &&
               n == TRIGGER_PACKET_HEADER_BYTES + (size_t)p.n * TRIGGER_ENTRY_BYTES);
        for (unsigned k = 0; k < p.n; k++) {
                struct trigger_entry e = trigger_packet_entry(&p, k);

                assert((e.flags & ~TRIGGER_FLAGS) == 0);
        }
        return true;
}

/* The counter is that of the frame, and no number with it is nearer. */
static void check_extended(uint64_t counter, unsigned bits, uint64_t near)
{
        uint64_t mask = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX,
                 number = number_extend(counter, bits, near),
                 distance = number > near ? number - near : near - number;

        assert((number & mask) == (counter & mask));
        assert(number <= mask || distance <= mask / 2 + 1);
}

static void check_number(const uint8_t *bytes, size_t n)
{
        static const unsigned widths[] = {16, 24, 32, 64};
        struct number_field f;
        uint64_t counter, near = 0;

        if (n < 4)
                return;
        f = (struct number_field){.offset_bytes = (uint32_t)bytes[0] << 8 | bytes[1],
                                  .bits = widths[bytes[2] % ARRAY_SIZE(widths)],
                                  .big_endian = bytes[2] & 4};
        memcpy(&near, bytes, MIN(n, sizeof near));
        if (bytes[3] & 1)
                f.offset_bytes %= 64;
        if (number_read(&f, bytes, n, &counter)) {
                assert(number_field_end(&f) <= n);
                check_extended(counter, f.bits, near);
                check_extended(near, 1 + bytes[0] % 64, counter);
        } else
                assert(number_field_end(&f) > n);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        check_number(bytes, size_bytes);
        return check_packet(bytes, size_bytes);
}
