/* What a user says about frames, and the frames found in the bytes of a board, in whatever parts they come.
 */
#include "../test.h"

#include <stdio.h>

#include "base/random.h"
#include "protocol/frame.h"

#define MAX_BYTES 64u

static const struct {
        const char *text, *again;
} written_rules[] = {
        {FRAME_STANDARD, NULL},
        {"datagram", NULL},
        {"datagram skip 8", NULL},
        {"length 0.0:28 unit 4", "length 0:28 unit 4"},
        {"length 12:32 plus 16", NULL},
        {"length 0:32:be unit 4 plus 4", NULL},
        {"  plus  4\tlength 0:8 ", "length 0:8 plus 4"},
        {"fixed 2064", NULL},
        {"fixed 16 marker 45484452", NULL},
        {"marker BEEF end 0d0a", "marker beef end 0d0a"},
        {"marker 000102030405060708090a0b0c0d0e0f end 000102030405060708090a0b0c0d0e0f skip 65536", NULL},
};

TEST_EACH(a_rule_is_written_as_it_is_read, i, ARRAY_SIZE(written_rules))
{
        char text[FRAME_TEXT_MAX];
        struct frame_rule r;

        assert_null(frame_rule_parse(&r, written_rules[i].text));
        assert_string_equal(frame_rule_format(&r, text), written_rules[i].again ?: written_rules[i].text);
        assert_null(frame_rule_parse(&r, text));
}

TEST(rules_of_fragments_are_read_and_written)
{
        static const struct {
                const char *text, *again; /* NULL: the same */
        } rules[] = {
                {"one", NULL},
                {"join", NULL},
                {" join\twithin 10000us", "join within 10ms"},
                {"join count 2", NULL},
                {"join count 6 index 4:8 demux 4:10", "join count 6 demux 4:10 index 4:8"},
                {"join index 12:32 count 4.2:6:be", "join count 4.2:6:be index 12:32"},
                {"join last 65535.7:64:be index 65535.7:64:be within 3599999999999ns", NULL},
        };
        char text[JOIN_TEXT_MAX];
        struct join_rule r;

        for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
                assert_null(join_rule_parse(&r, rules[i].text));
                assert_string_equal(join_rule_format(&r, text), rules[i].again ?: rules[i].text);
                assert_null(join_rule_parse(&r, text));
        }
        assert_null(join_rule_parse(&r, "join count 3.7:10"));
        assert_true(r.joins && join_rule_has_end(&r));
        assert_int_equal(join_rule_end(&r), 6);
}

TEST(wrong_rules_of_fragments_are_refused)
{
        static const struct {
                const char *text, *why;
        } rules[] = {
                {"", "expected one, or join"},
                {"two", "expected one, or join"},
                {"one count 2", "expected one without"},
                {"join twice 2", "expected one, or join"},
                {"join count 1", "expected count N with 2 to 65536"},
                {"join count 2 count 3", "expected one, or join"},
                {"join count", "expected count N"},
                {"join count 2 last 4:1", "expected either count or last"},
                {"join last 4", "expected last OFFSET"},
                {"join index 0:65", "expected index OFFSET"},
                {"join demux 0:11", "expected demux OFFSET"},
                {"join demux 0:4 last 4:1", "expected demux with count"},
                {"join within 0s", "expected within TIME"},
                {"join within 3601s", "expected within TIME"},
        };
        struct join_rule r;

        for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
                assert_non_null(strstr(join_rule_parse(&r, rules[i].text), rules[i].why));
}

