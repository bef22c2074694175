/* Tests the encoders: reference words of a small event, the order of fragments, and each kind of missing
 * fragment. */
#include "../test.h"

#include <stdio.h>
#include <zlib.h>

#include "eformat_sample.h"
#include "format/eformat_encode.h"

static struct eformat_encoding e;
static const struct eformat_settings settings = {.sfi_source_id = 0x0079500b};
static const struct event_info info = {
        .event = 0x900000008,
        .global_id = 0x500000006,
        .l1_id = 7,
        .bc_id = 9,
        .time_s = 1,
        .time_ns = 2,
        .run = 3,
        .trigger_type = 4,
        .l2_info = 5,
        .ef_info = {0xe0, 0xe1, 0xe2, 0xe3},
        .spill = 10,
        .flags = 11,
};

static uint8_t *encode(const struct eformat *format, struct built_fragment *fragments, size_t n)
{
        struct built_event event = {.info = info, .n_fragments = n, .fragments = fragments};

        assert_int_equal(format->encode(&event, &settings, &e), 0);
        return flatten(&e);
}

static void assert_words(const uint8_t *bytes, const uint32_t *words, size_t n)
{
        assert_int_equal(e.size_bytes, 4 * n);
        for (size_t i = 0; i < n; i++)
                if (eformat_word(bytes, i) != words[i])
                        fail_msg("word %zu is %08x, not %08x", i, eformat_word(bytes, i), words[i]);
}

TEST(test_golden_v3)
{
        static const uint32_t golden[] = {
                0xAA1234AA, 18 + 9 + 35 + 16,
                18,         0x03000000,
                0x0079500b, 1,
                0,          10,
                1,          6,
                3,          7,
                4,          5,
                0xe0,       0xe1,
                0xe2,       0xe3,
                0xBB1234BB, 9 + 35,
                9,          0x03000000,
                0x0070500b, 1,
                0,          1,
                0,          0xCC1234CC,
                35,         11,
                0x03000000, 0x00700002,
                1,          0,
                3,          3,
                7,          9,
                0xDD1234DD, 24,
                8,          0x03000000,
                0x00700002, 1,
                0,          0,
                0xEE1234EE, 9,
                0x03000000, 0x00700002,
                3,          7,
                9,          4,
                0,          0x64636261,
                0x00000065, 0,
                5,          2,
                2,          1,
                0xBB1234BB, 16,
                16,         0x03000000,
                0x0079500b, 1,
                0,          8,
                0x01425645, 8,
                9,          5,
                2,          10,
                11,         0x6ce516e3,
        };
        struct built_fragment fragment = {
                .data = "abcde", .size_bytes = 5, .source_id = eformat_source_id(2), .order = 2};
        _cleanup_free_ uint8_t *bytes = encode(&eformat_3, &fragment, 1);

        assert_words(bytes, golden, ARRAY_SIZE(golden));
        assert_int_equal(e.n_iov, 3);
        assert_int_equal(eformat_word(bytes, ARRAY_SIZE(golden) - 1), adler32(1, bytes, sizeof golden - 4));
        assert_ptr_equal(e.iov[1].iov_base, fragment.data);
        assert_fields(&e, payload_bytes, 5, n_missing, 0);
}

TEST(test_golden_v5)
{
        static const uint32_t golden[] = {
                0xAA1234AA, 37 + 24,    37,   0x05000000, 0x0079500b, 1,          0,          0,
                1,          2,          6,    5,          0,          3,          0,          7,
                9,          4,          0,    24,         0,          1,          5,          12,
                0xe0,       0xe1,       0xe2, 0xe3,       0x01425645, 8,          9,          5,
                2,          10,         11,   0x2fe607b7, 0,          0xDD1234DD, 24,         8,
                0x05000000, 0x00700002, 1,    0,          0,          0xEE1234EE, 9,          0x03000000,
                0x00700002, 3,          7,    9,          4,          0,          0x64636261, 0x00000065,
                0,          5,          2,    2,          1,
        };
        struct built_fragment fragment = {
                .data = "abcde", .size_bytes = 5, .source_id = eformat_source_id(2), .order = 2};
        _cleanup_free_ uint8_t *bytes = encode(&eformat_5, &fragment, 1);

        assert_words(bytes, golden, ARRAY_SIZE(golden));
}

