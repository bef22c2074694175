/* The headers of data packets, byte by byte, and datagrams that belong to no stream or are cut. */
#include "../test.h"

#include "stream/rules/setup.h"
#include "vdif_sample.h"

static const struct packet_rule plain = {STREAM_PLAIN, 8, 0x1122334455667788}, vdif = {STREAM_VDIF, 40, 0};

TEST(the_bytes_are_as_documented)
{
        const uint8_t expected[16] = {0x0a, 9,    8,    7,    6,    5,    4,    3,
                                      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
        uint8_t bytes[16] = {};

        assert_int_equal(packet_header_bytes(&plain), 16);
        packet_write(&plain, bytes, 0x030405060708090a);
        assert_memory_equal(bytes, expected, 16);
        assert_int_equal(packet_header_bytes(&vdif), 8);
        memset(bytes, 0xff, sizeof bytes);
        packet_write(&vdif, bytes, 0x030405060708090a);
        assert_memory_equal(bytes, expected, 8);
        assert_int_equal(bytes[8], 0xff);
}

TEST(it_reads_what_it_writes)
{
        uint64_t sequence = 0;
        uint8_t bytes[64] = {};

        packet_write(&plain, bytes, 77);
        for (size_t payload = 1; payload <= 8; payload++) {
                assert_int_equal(packet_read(&plain, bytes, 16 + payload, &sequence), PACKET_OURS);
                assert_int_equal(sequence, 77);
        }
        packet_write(&vdif, bytes, 78);
        assert_int_equal(packet_read(&vdif, bytes, 48, &sequence), PACKET_OURS);
        assert_int_equal(sequence, 78);
}

TEST(all_else_is_short_or_foreign)
{
        uint64_t sequence = 99;
        uint8_t bytes[64] = {};

        packet_write(&plain, bytes, 77);
        for (size_t n = 0; n <= 16; n++)
                assert_int_equal(packet_read(&plain, bytes, n, &sequence), PACKET_SHORT);
        assert_int_equal(packet_read(&plain, bytes, 25, &sequence), PACKET_FOREIGN);
        bytes[15]++;
        assert_int_equal(packet_read(&plain, bytes, 24, &sequence), PACKET_FOREIGN);
        for (size_t n = 0; n < 48; n++)
                assert_int_equal(packet_read(&vdif, bytes, n, &sequence), PACKET_SHORT);
        assert_int_equal(packet_read(&vdif, bytes, 49, &sequence), PACKET_FOREIGN);
        assert_int_equal(sequence, 99);
}

TEST(frames_are_cut_into_few_equal_parts)
{
        assert_int_equal(packet_cut(5032, 5032), 1);
        assert_int_equal(packet_cut(5032, 5031), 2);
        /* As jive5ab cuts them for an MTU of 1500. */
        assert_int_equal(packet_cut(5032, 1464), 4);
        assert_int_equal(packet_cut(8032, 1464), 8);
        assert_int_equal(packet_cut(10016, 1464), 8);
        /* A header and a limit. */
        assert_int_equal(packet_cut(64, 32), 2);
        assert_int_equal(packet_cut(64, 31), 0);
        assert_int_equal(packet_cut(64 * 512, 512), 64);
        assert_int_equal(packet_cut(65 * 512, 512), 0);
        assert_int_equal(packet_cut(8 * 1471, 1464), 0);
        assert_int_equal(packet_cut(5032, 0), 0);
        assert_int_equal(packet_parts(&vdif), 1);
}

TEST(no_link_carries_more)
{
        /* 52 bytes with the headers of IPv4 and UDP. */
        const uint64_t ns = 60 * UINT64_C(1000000000);

        assert_int_equal(packet_most(&plain, 0), 0);
        assert_int_equal(packet_most(&plain, 1), 0);
        assert_int_equal(packet_most(&plain, 2), 1);
        assert_int_equal(packet_most(&plain, 52), 50);
        assert_int_equal(packet_most(&plain, ns), ns * 50 / 52);
        assert_int_equal(packet_most(&vdif, 76), 50);
        /* Nor does it overflow. */
        assert_true(packet_most(&plain, UINT64_MAX) > UINT64_MAX / 52 * 49);
}

/* The first bytes of a datagram: a sequence number if `numbered`, and the header of a frame of this size. */
static void begin_datagram(uint8_t bytes[static SETUP_PACKET_BYTES], bool numbered, uint32_t frame_bytes)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        memset(bytes, 0, SETUP_PACKET_BYTES);
        sample_frame(frame, 100, 7, 3, 0);
        frame[8] = (uint8_t)(frame_bytes / 8);
        frame[9] = (uint8_t)(frame_bytes / 8 >> 8);
        if (numbered)
                packet_write(&vdif, bytes, 0xffffffff00000001);
        memcpy(bytes + (numbered ? 8 : 0), frame, 32);
}

