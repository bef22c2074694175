/* What is proposed for the frames of a board that nobody has described, from samples of public formats. */
#include "../test.h"

#include "base/random.h"
#include "protocol/frame.h"

#define FRAMES 200u
#define BYTES_MAX (1u << 20)

/* A frame is written byte by byte. */
struct writer {
        uint8_t *bytes;
        size_t n;
};

static void little(struct writer *w, uint64_t v, unsigned bytes)
{
        for (unsigned i = 0; i < bytes; i++)
                w->bytes[w->n++] = (uint8_t)(v >> 8 * i);
}

static void big(struct writer *w, uint64_t v, unsigned bytes)
{
        for (unsigned i = bytes; i-- > 0;)
                w->bytes[w->n++] = (uint8_t)(v >> 8 * i);
}

static uint32_t words_of(uint32_t k)
{
        return k % 7 + 1;
}

static void data(struct writer *w, uint32_t k)
{
        for (uint32_t i = 0; i < words_of(k); i++)
                little(w, random_mix(8 * k + i), 4);
}

static void standard(struct writer *w, uint32_t k)
{
        little(w, 8 + 4 * words_of(k), 4);
        little(w, k, 4);
        little(w, 77, 4);
        data(w, k);
}

static void caen(struct writer *w, uint32_t k)
{
        little(w, 0xa0000000 | (4 + words_of(k)), 4);
        little(w, 0x08000003, 4);
        little(w, 0xee000000 | k, 4);
        little(w, 8 * k, 4);
        data(w, k);
}

static void midas(struct writer *w, uint32_t k)
{
        little(w, 1, 2);
        little(w, 0, 2);
        little(w, k, 4);
        little(w, 1700000000, 4);
        little(w, 4 * words_of(k), 4);
        data(w, k);
}

static void evio(struct writer *w, uint32_t k)
{
        big(w, 2 + words_of(k), 4);
        big(w, 0x00010100, 4);
        big(w, k, 4);
        for (uint32_t i = 0; i < words_of(k); i++)
                big(w, i, 4);
}

static void drs4(struct writer *w, uint32_t k)
{
        if (k == 0) {
                memcpy(w->bytes, "TIMEB#\1\0C001", 12);
                w->n += 12;
        }
        memcpy(w->bytes + w->n, "EHDR", 4);
        w->n += 4;
        little(w, k + 1, 4);
        for (uint32_t i = 0; i < 8; i++)
                little(w, 2000 + i, 2);
        memcpy(w->bytes + w->n, "C001", 4);
        w->n += 4;
        for (uint32_t i = 0; i < 1024; i++)
                little(w, i, 2);
}

static void fei4(struct writer *w, uint32_t k)
{
        little(w, 0x1234, 4);
        little(w, k % 32, 2);
        little(w, k * 7 % 1024, 2);
        little(w, words_of(k), 2);
        data(w, k);
}

static void eudet(struct writer *w, uint32_t k)
{
        little(w, (k + 32700) % 32768 | 0x8000 * (k % 2), 2);
        little(w, 0xcafe, 2);
}

static void aida(struct writer *w, uint32_t k)
{
        const uint32_t words[] = {0x10010000, k * 1000, 0x01020304, k, 0x05060000, 0};

        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                little(w, words[i], 4);
}

static void concentrator(struct writer *w, uint32_t k)
{
        static const unsigned boards[] = {1, 2, 14};

        for (size_t i = 0; i < ARRAY_SIZE(boards); i++) {
                little(w, 8 + 4 * words_of(k + (uint32_t)i), 2);
                little(w, boards[i], 2);
                little(w, k, 4);
                data(w, k + (uint32_t)i);
        }
}

static void sls(struct writer *w, uint32_t k)
{
        little(w, k, 8);
        little(w, 1000, 4);
        little(w, 0, 4);
        little(w, 12345, 8);
        data(w, k);
}

static void srs(struct writer *w, uint32_t k)
{
        big(w, k, 4);
        big(w, 0x564d3305, 4);
        big(w, 100 * k, 4);
        big(w, 0, 4);
        data(w, k);
}

/* The counters of `evio`, and of `srs`, do not show their byte order before 256 frames. */
static const struct {
        void (*make)(struct writer *w, uint32_t k);
        bool datagrams;
        const char *frame, *number; /* "": no number */
        uint64_t first, last;
        size_t repeats;
} boards[] = {
        {standard, false, FRAME_STANDARD, "0:32", 0, FRAMES - 1, 0},
        {standard, true, FRAME_STANDARD, "0:32", 0, FRAMES - 1, 0},
        {caen, false, "length 0:28 unit 4", "8:24", 0, FRAMES - 1, 0},
        {caen, true, "datagram", "8:24", 0, FRAMES - 1, 0},
        {midas, false, "length 12:32 plus 16", "4:32", 0, FRAMES - 1, 0},
        {evio, false, "length 0:32:be unit 4 plus 4", "8:32:be", 0, FRAMES - 1, 0},
        {drs4, false, "fixed 2076 marker 45484452", "4:32", 1, FRAMES, 0},
        {fei4, false, "length 8:16 unit 4 plus 10", "4:5", 0, (FRAMES - 1) % 32, 0},
        {eudet, false, "fixed 4", "0:15", 32700, (32700 + FRAMES - 1) % 32768, 0},
        {aida, false, "fixed 24", "12:32", 0, FRAMES - 1, 0},
        {concentrator, false, "length 0:16", "4:32", 0, FRAMES - 1, 2 * FRAMES},
        {concentrator, true, "length 0:16", "4:32", 0, FRAMES - 1, 2 * FRAMES},
        {sls, true, "datagram", "0:32", 0, FRAMES - 1, 0},
        {srs, true, "datagram", "0:32:be", 0, FRAMES - 1, 0},
};