/* The combined checksums equal those of the written bytes. */
TEST(test_checksums_of_v5)
{
        struct eformat_settings with = settings;
        uint32_t words[256];
        size_t n = sample_ros3(words, 0x00a1500b, 0x00a10020, 7, 2, 4);
        struct built_fragment fragments[] = {
                {.data = "abcde", .size_bytes = 5, .source_id = eformat_source_id(0), .order = 0},
                {.data = words,
                 .size_bytes = (uint32_t)(4 * n),
                 .source_id = 0x00a10020,
                 .order = 1,
                 .form = FORM_ROS3},
                {.source_id = eformat_source_id(1), .order = 2, .status = FRAGMENT_LOST},
        };
        struct built_event event = {.info = info, .n_fragments = 3, .fragments = fragments};
        size_t n_words;

        with.checksum = EFORMAT_CHECKSUM_ADLER32;
        assert_int_equal(eformat_3.encode(&event, &with, &e), 0);
        assert_int_not_equal(e.sum, 0);
        free(flatten(&e));
        assert_int_equal(eformat_5.encode(&event, &with, &e), 0);
        assert_int_not_equal(e.sum, 0);
        _cleanup_free_ uint8_t *bytes = flatten(&e);
        n_words = e.size_bytes / 4;
        assert_int_equal(eformat_word(bytes, 1), n_words);
        assert_int_equal(eformat_word(bytes, 7), 2);
        assert_int_equal(eformat_word(bytes, 19), n_words - 37 - 1);
        assert_int_equal(eformat_word(bytes, n_words - 1),
                         adler32(1, bytes + 4 * 37, (uInt)(4 * (n_words - 38))));
        assert_int_equal(eformat_word(bytes, 38), 25);
        assert_int_equal(eformat_word(bytes, 37 + 24), adler32(1, bytes + 4 * (37 + 8), 4 * 16));
        assert_int_equal(eformat_walk(bytes, e.size_bytes, NULL, NULL, NULL), 0);
}

/* Long series of the largest byte come closest to an overflow. */
TEST(test_adler_equals_that_of_zlib)
{
        /* Both halves of a sum are at most 65520. */
        static const uint32_t sums[] = {1, 0x7ff87ff8, 0xfff0ffef, 0xfff0fff0};
        static uint8_t bytes[150000];

        for (unsigned pass = 0; pass < 2; pass++) {
                for (size_t i = 0; i < sizeof bytes; i++)
                        bytes[i] = pass ? (uint8_t)(i * i + i / 256) : 0xff;
                for (size_t n = 0; n <= sizeof bytes; n += n < 300 ? 1 : 3119)
                        for (size_t k = 0; k < ARRAY_SIZE(sums); k++)
                                assert_int_equal(adler_add(sums[k], bytes + n % 7, n - MIN(n, n % 7)),
                                                 adler32_z(sums[k], bytes + n % 7, n - MIN(n, n % 7)));
        }
}

struct shape {
        char text[512];
        size_t length;
};

static int shape_visit(void *userdata, const struct eformat_fragment *f)
{
        struct shape *s = userdata;

        if (f->marker == EFORMAT_SUBDET && eformat_subdet(f->source_id) != EFORMAT_SUBDET_SFI)
                s->length += (size_t)snprintf(s->text + s->length, sizeof s->text - s->length,
                                              "| %x:", f->source_id);
        if (f->marker == EFORMAT_ROS)
                s->length += (size_t)snprintf(s->text + s->length, sizeof s->text - s->length, " %x",
                                              f->source_id);
        if (f->marker == EFORMAT_ROB && eformat_word(f->status, 0) != 0)
                s->length += (size_t)snprintf(s->text + s->length, sizeof s->text - s->length, "(%x)",
                                              eformat_word(f->status, 0));
        return 0;
}