TEST(a_datagram_shows_how_another_program_sends)
{
        static struct stream_offer o;
        uint8_t bytes[SETUP_PACKET_BYTES];
        uint64_t sequence = 0;

        begin_datagram(bytes, true, 5032);
        assert_true(setup_of_packet(&o, STREAM_VDIF, bytes, 5040));
        assert_false(o.rule.unnumbered);
        assert_int_equal(o.rule.payload_bytes, 5032);
        assert_int_equal(packet_parts(&o.rule), 1);
        assert_int_equal(o.plan.threads[0].thread, 3);
        assert_int_equal(packet_read(&o.rule, bytes, 5040, &sequence), PACKET_OURS);
        assert_int_equal(sequence, 0);
        packet_write(&vdif, bytes, 3); /* after the wrap of 64 bits */
        assert_int_equal(packet_read(&o.rule, bytes, 5040, &sequence), PACKET_OURS);
        assert_int_equal(sequence, UINT64_C(0x100000002));
        begin_datagram(bytes, true, 5032);
        assert_true(setup_of_packet(&o, STREAM_VDIF, bytes, 8 + 1258));
        assert_int_equal(packet_parts(&o.rule), 4);
        assert_int_equal(o.rule.payload_bytes, 1258);
        begin_datagram(bytes, false, 5032);
        assert_true(setup_of_packet(&o, STREAM_VDIF, bytes, 5032));
        assert_true(o.rule.unnumbered);
        assert_int_equal(packet_read(&o.rule, bytes, 5032, &sequence), PACKET_OURS);
        assert_int_equal(packet_read(&o.rule, bytes, 5031, &sequence), PACKET_SHORT);
        assert_int_equal(packet_read(&o.rule, bytes, 5033, &sequence), PACKET_FOREIGN);
        assert_true(setup_of_packet(&o, STREAM_PLAIN, bytes, 1));
        assert_int_equal(packet_read(&o.rule, bytes, 9000, &sequence), PACKET_OURS);
        assert_int_equal(packet_read(&o.rule, bytes, 9001, &sequence), PACKET_FOREIGN);
        assert_int_equal(packet_read(&o.rule, bytes, 0, &sequence), PACKET_SHORT);
}

TEST(other_datagrams_show_nothing)
{
        static struct stream_offer o;
        uint8_t bytes[SETUP_PACKET_BYTES];

        for (size_t n = 0; n < 6000; n++) {
                bool parts = n > 40 && 5032 % (n - 8) == 0 && 5032 / (n - 8) <= PACKET_PARTS_MAX;

                begin_datagram(bytes, true, 5032);
                assert_int_equal(setup_of_packet(&o, STREAM_VDIF, bytes, n), parts);
                begin_datagram(bytes, false, 5032);
                assert_int_equal(setup_of_packet(&o, STREAM_VDIF, bytes, n), n == 5032);
        }
        memset(bytes, 0, sizeof bytes);
        assert_false(setup_of_packet(&o, STREAM_VDIF, bytes, 5032));
        assert_false(setup_of_packet(&o, STREAM_PLAIN, bytes, 0));
}
