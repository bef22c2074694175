/* Sources: files, pipes and patterns give the same bytes in any portions; VDIF recordings show their order
 * and rate without losing a byte. */
#include "../test.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/pattern.h"
#include "stream/send_threads.h"
#include "vdif_sample.h"

DEFINE_FREEP(stream_source)

#define KEY 12345u

static char path[] = "/tmp/evb-test-source-XXXXXX";

static void write_file(const void *bytes, size_t n)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

        assert_int_equal(write(fd, bytes, n), n);
}

/* Takes n bytes in two parts; fewer if the source ends. */
static ssize_t read_some(struct stream_source *s, uint8_t *to, size_t n)
{
        struct iovec parts[2] = {{to, n / 3}, {to + n / 3, n - n / 3}};
        ssize_t whole = 0;
        bool ended = false;

        while (!ended && (size_t)whole < n) {
                size_t first = (size_t)whole >= n / 3;
                ssize_t got = stream_source_fill(s, parts + first, 2 - first, NULL, &ended);

                assert_true(got >= 0);
                whole += got;
                assert_true(ended || whole == (ssize_t)n || whole == (ssize_t)(n / 3));
        }
        return whole;
}

TEST(a_file_is_read_to_its_end)
{
        uint8_t bytes[1000], out[700];
        _cleanup_(stream_source_freep) struct stream_source *s;
        struct error e;

        pattern_fill(1, bytes, 0, sizeof bytes);
        write_file(bytes, sizeof bytes);
        assert_int_equal(stream_source_open(&s, path, KEY, &e), 0);
        assert_false(stream_source_is_pattern(s));
        assert_int_equal(read_some(s, out, sizeof out), 700);
        assert_memory_equal(out, bytes, 700);
        assert_int_equal(read_some(s, out, sizeof out), 300);
        assert_memory_equal(out, bytes + 700, 300);
        assert_int_equal(read_some(s, out, sizeof out), 0);
        stream_source_free(NULL);
}

/* A file that is standard input begins where it was read to; a peer may ask for any offset. */
TEST(a_file_is_read_again_from_its_beginning)
{
        _cleanup_close_ int input = open(path, O_RDONLY | O_CLOEXEC), before = dup(STDIN_FILENO);
        uint8_t bytes[4];
        struct stream_source *s;
        struct error e;

        write_file("0123456789", 10);
        assert_int_equal(lseek(input, 5, SEEK_SET), 5);
        assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
        assert_int_equal(stream_source_open(&s, "-", KEY, &e), 0);
        assert_int_equal(dup2(before, STDIN_FILENO), STDIN_FILENO);
        assert_int_equal(stream_source_read_again(s, 1, bytes, 4), 0);
        assert_memory_equal(bytes, "6789", 4);
        assert_int_equal(stream_source_read_again(s, 2, bytes, 4), -ENODATA);
        assert_int_equal(stream_source_read_again(s, INT64_MAX - 4, bytes, 4), -EINVAL);
        assert_int_equal(stream_source_read_again(s, UINT64_MAX - 8, bytes, 4), -EINVAL);
        stream_source_free(s);
}

/* In blocks and large parts of a file, and the rest. */
TEST(direct_reads_give_the_same_bytes)
{
        static const size_t sizes[] = {1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 4096, (5 << 20) + 12345};
        uint8_t *bytes = malloc(sizes[5]), *out = malloc(sizes[5] + 1);
        struct stream_source *s;
        struct error e;

        pattern_fill(1, bytes, 0, sizes[5]);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                write_file(bytes, sizes[i]);
                assert_int_equal(stream_source_open(&s, path, KEY, &e), 0);
                if (stream_source_set_direct(s, &e) < 0) {
                        stream_source_free(s);
                        free(bytes);
                        free(out);
                        skip(); /* the file system of /tmp has none */
                }
                memset(out, 0xee, sizes[i] + 1);
                assert_int_equal(read_some(s, out, sizes[i] / 2), sizes[i] / 2);
                assert_int_equal(read_some(s, out + sizes[i] / 2, sizes[i] + 1 - sizes[i] / 2),
                                 sizes[i] - sizes[i] / 2);
                assert_memory_equal(out, bytes, sizes[i]);
                assert_int_equal(out[sizes[i]], 0xee);
                stream_source_free(s);
        }
        assert_int_equal(stream_source_open(&s, "pattern:1kB", KEY, &e), 0);
        assert_int_equal(stream_source_set_direct(s, &e), -EINVAL);
        stream_source_free(s);
        free(bytes);
        free(out);
}

