/* Tests the walk over fragments and their interpretation, with valid and with corrupted words. */
#include "../test.h"

#include "eformat_sample.h"

static struct eformat_encoding e;
static const struct eformat_settings settings = {
        .sfi_source_id = 0x00790001, .checksum = EFORMAT_CHECKSUM_ADLER32, .lumi_block = 3};
static const struct event_info info = {
        .event = 0x200000003,
        .global_id = 0x100000005,
        .l1_id = 42,
        .bc_id = 6,
        .time_s = 1000,
        .time_ns = 77,
        .run = 9,
        .trigger_type = 8,
        .l2_info = 11,
        .ef_info = {1, 2, 3, 4},
        .status = 0,
        .spill = 12,
        .flags = 13,
};

/* Makes an event of two raw sources with 5 and 8 bytes of payload. */
static uint8_t *raw_event(const struct eformat *format)
{
        struct built_fragment fragments[] = {
                {.data = "hello", .size_bytes = 5, .source_id = eformat_source_id(0), .order = 0},
                {.data = "worldful", .size_bytes = 8, .source_id = eformat_source_id(1), .order = 1},
        };
        struct built_event event = {.info = info, .n_fragments = 2, .fragments = fragments};

        assert_int_equal(format->encode(&event, &settings, &e), 0);
        return flatten(&e);
}

struct seen {
        unsigned n;
        uint32_t markers[32];
        struct eformat_fragment event, rods[4];
        unsigned n_rods;
        unsigned sums_ok, sums_wrong;
};

static int see(void *userdata, const struct eformat_fragment *f)
{
        struct seen *s = userdata;
        enum eformat_sum sum = eformat_verify_sum(f);

        s->markers[s->n++ % 32] = f->marker;
        if (f->marker == EFORMAT_EVENT)
                s->event = *f;
        if (f->marker == EFORMAT_ROD)
                s->rods[s->n_rods++ % 4] = *f;
        s->sums_ok += sum == EFORMAT_SUM_OK;
        s->sums_wrong += sum == EFORMAT_SUM_WRONG;
        return 0;
}

TEST(test_walk_visits_parents_first)
{
        static const uint32_t three[] = {EFORMAT_EVENT, EFORMAT_SUBDET, EFORMAT_ROS,
                                         EFORMAT_ROB,   EFORMAT_ROD,    EFORMAT_ROS,
                                         EFORMAT_ROB,   EFORMAT_ROD,    EFORMAT_SUBDET};
        static const uint32_t five[] = {EFORMAT_EVENT, EFORMAT_ROB, EFORMAT_ROD, EFORMAT_ROB, EFORMAT_ROD};
        _cleanup_free_ uint8_t *event3 = raw_event(&eformat_3);
        size_t size3 = e.size_bytes;
        _cleanup_free_ uint8_t *event5 = raw_event(&eformat_5);
        struct seen seen = {0};

        assert_int_equal(eformat_walk(event3, size3, see, &seen, NULL), 0);
        assert_int_equal(seen.n, ARRAY_SIZE(three));
        assert_memory_equal(seen.markers, three, sizeof three);
        assert_int_equal(seen.rods[0].depth, 4);
        assert_fields(&seen, sums_ok, 1, sums_wrong, 0);
        seen = (struct seen){0};
        assert_int_equal(eformat_walk(event5, e.size_bytes, see, &seen, NULL), 0);
        assert_int_equal(seen.n, ARRAY_SIZE(five));
        assert_memory_equal(seen.markers, five, sizeof five);
        assert_fields(&seen, sums_ok, 3, sums_wrong, 0);
}

TEST(test_event_info_round_trip)
{
        _cleanup_free_ uint8_t *event3 = raw_event(&eformat_3);
        size_t size3 = e.size_bytes;
        _cleanup_free_ uint8_t *event5 = raw_event(&eformat_5);
        struct event_info got, want = info;
        struct seen seen = {0};

        want.source_id = 0x00790001;
        eformat_walk(event5, e.size_bytes, see, &seen, NULL);
        eformat_event_info(&seen.event, &got);
        assert_memory_equal(&got, &want, sizeof got);
        want.bc_id = 0;
        eformat_walk(event3, size3, see, &seen, NULL);
        eformat_event_info(&seen.event, &got);
        assert_memory_equal(&got, &want, sizeof got);
}

TEST(test_raw_payload_round_trip)
{
        const struct eformat *formats[] = {&eformat_3, &eformat_5};
        const uint8_t *payload;
        uint32_t size_bytes;

        for (size_t i = 0; i < 2; i++) {
                _cleanup_free_ uint8_t *event = raw_event(formats[i]);
                struct seen seen = {0};

                eformat_walk(event, e.size_bytes, see, &seen, NULL);
                assert_true(eformat_raw_payload(&seen.rods[0], &payload, &size_bytes));
                assert_int_equal(size_bytes, 5);
                assert_memory_equal(payload, "hello\0\0\0", 8);
                assert_true(eformat_raw_payload(&seen.rods[1], &payload, &size_bytes));
                assert_int_equal(size_bytes, 8);
                seen.rods[1].payload_words++;
                assert_false(eformat_raw_payload(&seen.rods[1], &payload, &size_bytes));
        }
}

