/* The datagrams between a trigger from outside and the DFM: every byte of a good one, and bad ones. */
#include "../test.h"

#include "base/random.h"
#include "protocol/trigger_packet.h"

/* Two triggers, as docs/protocol.md describes them. */
static const uint8_t sample[64] = {
        'E',  'V',  'B',  'T',  1,    0,    2,    0,    0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24,
        0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
        0x51, 0x52, 0x53, 0x54, 5,    0,    0,    0,    0x61, 0,    0,    0,    0,    0,    0,    0x68,
        0,    0,    0,    0,    0,    0,    0,    0,    0xff, 0xff, 0xff, 0xff, 0,    0,    0,    0,
};

TEST(every_byte_has_its_place)
{
        struct trigger_packet p;
        struct trigger_entry e;

        assert_int_equal(trigger_packet_decode(&p, sample, sizeof sample), TRIGGER_PACKET_OK);
        assert_fields(&p, n, 2, sequence, 0x14131211, run, 0x24232221);
        e = trigger_packet_entry(&p, 0);
        assert_true(e.number == UINT64_C(0x3837363534333231) && e.time_ns == UINT64_C(0x4847464544434241));
        assert_true(e.type == 0x54535251 && e.flags == (TRIGGER_SPILL_BEGINS | TRIGGER_RESET));
        e = trigger_packet_entry(&p, 1);
        assert_true(e.number == UINT64_C(0x6800000000000061) && e.time_ns == 0);
        assert_true(e.type == UINT32_MAX && e.flags == 0);
}

TEST(a_datagram_without_entries_carries_its_sequence)
{
        uint8_t bytes[16];
        struct trigger_packet p;

        memcpy(bytes, sample, sizeof bytes);
        bytes[6] = 0;
        assert_int_equal(trigger_packet_decode(&p, bytes, sizeof bytes), TRIGGER_PACKET_OK);
        assert_fields(&p, n, 0, sequence, 0x14131211);
}

TEST(any_other_length_is_refused)
{
        uint8_t bytes[sizeof sample + 1] = {0};
        struct trigger_packet p;

        memcpy(bytes, sample, sizeof sample);
        for (size_t n = 0; n <= sizeof bytes; n++)
                assert_int_equal(trigger_packet_decode(&p, bytes, n), n == sizeof sample ? TRIGGER_PACKET_OK
                                                                      : n < 4 ? TRIGGER_PACKET_FOREIGN
                                                                              : TRIGGER_PACKET_MALFORMED);
}

static void decode_changed(size_t at, uint8_t value, enum trigger_verdict expected)
{
        uint8_t bytes[sizeof sample];
        struct trigger_packet p;

        memcpy(bytes, sample, sizeof bytes);
        bytes[at] = value;
        assert_int_equal(trigger_packet_decode(&p, bytes, sizeof bytes), expected);
}

TEST(wrong_values_are_refused)
{
        decode_changed(0, 'e', TRIGGER_PACKET_FOREIGN);
        decode_changed(3, 'B', TRIGGER_PACKET_FOREIGN);
        decode_changed(4, 2, TRIGGER_PACKET_FOREIGN);
        decode_changed(5, 1, TRIGGER_PACKET_FOREIGN); /* big-endian */
        decode_changed(6, 1, TRIGGER_PACKET_MALFORMED);
        decode_changed(7, 0xff, TRIGGER_PACKET_MALFORMED);
        decode_changed(36, 16, TRIGGER_PACKET_MALFORMED);
        decode_changed(63, 1, TRIGGER_PACKET_MALFORMED);
        decode_changed(60, TRIGGER_FLAGS, TRIGGER_PACKET_OK);
}

static void explain_changed(size_t at, uint8_t value, size_t n, const char *expected)
{
        uint8_t bytes[sizeof sample];
        char text[160];

        memcpy(bytes, sample, sizeof bytes);
        bytes[at] = value;
        trigger_packet_explain(bytes, n, text, sizeof text);
        assert_string_equal(text, expected);
}

TEST(a_refusal_is_explained)
{
        explain_changed(0, 'E', 15, "it has 15 bytes, expected at least the header's 16");
        explain_changed(0, 'E', 0, "it has 0 bytes, expected at least the header's 16");
        explain_changed(3, 'B', 64, "it begins with the bytes 45 56 42 42, expected \"EVBT\"");
        explain_changed(5, 1, 64, "its version is 257, expected 1 (16 bits, little-endian)");
        explain_changed(6, 1, 64,
                        "it has 64 bytes, expected 40 for a number of entries of 1 (16 bits, little-endian)");
        explain_changed(0, 'E', 63,
                        "it has 63 bytes, expected 64 for a number of entries of 2 (16 bits, little-endian)");
        explain_changed(36, 16, 64, "an entry has unknown flags, expected a sum of 1, 2, 4 and 8");
}

/* Whatever arrives, nothing beyond its bytes is read: sanitizers watch. */
TEST(hostile_bytes_do_no_harm)
{
        struct trigger_packet p;
        char text[160];
        struct random r;

        random_init(&r, 11);
        for (int k = 0; k < 200000; k++) {
                size_t n = random_below(&r, 80);
                uint8_t *bytes = malloc(n + 1);

                for (size_t i = 0; i < n; i++)
                        bytes[i] =
                                (uint8_t)(i < sizeof sample && random_below(&r, 8) ? sample[i]
                                                                                   : random_below(&r, 256));
                bytes = realloc(bytes, n > 0 ? n : 1);
                if (trigger_packet_decode(&p, bytes, n) == TRIGGER_PACKET_OK) {
                        assert_true(n == TRIGGER_PACKET_HEADER_BYTES + (size_t)p.n * TRIGGER_ENTRY_BYTES);
                        for (unsigned i = 0; i < p.n; i++)
                                assert_true(trigger_packet_entry(&p, i).flags <= TRIGGER_FLAGS);
                }
                trigger_packet_explain(bytes, n, text, sizeof text);
                free(bytes);
        }
}

TEST(the_busy_datagram_has_16_bytes)
{
        static const uint8_t expected[BUSY_PACKET_BYTES] = {'E', 'V', 'B', 'B', 1,    3,    0,    0,
                                                            1,   2,   3,   4,   0x55, 0x66, 0x77, 0x88};
        struct busy_packet p = {.busy = true, .reason = BUSY_OUTPUT, .last = UINT64_C(0x8877665504030201)};
        uint8_t bytes[BUSY_PACKET_BYTES];

        busy_packet_encode(&p, bytes);
        assert_memory_equal(bytes, expected, sizeof bytes);
        p = (struct busy_packet){.last = BUSY_NONE};
        busy_packet_encode(&p, bytes);
        assert_int_equal(bytes[4], 0);
        assert_int_equal(bytes[5], BUSY_NOT);
        assert_int_equal(bytes[15], 0xff);
}