TEST(a_pattern_has_its_size)
{
        uint8_t out[700], expected[700];
        struct stream_source *s;
        struct error e;

        assert_int_equal(stream_source_open(&s, "pattern:1kB", KEY, &e), 0);
        assert_true(stream_source_is_pattern(s));
        assert_int_equal(read_some(s, out, sizeof out), 700);
        pattern_fill(KEY, expected, 0, 700);
        assert_memory_equal(out, expected, 700);
        assert_int_equal(read_some(s, out, sizeof out), 300);
        pattern_fill(KEY, expected, 700, 300);
        assert_memory_equal(out, expected, 300);
        assert_int_equal(read_some(s, out, sizeof out), 0);
        stream_source_free(s);
        assert_int_equal(stream_source_open(&s, "null:10", KEY, &e), 0);
        assert_int_equal(read_some(s, out, sizeof out), 10);
        stream_source_free(s);
}

static const char *const wrong[] = {"/nonexistent/file", "pattern:", "pattern:fast", "null:0", "/tmp"};

TEST_EACH(what_is_no_source_is_explained, i, ARRAY_SIZE(wrong))
{
        struct stream_source *s;
        struct error e = {};

        assert_true(stream_source_open(&s, wrong[i], KEY, &e) < 0);
        assert_true(e.message[0]);
}

/* 20 frames a second in two threads, from frame 15 of second 7 on. */
static void make_recording(uint8_t *bytes, size_t frames)
{
        for (size_t i = 0; i < frames; i++) {
                size_t number = 15 + i / 2;

                sample_frame(bytes + i * SAMPLE_FRAME_BYTES, (uint32_t)(7 + number / 20),
                             (uint32_t)(number % 20), i % 2 ? 4 : 1, (uint8_t)i);
        }
}

static void check_plan(const char *name, size_t frames, uint32_t per_second)
{
        uint8_t bytes[200 * SAMPLE_FRAME_BYTES], out[200 * SAMPLE_FRAME_BYTES];
        static struct vdif_plan plan;
        _cleanup_(stream_source_freep) struct stream_source *s;
        struct error e;

        make_recording(bytes, frames);
        write_file(bytes, frames * SAMPLE_FRAME_BYTES);
        assert_int_equal(stream_source_open(&s, name, KEY, &e), 0);
        assert_int_equal(stream_source_plan(s, &plan, &e), 0);
        assert_fields(&plan, frame_bytes, SAMPLE_FRAME_BYTES, n_threads, MIN(frames, (size_t)2),
                      frames_per_second, per_second);
        /* All is still there. */
        assert_int_equal(read_some(s, out, sizeof out), frames * SAMPLE_FRAME_BYTES);
        assert_memory_equal(out, bytes, frames * SAMPLE_FRAME_BYTES);
}

TEST(a_recording_shows_its_order_and_rate)
{
        check_plan(path, 1, 0);
        check_plan(path, 2, 0);
        check_plan(path, 10, 0); /* it ends with the second */
        check_plan(path, 11, 20);
        check_plan(path, 12, 20);
        check_plan(path, 49, 20);
        check_plan(path, 200, 20);
}

static void write_frames(const uint8_t *bytes, size_t n)
{
        write_file(bytes, n * SAMPLE_FRAME_BYTES);
}

static int plan_of(struct vdif_plan *ret, struct error *e)
{
        struct stream_source *s;
        int r;

        assert_int_equal(stream_source_open(&s, path, KEY, e), 0);
        r = stream_source_plan(s, ret, e);
        stream_source_free(s);
        return r;
}

/* Of 32 samples each; the header states 1000 of them in a second. */
static void set_edv3(uint8_t *bytes, size_t frames)
{
        const uint32_t word = UINT32_C(3) << 24 | 16;

        for (size_t i = 0; i < frames; i++)
                memcpy(bytes + i * SAMPLE_FRAME_BYTES + 16, &word, sizeof word);
}

TEST(frames_count_more_than_a_header)
{
        uint8_t bytes[200 * SAMPLE_FRAME_BYTES];
        static struct vdif_plan plan;
        struct error e;

        /* Nothing contradicts the header. */
        make_recording(bytes, 10);
        set_edv3(bytes, 10);
        write_frames(bytes, 10);
        assert_int_equal(plan_of(&plan, &e), 0);
        assert_fields(&plan, frames_per_second, 1000, header_frames_per_second, 1000);
        /* A second ends after 20. */
        make_recording(bytes, 200);
        set_edv3(bytes, 200);
        write_frames(bytes, 200);
        assert_int_equal(plan_of(&plan, &e), 0);
        assert_fields(&plan, frames_per_second, 20, header_frames_per_second, 1000);
        /* There are higher numbers, in the first frames and in the last one. */
        for (uint32_t high = 0; high < 200; high += 199) {
                for (uint32_t i = 0; i < 200; i++)
                        sample_frame(bytes + i * SAMPLE_FRAME_BYTES, 7, i + (i >= high ? 900 : 0), 0, 0);
                set_edv3(bytes, 200);
                write_frames(bytes, 200);
                assert_int_equal(plan_of(&plan, &e), 0);
                assert_int_equal(plan.frames_per_second, 0);
        }
}