static const struct {
        const char *text, *why;
} wrong_rules[] = {
        {"", "expected one of datagram"},
        {"4 bytes", "expected datagram, length"},
        {"length", "expected length OFFSET"},
        {"length 0:65", "expected length OFFSET"},
        {"length 0:32 mod 5", "expected datagram, length"},
        {"length 0:32 unit 0", "expected unit N"},
        {"length 0:32 unit 4 unit 4", "expected datagram, length"},
        {"length 0:32 plus 65537", "expected plus N"},
        {"length 0:32 plus -1", "expected plus N"},
        {"length 0:32 fixed 4", "expected one of datagram"},
        {"fixed 0", "expected fixed N"},
        {"fixed 4194305", "expected fixed N"},
        {"fixed 4 unit 2", "only with a length"},
        {"fixed 4 skip 5", "longer than its marker"},
        {"fixed 1 marker 0102", "longer than its marker"},
        {"marker 123", "hexadecimal"},
        {"marker xy", "hexadecimal"},
        {"marker 0001020304050607080910111213141516", "hexadecimal"},
        {"end 0d", "expected one of datagram"},
        {"fixed 4 end 0d", "expected end only with a marker"},
        {"datagram marker 01", "without a marker"},
        {"datagram skip 0", "expected skip N"},
};

TEST_EACH(wrong_rules_are_refused, i, ARRAY_SIZE(wrong_rules))
{
        struct frame_rule r;
        const char *why = frame_rule_parse(&r, wrong_rules[i].text);

        if (!why || !strstr(why, wrong_rules[i].why))
                fail_msg("\"%s\": \"%s\" instead of \"%s\"", wrong_rules[i].text, why ?: "",
                         wrong_rules[i].why);
}

/* The frames of a stream as "SIZE " each, "-N " for N foreign bytes, and "!" where none can be found. The
 * bytes come in parts of `part`. */
static const char *cut(const char *rule, const void *all, size_t n, size_t part)
{
        static char text[400];
        const uint8_t *bytes = all;
        size_t at = 0, there = 0, scanned = 0, used = 0, foreign = 0;
        struct frame_rule r;

        assert_null(frame_rule_parse(&r, rule));
        text[0] = '\0';
        while (at < n) {
                size_t size = 0;
                bool is_end = there == n;
                uint8_t *exact = malloc(MAX(there - at, (size_t)1));
                enum frame_result result;

                /* A copy, so that the address sanitizer sees each byte that is read behind it. */
                assert_non_null(exact);
                memcpy(exact, bytes + at, there - at);
                result = frame_find(&r, exact, there - at, is_end, MAX_BYTES, &scanned, &size);
                free(exact);
                if (result == FRAME_MORE && !is_end) {
                        there = MIN(n, there + part);
                        continue;
                }
                if (result == FRAME_FOREIGN) {
                        assert_true(size > 0 && size <= there - at);
                        foreign += size;
                        at += size;
                        scanned -= MIN(scanned, size);
                        if (at < n)
                                continue;
                }
                if (foreign > 0)
                        used += (size_t)snprintf(text + used, sizeof text - used, "-%zu ", foreign);
                foreign = 0;
                if (result == FRAME_FOREIGN)
                        break;
                if (result != FRAME_FOUND || size > n - at) {
                        snprintf(text + used, sizeof text - used, "!");
                        break;
                }
                assert_true(size > 0 && (size <= there - at || r.kind != FRAME_MARKED));
                used += (size_t)snprintf(text + used, sizeof text - used, "%zu ", size);
                at += size;
                there = MAX(there, at);
                scanned = 0;
        }
        return text;
}