/* Formats the event as text: sub-detectors but the stamp, their ROSs, and ROB status words other than 0. */
static void assert_shape(const uint8_t *bytes, const char *wanted)
{
        struct shape s = {0};
        struct eformat_fault fault;

        if (eformat_walk(bytes, e.size_bytes, shape_visit, &s, &fault) != 0)
                fail_msg("byte %zu: %s", fault.offset_bytes, fault.reason);
        assert_string_equal(s.text, wanted);
}

TEST(test_order_and_grouping)
{
        static const struct {
                uint32_t subdet, ros;
                uint16_t order;
        } in[] = {{0xa2500b, 0xa20040, 3},
                  {0xa1500b, 0xa10021, 1},
                  {0xa1500b, 0xa10020, 2},
                  {0xa1500b, 0xa10022, 0},
                  {0x7c0000, 0x7c0000, 9}};
        uint32_t words[ARRAY_SIZE(in)][64];
        struct built_fragment fragments[ARRAY_SIZE(in)];

        for (size_t i = 0; i < ARRAY_SIZE(in); i++) {
                size_t n = sample_ros3(words[i], in[i].subdet, in[i].ros, 7, 1, 2);

                fragments[i] = (struct built_fragment){.data = words[i],
                                                       .size_bytes = (uint32_t)(4 * n),
                                                       .source_id = in[i].ros,
                                                       .order = in[i].order,
                                                       .form = FORM_ROS3};
        }
        _cleanup_free_ uint8_t *bytes = encode(&eformat_3, fragments, ARRAY_SIZE(in));

        assert_shape(bytes, "| a1500b: a10022 a10021 a10020| a2500b: a20040| 7c0000: 7c0000");
        assert_int_equal(fragments[0].order, 3);
        assert_fields(&e, n_l1_mismatches, 0, info.status, 0);

        /* One source of a1 and the only one of a2 are missing. */
        fragments[0] =
                (struct built_fragment){.source_id = 0xa20040, .form = FORM_ROS3, .status = FRAGMENT_LOST};
        fragments[1] =
                (struct built_fragment){.source_id = 0xa10021, .form = FORM_ROS3, .status = FRAGMENT_PENDING};
        _cleanup_free_ uint8_t *behind = encode(&eformat_3, fragments, ARRAY_SIZE(in));

        assert_shape(behind,
                     "| a1500b: a10022 a10020 a10021(40000024)| 7c0000: 7c0000| a2500b: a20040(20000024)");
        fragments[3] =
                (struct built_fragment){.source_id = 0xa10022, .form = FORM_ROS3, .status = FRAGMENT_NONE};
        _cleanup_free_ uint8_t *partial = encode(&eformat_3, fragments, ARRAY_SIZE(in));

        assert_shape(partial, "| a1500b: a10020 a10021(40000024)| 7c0000: 7c0000| a2500b: a20040(20000024)");
        assert_fields(&e, n_missing, 2, info.status, 0x80000024);
        assert_int_equal(eformat_word(partial, 6), 0x80000024);
}