/* Neither fillers nor damage nor missing frames show another rate. */
TEST(a_recording_with_faults_shows_its_rate)
{
        uint8_t bytes[200 * SAMPLE_FRAME_BYTES];
        static struct vdif_plan plan;
        struct error e;

        for (size_t cut = 0; cut < 12; cut += 2) {
                size_t frames = 200 - cut;

                make_recording(bytes, 200);
                for (size_t i = cut; i < 200; i += 7) {
                        sample_frame(bytes + i * SAMPLE_FRAME_BYTES, 0, 0, 0, 0);
                        if (i % 2)
                                vdif_set_invalid(bytes + i * SAMPLE_FRAME_BYTES, true);
                        else
                                bytes[i * SAMPLE_FRAME_BYTES + 8] = 0;
                }
                /* Some of the last frames of the first second. */
                memmove(bytes + (10 - cut) * SAMPLE_FRAME_BYTES, bytes + 10 * SAMPLE_FRAME_BYTES,
                        190 * SAMPLE_FRAME_BYTES);
                sample_frame(bytes, 7, 15, 1, 0);
                write_frames(bytes, frames);
                assert_int_equal(plan_of(&plan, &e), 0);
                assert_fields(&plan, frames_per_second, 20, n_threads, 2);
        }
}

TEST(a_short_recording_may_be_damaged)
{
        uint8_t bytes[3 * SAMPLE_FRAME_BYTES];
        static struct vdif_plan plan;
        struct error e;

        make_recording(bytes, 3);
        bytes[SAMPLE_FRAME_BYTES + 8] = 0;
        write_frames(bytes, 3);
        assert_int_equal(plan_of(&plan, &e), 0);
        /* No header follows the first one. */
        bytes[2 * SAMPLE_FRAME_BYTES + 8] = 0;
        write_frames(bytes, 3);
        assert_int_equal(plan_of(&plan, &e), -EBADMSG);
        assert_non_null(strstr(e.message, "frame of 40 bytes, but no other header follows"));
}

TEST(other_formats_are_recognized)
{
        static const struct {
                const char *begin, *name;
        } files[] = {{"HEADER       DADA                # Distributed", "it looks like a DADA file"},
                     {"HDR_VERSION 1.0\nHDR_SIZE 4096\n", "it looks like a DADA file"},
                     {"#!/usr/bin/env python3\n", "it looks like text"},
                     {"\xed\xde\xad\xab", "it looks like a Mark 5B recording"}};
        static struct vdif_plan plan;

        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
                struct error e = {};
                char bytes[4096];

                memset(bytes, i == 3 ? 0 : ' ', sizeof bytes);
                memcpy(bytes, files[i].begin, strlen(files[i].begin));
                write_file(bytes, sizeof bytes);
                assert_int_equal(plan_of(&plan, &e), -EBADMSG);
                assert_non_null(strstr(e.message, files[i].name));
        }
}

/* Returns what stream_source_rate() does. */
static int rate_of(struct vdif_plan *plan, bool known, struct error *e)
{
        _cleanup_(stream_source_freep) struct stream_source *s;

        assert_int_equal(stream_source_open(&s, path, KEY, e), 0);
        return stream_source_rate(s, plan, known, e);
}

TEST(a_plain_file_may_have_a_rate)
{
        const size_t size = 25 * MARK5B_FRAME_BYTES;
        static struct vdif_plan plan;
        struct error e = {};
        uint8_t *bytes = calloc(1, size);

        /* 7 frames a second, from number 3 on; the last ones of a second are missing. */
        for (uint32_t i = 0, number = 3; i < 25; i++, number += number % 7 == 5 && i < 5 ? 2 : 1) {
                const uint32_t words[4] = {0xabaddeed, number % 7, 0x82119801 + number / 7};

                memcpy(bytes + (size_t)i * MARK5B_FRAME_BYTES, words, sizeof words);
        }
        write_file(bytes, size);
        assert_int_equal(rate_of(&plan, false, &e), 0);
        assert_fields(&plan, frames_per_second, 7, frame_bytes, MARK5B_FRAME_BYTES, n_threads, 1);
        /* Of less than a second. */
        write_file(bytes, 2 * MARK5B_FRAME_BYTES);
        assert_int_equal(rate_of(&plan, false, &e), 0);
        assert_int_equal(plan.frames_per_second, 0);
        memcpy(bytes, "SIMPLE  =", 9);
        write_file(bytes, size);
        assert_int_equal(rate_of(&plan, false, &e), -EBADMSG);
        assert_string_equal(e.message,
                            "the rate of a FITS file is not known; use --rate RATE or --frame-rate");
        assert_int_equal(rate_of(&plan, true, &e), 0);
        assert_int_equal(plan.frame_bytes, 0);
        free(bytes);
}