static const struct {
        const char *rule, *bytes;
        size_t n;
        const char *frames;
} streams[] = {
        {FRAME_STANDARD, "\1\0\0\0x\0\0\0\0\2\0\0\0yz", 15, "5 4 6 "},
        {FRAME_STANDARD, "\1\0\0\0x\0\0\1\0", 9, "5 !"},
        /* The length counts words, in a field of four bits or less than the whole word. */
        {"length 0.4:12:be unit 2 plus 3", "\xf0\1abc\xf0\0a", 8, "5 3 "},
        {"length 0:28 unit 4", "\1\0\0\xa0\2\0\0\xa0zzzz", 12, "4 8 "},
        {"length 0:28 unit 4", "\0\0\0\xa0\2\0\0\xa0zzzz", 12, "!"},
        {"length 1:8", "a\4bcd\1", 6, "4 !"},
        {"length 0:8 plus 1", "\2ab\3ab", 6, "3 !"},
        {"length 0:64 unit 4096 plus 16", "\xff\xff\xff\xff\xff\xff\xff\xff", 8, "!"},
        {"fixed 3", "abcdef", 6, "3 3 "},
        {"fixed 3", "abcde", 5, "3 !"},
        /* A marker finds the next frame. */
        {"fixed 4 marker 4142", "xABccyzABdd", 11, "-1 4 -2 4 "},
        {"length 2:8 marker 4142", "AB\4dAB\1ddAB\3", 12, "4 -5 3 "},
        {"marker 4142", "..ABaaaABABb", 12, "-2 5 2 3 "},
        {"marker 4142", "....A", 5, "-5 "},
        {"marker 4142 end 43", "ABaCABCxAB", 10, "4 3 -3 "},
        {"marker 41 end 4343", "ACaCCACC", 8, "5 3 "},
        /* Longer than 64 bytes. */
        {"marker 41 end 43", "A.........................................................................A.C",
         77, "-74 3 "},
};

TEST_EACH(frames_of_a_stream_are_found, i, ARRAY_SIZE(streams))
{
        for (size_t part = 1; part <= streams[i].n; part++) {
                const char *frames = cut(streams[i].rule, streams[i].bytes, streams[i].n, part);

                if (strcmp(frames, streams[i].frames) != 0)
                        fail_msg("%zu, in parts of %zu: \"%s\" instead of \"%s\"", i, part, frames,
                                 streams[i].frames);
        }
}

/* Whatever comes is cut in the same way in any parts, and no byte behind those is read. */
TEST(random_bytes_are_cut_in_any_parts)
{
        struct random random;
        uint8_t bytes[100];
        char once[400];

        random_init(&random, 7);
        for (int i = 0; i < 3000; i++) {
                const char *rule = streams[random_below(&random, ARRAY_SIZE(streams))].rule;
                size_t n = 1 + random_below(&random, sizeof bytes);

                for (size_t k = 0; k < n; k++)
                        bytes[k] = (uint8_t)("ABC\0\1\4"[random_below(&random, 6)]);
                snprintf(once, sizeof once, "%s", cut(rule, bytes, n, n));
                assert_string_equal(cut(rule, bytes, n, 1 + random_below(&random, n)), once);
        }
}

/* Else each marker of a stream without ends would cost a search through all bytes. */
TEST(no_byte_is_searched_twice_for_an_end)
{
        struct frame_rule r;
        uint8_t bytes[200];
        size_t scanned = 0, size, at = 0;

        assert_null(frame_rule_parse(&r, "marker 4142 end 4344"));
        for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = i % 2 ? 'B' : 'A';
        for (; sizeof bytes - at >= 100; at += size) {
                assert_int_equal(frame_find(&r, bytes + at, sizeof bytes - at, false, 60, &scanned, &size),
                                 FRAME_FOREIGN);
                assert_int_equal(size, 2);
                assert_int_equal(at + scanned, sizeof bytes - 1);
                scanned -= size;
        }
        /* The end that is too far from one marker is not searched again from the next. */
        memcpy(bytes + 150, "CD", 2);
        scanned = 0;
        assert_int_equal(frame_find(&r, bytes, sizeof bytes, false, 60, &scanned, &size), FRAME_FOREIGN);
        assert_int_equal(scanned, 150);
}

TEST(a_datagram_is_a_frame)
{
        struct frame_rule r;
        size_t scanned = 0, size;

        assert_null(frame_rule_parse(&r, "datagram skip 8"));
        assert_int_equal(frame_find(&r, (const uint8_t *)"123456789", 9, true, 60, &scanned, &size),
                         FRAME_FOUND);
        assert_int_equal(size, 9);
        assert_int_equal(frame_find(&r, (const uint8_t *)"1234567", 7, true, 60, &scanned, &size),
                         FRAME_WRONG);
}
