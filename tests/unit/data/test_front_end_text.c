/* The words for frames that cannot be used: they name what was read, what was expected, and the mistake. */
#include "data/front_end_internal.h"

#include "../test.h"

static const struct {
        uint32_t length;
        size_t bytes;
        const char *expected;
} cases[] = {
        {5, 7, "its first 4 bytes give a length of 5, but 3 bytes follow"},
        {44, 44,
         "its first 4 bytes give a length of 44, but 40 bytes follow; the length must not count its own 4 "
         "bytes"},
        {40u << 24, 44,
         "its first 4 bytes give a length of 671088640, but 40 bytes follow; the length must be "
         "little-endian"},
        {0, 3, "it has 3 bytes, too few for a length"},
        {0, 0, "it has 0 bytes, too few for a length"},
};

TEST_EACH(lengths, i, sizeof cases / sizeof *cases)
{
        char text[160];

        front_end_explain_length(cases[i].length, cases[i].bytes, text, sizeof text);
        assert_string_equal(text, cases[i].expected);
}

TEST(starts)
{
        struct frame_rule standard, caen;
        char text[256];

        assert_null(frame_rule_parse(&standard, FRAME_STANDARD));
        assert_null(frame_rule_parse(&caen, "length 0.0:28 unit 4"));
        front_end_explain_start(&caen, (const uint8_t *)"\0\0\0\xa0\xee\x12", 6, text, sizeof text);
        assert_string_equal(text, "a frame begins with the bytes 00 00 00 a0 ee 12: the length of the frame, "
                                  "by frame = length 0:28 unit 4, is impossible or above 4194304");
        front_end_explain_datagram(&caen, (const uint8_t *)"\1\0\0\xa0\xee\x12", 6, 4, text, sizeof text);
        assert_string_equal(
                text,
                "of its 6 bytes, those from byte 4 on ( ee 12 ) are no frame by frame = length 0:28 unit 4");
        front_end_explain_foreign(&caen, (const uint8_t *)"\1\2", 2, text, sizeof text);
        assert_string_equal(text, "the bytes 01 02 are part of no frame by frame = length 0:28 unit 4");
        front_end_explain_start(&standard, (const uint8_t *)"\0\0\0\x80\xee\x12", 6, text, sizeof text);
        assert_string_equal(
                text,
                "a frame begins with the bytes 00 00 00 80 ee 12: the first 4 give a length of 2147483648, "
                "expected 32 bits, little-endian, and at most 4194304; in the other byte order it is 128");
        front_end_explain_start(&standard, (const uint8_t *)"POST / HTTP/1.1\r\n", 17, text, sizeof text);
        assert_string_equal(
                text,
                "a frame begins with the bytes 50 4f 53 54 20 2f 20 48 54 54 50 2f 31 2e 31 0d: the first 4 "
                "give a length of 1414745936, expected 32 bits, little-endian, and at most 4194304");
}

static void check_number(struct number_field field, uint64_t counter, uint64_t expected, const char *text)
{
        char got[256];

        front_end_explain_number(&field, &(struct ros_sample){true, counter, 40}, &expected, got, sizeof got);
        assert_string_equal(got, text);
}

TEST(numbers)
{
        uint64_t expected = 17;
        char text[256];

        check_number((struct number_field){0, 32, false}, 0x10000000, 17,
                     "the last one is 268435456, expected about 17; in the other byte order it is 16, so "
                     "event-number should be 0:32:be instead of 0:32");
        check_number((struct number_field){4, 16, true}, 0xff01, 0x201,
                     "the last one is 65281, expected about 513; in the other byte order it is 511, so "
                     "event-number should be 4:16 instead of 4:16:be");
        /* A counter that has just started over. */
        check_number((struct number_field){4, 24, false}, 0x010000, 0xfffff0,
                     "the last one is 65536, expected about 16777200; in the other byte order it is 1, so "
                     "event-number should be 4:24:be instead of 4:24");
        /* Equal in both orders, so the order is not the mistake. */
        check_number((struct number_field){6, 16, true}, 0, 16,
                     "the last one is 0, expected about 16; its frames come late, the board has restarted, "
                     "or its number is not at event-number = 6:16:be");
        check_number((struct number_field){0, 64, false}, UINT64_C(5) << 56, 9,
                     "the last one is 360287970189639680, expected about 9; in the other byte order it is 5, "
                     "so event-number should be 0:64:be instead of 0:64");
        check_number((struct number_field){0, 32, false}, 15, 700,
                     "the last one is 15, expected about 700; its frames come late, the board has restarted, "
                     "or its number is not at event-number = 0:32");
        front_end_explain_number(&(struct number_field){8, 32, true}, &(struct ros_sample){.bytes = 0},
                                 &expected, text, sizeof text);
        assert_string_equal(text, "the last one has 0 bytes, too few for event-number = 8:32:be");
}

TEST(times)
{
        struct number_field field = {8, 64, false};
        char text[256];

        front_end_explain_number(&field, &(struct ros_sample){true, 1234, 40}, NULL, text, sizeof text);
        assert_string_equal(text, "the last time is 1234; its frames come late, the clock of the board has "
                                  "jumped, or its time is not at event-time = 8:64");
        field.big_endian = true;
        front_end_explain_number(&field, &(struct ros_sample){.bytes = 15}, NULL, text, sizeof text);
        assert_string_equal(text, "the last one has 15 bytes, too few for event-time = 8:64:be");
}

TEST(losses)
{
        assert_string_equal(front_end_explain_loss(0), "no answer");
        assert_string_equal(front_end_explain_loss(-EPIPE), "the board closed it");
        assert_string_equal(front_end_explain_loss(-ECONNREFUSED), "Connection refused");
}