TEST(test_every_status)
{
        static char payload[] = "abcdefgh";
        struct built_fragment fragments[] = {
                {.data = payload,
                 .size_bytes = 8,
                 .source_id = 0x700000,
                 .order = 0,
                 .status = FRAGMENT_TRUNCATED},
                {.source_id = 0x700001, .order = 1, .status = FRAGMENT_PENDING},
                {.source_id = 0x700002, .order = 2, .status = FRAGMENT_LOST},
                {.source_id = 0x700003, .order = 3, .status = FRAGMENT_DISCARDED},
                {.source_id = 0x700004, .order = 4, .status = FRAGMENT_NONE},
                {.data = payload, .size_bytes = 0, .source_id = 0x700005, .order = 5, .status = FRAGMENT_OK},
                {.data = payload,
                 .size_bytes = 8,
                 .source_id = 0x700006,
                 .order = 6,
                 .form = FORM_ROS3,
                 .status = FRAGMENT_OK},
        };
        _cleanup_free_ uint8_t *bytes = encode(&eformat_3, fragments, ARRAY_SIZE(fragments));

        assert_shape(bytes, "| 70500b: 700000(8000010) 700001(40000024) 700002(20000024) 700003(80000030) "
                            "700005 700006(20000028)");
        assert_fields(&e, n_missing, 4, n_malformed, 1, payload_bytes, 8, info.status, 0x8000003c);
        _cleanup_free_ uint8_t *five = encode(&eformat_5, fragments, ARRAY_SIZE(fragments));

        assert_shape(five, "(8000010)(40000024)(20000024)(80000030)(20000028)");
        assert_int_equal(e.info.status, 0x8000003c);
}

TEST(test_truncated_is_not_partial)
{
        struct built_fragment fragment = {
                .data = "abcdefgh", .size_bytes = 8, .source_id = 0x700000, .status = FRAGMENT_TRUNCATED};
        _cleanup_free_ uint8_t *bytes = encode(&eformat_3, &fragment, 1);

        assert_int_equal(eformat_word(bytes, 6), EFORMAT_OVERFLOW);
        assert_fields(&e, info.status, EFORMAT_OVERFLOW, n_missing, 0);
}

/* The dummy of an optional source stays as it is, but the event is partial only for other reasons. */
TEST(test_optional_is_not_partial)
{
        static const uint8_t malformed[32];
        const struct {
                struct built_fragment fragment;
                uint32_t status;
        } cases[] = {
                {{.status = FRAGMENT_LOST, .optional = true}, 0x24},
                {{.status = FRAGMENT_PENDING, .optional = true}, 0x24},
                {{.status = FRAGMENT_DISCARDED, .optional = true}, 0x30},
                {{.status = FRAGMENT_LOST}, 0x80000024},
                {{.data = malformed, .size_bytes = 32, .form = FORM_ROS3, .optional = true}, 0x80000028},
        };
        static const struct eformat *const formats[] = {&eformat_3, &eformat_5};

        for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
                for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
                        struct built_fragment fragment = cases[k].fragment;

                        fragment.source_id = 0x520001;
                        _cleanup_free_ uint8_t *bytes = encode(formats[i], &fragment, 1);

                        assert_int_equal(eformat_word(bytes, 6), cases[k].status);
                        assert_int_equal(e.n_missing, 1);
                }
        }
}

/* Raw fragments with IDs of their own stand below their own sub-detectors. */
TEST(test_source_ids_of_raw_fragments)
{
        struct built_fragment fragments[] = {
                {.data = "a", .size_bytes = 1, .source_id = 0x520002, .order = 1},
                {.data = "b", .size_bytes = 1, .source_id = 0x700001, .order = 2},
                {.source_id = 0x520001, .status = FRAGMENT_LOST, .optional = true},
        };
        _cleanup_free_ uint8_t *bytes = encode(&eformat_3, fragments, 3);

        assert_shape(bytes, "| 52500b: 520001(20000024) 520002| 70500b: 700001");
}

TEST(test_l1_mismatch_is_counted)
{
        uint32_t words[64];
        size_t n = sample_ros3(words, 0xa1500b, 0xa10020, 8, 1, 2);
        struct built_fragment fragment = {
                .data = words, .size_bytes = (uint32_t)(4 * n), .source_id = 0xa10020, .form = FORM_ROS3};
        _cleanup_free_ uint8_t *bytes = encode(&eformat_3, &fragment, 1);

        assert_fields(&e, n_l1_mismatches, 1, info.status, 0);
        assert_memory_equal(bytes + 4 * 18, words, 4 * n);
}