static int stop(void *userdata, const struct eformat_fragment *f)
{
        unsigned *left = userdata;

        return --*left == 0 ? 17 : 0;
}

TEST(test_visit_stops_the_walk)
{
        _cleanup_free_ uint8_t *event = raw_event(&eformat_3);
        struct eformat_fault fault = {.reason = "untouched"};

        for (unsigned n = 1; n <= 8; n++) {
                unsigned left = n;

                assert_int_equal(eformat_walk(event, e.size_bytes, stop, &left, &fault), 17);
                assert_int_equal(left, 0);
        }
        assert_string_equal(fault.reason, "untouched");
}

static void set(uint8_t *bytes, size_t index, uint32_t value)
{
        memcpy(bytes + 4 * index, &value, 4);
}

TEST(test_faults_have_reasons)
{
        static const struct {
                size_t word;
                uint32_t value;
                size_t offset_words;
                const char *reason;
        } cases[] = {
                {0, 0xAA1234AB, 0, "missing fragment marker"},
                {1, 17, 0, "fragment size differs from that of its buffer"},
                {2, 5000, 0, "header exceeds its fragment"},
                {2, 19, 0, "header size does not match its counts"},
                {3, 0x04000000, 0, "unsupported version; expected 3.0 or 5.0"},
                {5, 64, 0, "too many status words"},
                {5, 0xffffffff, 0, "too many status words"},
                {5, 12, 0, "header too small for its status words"},
                {7, 0xfffffff0, 0, "header size does not match its counts"},
                {18, 0, 18, "missing sub-detector marker"},
                {19, 0xffffffff, 18, "fragment exceeds its parent"},
                {19, 40, 27, "fragment exceeds its parent"},
                {21, 0x05000000, 18, "version differs from that of the parent"},
                {27, 0, 27, "missing ROS marker"},
                {38, EFORMAT_ROD, 38, "missing ROB marker"},
                {46, EFORMAT_ROB, 46, "missing ROD marker"},
                {47, 10, 46, "ROD header size is not 9 words"},
                {59, 0xfffffffe, 46, "ROD size does not match its counts"},
                {60, 3, 46, "ROD size does not match its counts"},
        };
        _cleanup_free_ uint8_t *event = raw_event(&eformat_3);
        struct eformat_fault fault;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                uint32_t right = eformat_word(event, cases[i].word);

                set(event, cases[i].word, cases[i].value);
                assert_int_equal(eformat_walk(event, e.size_bytes, NULL, NULL, &fault), -EBADMSG);
                assert_string_equal(fault.reason, cases[i].reason);
                assert_int_equal(fault.offset_bytes, 4 * cases[i].offset_words);
                set(event, cases[i].word, right);
        }
        assert_int_equal(eformat_walk(event, e.size_bytes, NULL, NULL, &fault), 0);
        set(event, 59, 0xffffffff); /* plus 5 data words, correct modulo 2^32 */
        set(event, 60, 5);
        assert_int_equal(eformat_walk(event, e.size_bytes, NULL, NULL, &fault), -EBADMSG);
}

TEST(test_faults_of_v5_have_reasons)
{
        static const struct {
                size_t word;
                uint32_t value;
                const char *reason;
        } cases[] = {
                {20, 0xffffffff, "info words exceed the header"},
                {21, 2, "header size does not match its info words"},
                {36, 1, "header size does not match its info words"},
                {37, EFORMAT_SUBDET, "missing ROB marker"},
                {39, 9, "header size does not match its counts"},
                {18, 1, NULL}, /* compressed: the walk does not enter it */
        };
        _cleanup_free_ uint8_t *event = raw_event(&eformat_5);
        struct eformat_fault fault;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                uint32_t right = eformat_word(event, cases[i].word);
                int r;

                set(event, cases[i].word, cases[i].value);
                r = eformat_walk(event, e.size_bytes, NULL, NULL, &fault);
                assert_int_equal(r, cases[i].reason ? -EBADMSG : 0);
                if (r < 0)
                        assert_string_equal(fault.reason, cases[i].reason);
                set(event, cases[i].word, right);
        }
}