TEST(a_recording_may_come_through_a_pipe)
{
        uint8_t bytes[10 * SAMPLE_FRAME_BYTES], out[10 * SAMPLE_FRAME_BYTES];
        int fds[2], before = dup(STDIN_FILENO);
        static struct vdif_plan plan;
        struct stream_source *s;
        struct error e;

        make_recording(bytes, 10);
        assert_int_equal(pipe(fds), 0);
        assert_int_equal(write(fds[1], bytes, sizeof bytes), sizeof bytes);
        close(fds[1]);
        dup2(fds[0], STDIN_FILENO);
        close(fds[0]);
        assert_int_equal(stream_source_open(&s, "-", KEY, &e), 0);
        assert_int_equal(stream_source_plan(s, &plan, &e), 0);
        assert_int_equal(plan.n_threads, 2);
        assert_int_equal(read_some(s, out, sizeof out), sizeof out);
        assert_memory_equal(out, bytes, sizeof out);
        stream_source_free(s);
        dup2(before, STDIN_FILENO);
        close(before);
}

TEST(what_is_no_recording_is_explained)
{
        static struct vdif_plan plan;
        uint8_t zeros[100] = {};
        struct error e = {};
        struct stream_source *s;

        write_file(zeros, sizeof zeros);
        assert_int_equal(stream_source_open(&s, path, KEY, &e), 0);
        assert_int_equal(stream_source_plan(s, &plan, &e), -EBADMSG);
        assert_string_equal(e.location, path);
        stream_source_free(s);
        write_file(zeros, 10);
        assert_int_equal(stream_source_open(&s, path, KEY, &e), 0);
        assert_int_equal(stream_source_plan(s, &plan, &e), -EBADMSG);
        stream_source_free(s);
        assert_int_equal(stream_source_open(&s, "pattern:1MB", KEY, &e), 0);
        assert_true(stream_source_plan(s, &plan, &e) < 0);
        stream_source_free(s);
}

TEST(a_silent_pipe_can_be_stopped)
{
        int fds[2], before = dup(STDIN_FILENO);
        _Atomic bool stop = true;
        bool ended = false;
        uint8_t byte;
        struct stream_source *s;
        struct error e;

        assert_int_equal(pipe(fds), 0);
        dup2(fds[0], STDIN_FILENO);
        assert_int_equal(stream_source_open(&s, "-", KEY, &e), 0);
        assert_int_equal(stream_source_fill(s, &(struct iovec){&byte, 1}, 1, &stop, &ended), 0);
        assert_true(ended);
        stream_source_free(s);
        dup2(before, STDIN_FILENO);
        close(before);
        close(fds[0]);
        close(fds[1]);
}

TEST(a_slow_pipe_does_not_wait_for_more_than_a_packet)
{
        int fds[2], before = dup(STDIN_FILENO);
        uint8_t bytes[40], out[64];
        const struct iovec parts[4] = {{out, 16}, {out + 16, 16}, {out + 32, 16}, {out + 48, 16}};
        struct stream_source *s;
        struct error e;
        bool ended;

        pattern_fill(1, bytes, 0, sizeof bytes);
        assert_int_equal(pipe(fds), 0);
        dup2(fds[0], STDIN_FILENO);
        assert_int_equal(write(fds[1], bytes, 32), 32);
        assert_int_equal(stream_source_open(&s, "-", KEY, &e), 0);
        assert_int_equal(stream_source_fill(s, parts, 4, NULL, &ended), 32);
        assert_false(ended);
        assert_memory_equal(out, bytes, 32);
        assert_int_equal(write(fds[1], bytes + 32, 8), 8);
        close(fds[1]);
        assert_int_equal(stream_source_fill(s, parts, 4, NULL, &ended), 8);
        assert_true(ended);
        assert_memory_equal(out, bytes + 32, 8);
        stream_source_free(s);
        dup2(before, STDIN_FILENO);
        close(before);
        close(fds[0]);
}

static int begin(void **state)
{
        int fd = mkstemp(path);

        return fd < 0 ? -1 : close(fd);
}

static int end(void **state)
{
        return unlink(path);
}

TESTS_BETWEEN(begin, end)