TEST(test_builder_bits_and_source)
{
        struct built_event event = {.info = info, .status = EFORMAT_EVENT_DUPLICATE_DFM};

        event.info.status = 0x11;
        event.info.source_id = 0x00795001;
        assert_int_equal(eformat_3.encode(&event, &settings, &e), 0);
        _cleanup_free_ uint8_t *bytes = flatten(&e);

        assert_int_equal(e.size_bytes, 4 * (18 + 16));
        assert_int_equal(eformat_word(bytes, 4), 0x00795001);
        assert_int_equal(eformat_word(bytes, 6), 0x00080011);
}

/* Fragments that are all in different sub-detectors need the most scratch in v3.0. */
TEST(test_maximum_number_of_fragments)
{
        static uint32_t words[2][64];
        static struct built_fragment fragments[EVB_ROS_MAX + 1];
        struct built_event event = {.info = info, .n_fragments = EVB_ROS_MAX, .fragments = fragments};
        size_t n = 0;

        for (uint32_t k = 0; k < 2; k++)
                n = sample_ros3(words[k], 0xa1500b + (k << 16), 0xa10020 + (k << 16), 7, 1, 2);
        for (size_t i = 0; i < EVB_ROS_MAX; i++)
                fragments[i] = (struct built_fragment){.data = words[i % 2],
                                                       .size_bytes = (uint32_t)(4 * n),
                                                       .source_id = 0xa10020,
                                                       .order = (uint16_t)i,
                                                       .form = FORM_ROS3};
        assert_int_equal(eformat_3.encode(&event, &settings, &e), 0);
        assert_int_equal(e.n_iov, 2 * EVB_ROS_MAX + 1);
        for (size_t i = 0; i < EVB_ROS_MAX; i++)
                fragments[i] = (struct built_fragment){.data = "abc",
                                                       .size_bytes = 3,
                                                       .source_id = eformat_source_id((uint32_t)i),
                                                       .order = (uint16_t)(EVB_ROS_MAX - i)};
        assert_int_equal(eformat_3.encode(&event, &settings, &e), 0);
        _cleanup_free_ uint8_t *bytes = flatten(&e);

        assert_int_equal(eformat_walk(bytes, e.size_bytes, NULL, NULL, NULL), 0);
        assert_int_equal(eformat_word(bytes, 27 + 4), eformat_source_id(EVB_ROS_MAX - 1));
        assert_int_equal(eformat_5.encode(&event, &settings, &e), 0);
        event.n_fragments++;
        assert_int_equal(eformat_3.encode(&event, &settings, &e), -E2BIG);
        assert_int_equal(eformat_5.encode(&event, &settings, &e), -E2BIG);
}

TEST(test_bounds_are_errors)
{
        unsigned n_robs = EFORMAT_ROBS_MAX + 2;
        _cleanup_free_ uint32_t *words = malloc(4 * (20 + n_robs * 23));
        size_t n = sample_ros3(words, 0xa1500b, 0xa10020, 7, n_robs, 2);
        struct built_fragment fragment = {
                .data = words, .size_bytes = (uint32_t)(4 * n), .source_id = 0xa10020, .form = FORM_ROS3};
        struct built_fragment big[] = {
                {.data = words, .size_bytes = 0x80000000, .source_id = 0x700000},
                {.data = words, .size_bytes = 0x80000000, .source_id = 0x700001},
        };
        struct built_event event = {.info = info, .n_fragments = 1, .fragments = &fragment};

        assert_int_equal(eformat_3.encode(&event, &settings, &e), 0);
        assert_int_equal(eformat_5.encode(&event, &settings, &e), -ENOBUFS);
        event = (struct built_event){.info = info, .n_fragments = 2, .fragments = big};
        assert_int_equal(eformat_3.encode(&event, &settings, &e), -EMSGSIZE);
        assert_int_equal(eformat_5.encode(&event, &settings, &e), -EMSGSIZE);
}