struct sampled {
        struct frame_guess guess;
        uint32_t sizes[FRAMES];
        uint8_t bytes[BYTES_MAX];
};

static struct frame_sample sample_of(struct sampled *s, size_t board)
{
        struct writer w = {.bytes = s->bytes};

        for (uint32_t k = 0; k < FRAMES; k++) {
                size_t before = w.n;

                boards[board].make(&w, k);
                s->sizes[k] = (uint32_t)(w.n - before);
        }
        return (struct frame_sample){s->bytes, w.n, boards[board].datagrams ? s->sizes : NULL, FRAMES};
}

TEST_EACH(boards_are_recognized, i, ARRAY_SIZE(boards))
{
        _cleanup_free_ struct sampled *s = calloc(1, sizeof *s);
        struct frame_sample sample;
        char text[FRAME_TEXT_MAX];

        assert_non_null(s);
        sample = sample_of(s, i);
        /* The last frame of a stream is incomplete. */
        sample.n -= boards[i].datagrams ? 0 : 1;
        frame_guess(&s->guess, &sample);
        assert_true(s->guess.has_frame);
        assert_string_equal(frame_rule_format(&s->guess.frame, text), boards[i].frame);
        assert_string_equal(number_field_format(&s->guess.number, text), boards[i].number);
        assert_int_equal(s->guess.first, boards[i].first);
        sample.n += boards[i].datagrams ? 0 : 1;
        frame_guess(&s->guess, &sample);
        assert_fields(&s->guess, last, boards[i].last, repeats, boards[i].repeats, gaps, 0);
}

TEST(random_bytes_are_no_frames)
{
        _cleanup_free_ struct sampled *s = calloc(1, sizeof *s);
        struct random random;

        assert_non_null(s);
        for (uint64_t seed = 1; seed <= 3; seed++) {
                random_init(&random, seed);
                for (size_t i = 0; i < BYTES_MAX; i++)
                        s->bytes[i] = (uint8_t)random_below(&random, 256);
                frame_guess(&s->guess, &(struct frame_sample){.bytes = s->bytes, .n = BYTES_MAX});
                assert_false(s->guess.has_frame);
        }
        memset(s->bytes, 0, BYTES_MAX);
        frame_guess(&s->guess, &(struct frame_sample){.bytes = s->bytes, .n = BYTES_MAX});
        assert_false(s->guess.has_frame);
        frame_guess(&s->guess, &(struct frame_sample){.bytes = s->bytes, .n = 0});
        assert_false(s->guess.has_frame);
}

/* Lines of text have no length, although all of their bytes are below 128. */
TEST(text_has_no_lengths)
{
        static const char line[] = "hello world, this is text\n";
        _cleanup_free_ struct sampled *s = calloc(1, sizeof *s);
        char text[FRAME_TEXT_MAX];

        assert_non_null(s);
        for (size_t i = 0; i < BYTES_MAX; i++)
                s->bytes[i] = (uint8_t)line[i % strlen(line)];
        frame_guess(&s->guess, &(struct frame_sample){.bytes = s->bytes, .n = BYTES_MAX});
        assert_true(s->guess.has_frame);
        assert_string_equal(frame_rule_format(&s->guess.frame, text), "marker 68656c6c");
}

TEST(gaps_of_a_counter_are_counted)
{
        _cleanup_free_ struct sampled *s = calloc(1, sizeof *s);
        struct writer w = {};
        char text[NUMBER_FIELD_TEXT_MAX];

        assert_non_null(s);
        w.bytes = s->bytes;
        for (uint32_t k = 0; k < FRAMES; k++) {
                size_t before = w.n;

                sls(&w, k + k / 50);
                s->sizes[k] = (uint32_t)(w.n - before);
        }
        frame_guess_number(&s->guess, &(struct frame_sample){s->bytes, w.n, s->sizes, FRAMES},
                           &(struct frame_rule){.kind = FRAME_DATAGRAM, .unit = 1});
        assert_string_equal(number_field_format(&s->guess.number, text), "0:32");
        assert_int_equal(s->guess.gaps, FRAMES / 50 - 1);
}
