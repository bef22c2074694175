/* VDIF headers against the words of a real recording (the VLBA, EDV 3), and what is no header. */
#include "../test.h"

#include "format/vdif.h"

/* The second frame of thread 3 in sample.vdif of the Python package baseband. */
static const uint32_t vlba[8] = {14363767,  28u << 24 | 1, 1u << 29 | 629, 1u << 26 | 3u << 16 | 65532,
                                 0x3800010, 0xacabfeed,    0x43400000,     0xf2031583};

TEST(it_reads_a_recording)
{
        uint8_t bytes[sizeof vlba];
        struct vdif_header h;

        memcpy(bytes, vlba, sizeof bytes);
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_false(h.invalid);
        assert_false(h.legacy);
        assert_fields(&h, seconds, 14363767, epoch, 28, frame, 1, frame_bytes, 5032, header_bytes, 32,
                      channels, 1);
        assert_fields(&h, bits_per_sample, 2, thread, 3, station, 65532, extended_version, 3);
        assert_int_equal(vdif_unix_s(&h), 1402898167); /* 16 June 2014, 5:56:07 */
        h.epoch = 31;
        h.seconds = 86401;
        assert_int_equal(vdif_unix_s(&h), 1435795201); /* 2 July 2015, 0:00:01 */
        /* 16 MHz of bandwidth, real samples; 20000 samples in a frame. */
        assert_int_equal(h.samples_per_second, 32000000);
        assert_int_equal(vdif_frames_per_second(&h), 1600);
        /* EDV 1 has the rate in the same place, EDV 2 does not. */
        bytes[19] = 1;
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_int_equal(vdif_frames_per_second(&h), 1600);
        bytes[19] = 2;
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_int_equal(vdif_frames_per_second(&h), 0);
}

/* The header of a frame in sample.m5b of baseband, with another number. */
TEST(a_mark5b_header_becomes_a_vdif_header)
{
        static const uint32_t words[8] = {0xabaddeed, 0xbead0000 | 1 << 15 | 6399, 0x82119801, 0x0000f5a5};
        uint8_t bytes[sizeof words];
        struct vdif_header h;

        memcpy(bytes, words, sizeof bytes);
        assert_true(mark5b_is_header(bytes));
        mark5b_to_vdif(bytes);
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_fields(&h, seconds, 821 * 86400 + 19801, frame, 6399, frame_bytes, MARK5B_FRAME_BYTES, thread,
                      0);
        assert_false(h.invalid);
        assert_int_equal(vdif_frames_per_second(&h), 0);
        /* It is no longer one. */
        assert_false(mark5b_is_header(bytes));
        mark5b_to_vdif(bytes);
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), -EBADMSG);
}

TEST(it_changes_the_time_and_nothing_else)
{
        uint8_t bytes[sizeof vlba], before[sizeof vlba];
        struct vdif_header h;

        memcpy(bytes, vlba, sizeof bytes);
        memcpy(before, vlba, sizeof before);
        vdif_set_time(bytes, 14363768, 1599);
        vdif_set_invalid(bytes, true);
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_true(h.invalid);
        assert_fields(&h, seconds, 14363768, frame, 1599, epoch, 28);
        vdif_set_time(bytes, 14363767, 1);
        vdif_set_invalid(bytes, false);
        assert_memory_equal(bytes, before, sizeof bytes);
}

TEST(a_filler_is_invalid_and_has_neither_time_nor_thread)
{
        uint32_t words[8] = {1u << 31, 28u << 24, 629, 1u << 26 | 65532};
        uint8_t bytes[sizeof words];
        struct vdif_header h;

        memcpy(bytes, words, sizeof bytes);
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_true(vdif_is_filler(&h));
        vdif_set_time(bytes, 0, 1);
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_false(vdif_is_filler(&h));
        vdif_set_time(bytes, 0, 0);
        vdif_set_invalid(bytes, false);
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_false(vdif_is_filler(&h));
}

TEST(a_legacy_header_has_half_the_size)
{
        uint8_t bytes[16];
        struct vdif_header h;
        uint32_t words[4] = {1u << 30 | 7, 2, 3, 1u << 31};

        memcpy(bytes, words, sizeof bytes);
        assert_int_equal(vdif_read(&h, bytes, sizeof bytes), 0);
        assert_true(h.legacy);
        assert_true(h.complex);
        assert_fields(&h, header_bytes, 16, frame_bytes, 24);
        assert_int_equal(vdif_frames_per_second(&h), 0);
}

TEST(what_is_no_header_is_refused)
{
        uint8_t bytes[sizeof vlba];
        uint32_t words[8];
        struct vdif_header h;

        memcpy(bytes, vlba, sizeof bytes);
        for (size_t n = 0; n < sizeof bytes; n++)
                assert_true(vdif_read(&h, bytes, n) < 0);
        /* A frame that is its header alone, and one of no length. */
        memcpy(words, vlba, sizeof words);
        for (uint32_t length = 0; length <= 4; length++) {
                words[2] = length;
                memcpy(bytes, words, sizeof bytes);
                assert_true(vdif_read(&h, bytes, sizeof bytes) < 0);
        }
}

TEST(a_rate_that_gives_no_whole_frames_is_unknown)
{
        struct vdif_header h = {.frame_bytes = 5032,
                                .header_bytes = 32,
                                .channels = 1,
                                .bits_per_sample = 2,
                                .samples_per_second = 32000001};

        assert_int_equal(vdif_frames_per_second(&h), 0);
        h.samples_per_second = 0;
        assert_int_equal(vdif_frames_per_second(&h), 0);
        /* More bits in a sample than in the frame. */
        h = (struct vdif_header){.frame_bytes = 40,
                                 .header_bytes = 32,
                                 .channels = 1u << 31,
                                 .bits_per_sample = 32,
                                 .samples_per_second = 1};
        assert_int_equal(vdif_frames_per_second(&h), 0);
}