/* ASan detects a read past the end of the copy. */
TEST(test_any_word_may_be_wrong)
{
        static const uint32_t values[] = {
                0, 1, 7, 63, 0x7fffffff, 0x80000000, 0xffffffff, EFORMAT_EVENT, EFORMAT_ROB, EFORMAT_ROD};
        const struct eformat *formats[] = {&eformat_3, &eformat_5};

        for (size_t k = 0; k < 2; k++) {
                _cleanup_free_ uint8_t *event = raw_event(formats[k]);

                for (size_t n = 0; n <= e.size_bytes; n++) {
                        _cleanup_free_ uint8_t *cut = malloc(MAX(n, 1u));

                        memcpy(cut, event, n);
                        assert_int_equal(eformat_walk(cut, n, see, &(struct seen){0}, NULL),
                                         n == e.size_bytes ? 0 : -EBADMSG);
                }
                for (size_t i = 0; i < e.size_bytes / 4 * ARRAY_SIZE(values); i++) {
                        uint32_t right = eformat_word(event, i / ARRAY_SIZE(values));
                        struct seen seen = {0};
                        struct event_info got;

                        set(event, i / ARRAY_SIZE(values), values[i % ARRAY_SIZE(values)]);
                        if (eformat_walk(event, e.size_bytes, see, &seen, NULL) == 0)
                                eformat_event_info(&seen.event, &got);
                        set(event, i / ARRAY_SIZE(values), right);
                }
        }
}

TEST(test_wrong_byte_breaks_enclosing_checksums)
{
        _cleanup_free_ uint8_t *event = raw_event(&eformat_5);
        struct seen seen = {0};

        event[4 * (37 + 8 + 9)] ^= 1; /* the first payload byte of the first ROB */
        assert_int_equal(eformat_walk(event, e.size_bytes, see, &seen, NULL), 0);
        assert_fields(&seen, sums_wrong, 2, sums_ok, 1);
}

TEST(test_ros3_parts)
{
        uint32_t words[256];
        size_t n = sample_ros3(words, 0x00a1500b, 0x00a10020, 42, 3, 4);
        struct eformat_ros3 parts;
        struct eformat_fault fault;

        assert_int_equal(eformat_ros3_parse(words, 4 * n, 42, &parts, &fault), 0);
        assert_fields(&parts, subdet_source_id, 0x00a1500b, subdet_header_bytes, 36, ros_source_id,
                      0x00a10020, ros_bytes, 4 * n - 36, n_robs, 3);
        assert_false(parts.l1_mismatch);
        assert_int_equal(eformat_ros3_parse(words, 4 * n, 43, &parts, &fault), 0);
        assert_true(parts.l1_mismatch);
        words[20 + 25 + 8 + 5]++; /* L1 ID of the second ROD only */
        assert_int_equal(eformat_ros3_parse(words, 4 * n, 42, &parts, &fault), 0);
        assert_true(parts.l1_mismatch);
        words[20] = 0;
        assert_int_equal(eformat_ros3_parse(words, 4 * n, 42, &parts, &fault), -EBADMSG);
        assert_int_equal(fault.offset_bytes, 80);
        assert_string_equal(fault.reason, "missing ROB marker");
        for (size_t cut = 0; cut < 4 * n; cut++)
                assert_int_equal(eformat_ros3_parse(words, cut, 42, &parts, &fault), -EBADMSG);
}

TEST(test_ros3_invalid_headers)
{
        static const struct {
                size_t word;
                uint32_t value;
        } cases[] = {{0, EFORMAT_ROS}, {2, 0xffffffff}, {2, 6}, {2, 17},         {3, EFORMAT_VERSION_5},
                     {5, 0xffffffff},  {5, 3},          {7, 0}, {9, EFORMAT_ROB}};
        uint32_t words[256];
        size_t n = sample_ros3(words, 0x00a1500b, 0x00a10020, 42, 1, 4);
        struct eformat_ros3 parts;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                uint32_t right = words[cases[i].word];

                words[cases[i].word] = cases[i].value;
                assert_int_equal(eformat_ros3_parse(words, 4 * n, 42, &parts, NULL), -EBADMSG);
                words[cases[i].word] = right;
        }
        assert_int_equal(eformat_ros3_parse(words, 4 * n, 42, &parts, NULL), 0);
}

TEST(test_renumber_keeps_differences)
{
        uint32_t words[256], before[256];
        size_t n = sample_ros3(words, 0x00a1500b, 0x00a10020, 42, 3, 4);

        words[20 + 25 + 8 + 5] = 43;
        words[20 + 50 + 8 + 5] = 0;
        memcpy(before, words, 4 * n);
        assert_int_equal(eformat_ros3_renumber(words, 4 * n, 42, 142), 0);
        assert_int_equal(words[18], 142);
        assert_int_equal(words[20 + 8 + 5], 142);
        assert_int_equal(words[20 + 25 + 8 + 5], 143);
        assert_int_equal(words[20 + 50 + 8 + 5], 0);
        words[18] = words[20 + 8 + 5] = 42;
        words[20 + 25 + 8 + 5] = 43;
        assert_memory_equal(words, before, 4 * n);
        words[20] = 0;
        assert_int_equal(eformat_ros3_renumber(words, 4 * n, 42, 142), -EBADMSG);
}
