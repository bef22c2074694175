/* Tests the event writer when the kernel is late, writes less than it should, or fails in the background. */

#include "../test.h"

#include "sys/uring.h"
#include "writer_sample.h"

#define BUFFER_BYTES 8192u
#define EVENT_BYTES 500u

bool __real_uring_completion(struct uring *u, struct io_uring_cqe *ret);

static unsigned late;  /* how often a completion does not come yet */
static unsigned whole; /* completions before the one that is changed */
static int result;     /* of that one; 0: none is changed */
static unsigned completions;

bool __wrap_uring_completion(struct uring *u, struct io_uring_cqe *ret)
{
        if (late > 0) {
                late--;
                return false;
        }
        if (!__real_uring_completion(u, ret))
                return false;
        completions++;
        if (result != 0 && whole-- == 0) {
                ret->res = result;
                result = 0;
        }
        return true;
}

static bool has_uring(void)
{
        struct uring *u;

        if (uring_new(&u, 1, 1) < 0)
                return false;
        uring_free(u);
        return true;
}

static int has_direct;

static void begin(const char *directory, bool direct)
{
        if (!has_uring()) {
                print_message("skipped: no io_uring\n");
                skip();
        }
        make_settings(directory);
        late = whole = completions = 0;
        result = 0;
        s.background = true;
        s.direct = direct;
        s.buffer_bytes = BUFFER_BYTES;
        start();
}

static uint64_t written(void)
{
        struct event_writer_counts counts;

        event_writer_counts(w, &counts);
        return counts.events_written;
}

/* The bytes that count as written are in the file, beside its end record. */
static uint64_t written_bytes(void)
{
        struct event_writer_counts counts;
        struct stat st;

        event_writer_counts(w, &counts);
        assert_int_equal(stat(event_writer_path(w), &st), 0);
        assert_true(counts.written_bytes + EVENT_FILE_END_BYTES <= (uint64_t)st.st_size);
        return counts.written_bytes;
}

/* Returns the number of events that make the writer begin a write. */
static uint64_t fill(uint64_t first)
{
        struct event_writer_counts before, counts;
        uint64_t n = 0;

        event_writer_counts(w, &before);
        do {
                assert_int_equal(sample_put(w, &eformat_3, first + n, EVENT_BYTES), 0);
                event_writer_counts(w, &counts);
                n++;
        } while (counts.file_bytes < before.file_bytes + BUFFER_BYTES);
        return n;
}

/* Events count as written when the kernel has them, and not when it got the order. */
TEST_WITH(test_counts_with_the_completion, setup, teardown)
{
        for (int direct = 0; direct <= has_direct; direct++) {
                uint64_t first, second;

                begin(*state, direct);
                late = UINT32_MAX;
                first = fill(0);
                assert_true(first > 2);
                assert_int_equal(event_writer_poll(w), 0);
                assert_int_equal(written(), 0);
                assert_true(written_bytes() < BUFFER_BYTES);
                late = 3; /* the next write waits for the end of this one */
                second = fill(first);
                assert_int_equal(late, 0);
                assert_in_range(written(), first - 1, first);
                while (written() <= first)
                        assert_int_equal(event_writer_poll(w), 0);
                assert_int_equal(event_writer_flush(w, SAMPLE_NOW), 0);
                assert_true(written_bytes() > BUFFER_BYTES);
                assert_int_equal(written(), first + second);
                assert_int_equal(sample_events(event_writer_path(w)), first + second);
                finish();
                assert_int_equal(closed.events, first + second);
                assert_int_equal(sample_events(closed.last), first + second);
                event_writer_free(take_ptr(w));
        }
}

/* A killed process loses what it has in memory; what it wrote stays readable. */
TEST_WITH(test_free_ends_the_write, setup, teardown)
{
        for (int direct = 0; direct <= has_direct; direct++) {
                char path[PATH_MAX];
                uint64_t n;

                begin(*state, direct);
                late = 2;
                n = fill(0);
                snprintf(path, sizeof path, "%s", event_writer_path(w));
                event_writer_free(take_ptr(w));
                assert_int_equal(late, 0);
                assert_in_range(sample_events(path), n - 1, n);
        }
}

TEST_WITH(test_short_writes_are_completed, setup, teardown)
{
        static const int sizes[] = {1, 511, 512, 4095, 4096, 4097, 8000};

        for (size_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
                uint64_t n;

                begin(*state, i % 2 == 1 && has_direct);
                result = sizes[i / 2];
                n = fill(0);
                n += fill(n);
                n += fill(n);
                finish();
                assert_int_equal(result, 0);
                assert_int_equal(sample_events(closed.last), n);
                event_writer_free(take_ptr(w));
        }
}

/* As without the background: the file ends with the last event that is in it. */
TEST_WITH(test_errors, setup, teardown)
{
        for (unsigned i = 0; i < 16; i++) {
                struct event_writer_counts counts;
                uint64_t accepted = 0;
                int error = i < 8 ? -ENOSPC : -EIO, r;

                begin(*state, i % 2 == 1 && has_direct);
                whole = i / 2 % 4;
                result = error;
                while ((r = sample_put(w, &eformat_3, accepted, EVENT_BYTES)) == 0)
                        assert_true(++accepted < 1000);
                assert_int_equal(r, error);
                assert_int_equal(completions, i / 2 % 4 + 1);
                assert_int_equal(event_writer_poll(w), error);
                assert_int_equal(event_writer_flush(w, SAMPLE_NOW), error);
                assert_int_equal(event_writer_close(w, SAMPLE_NOW), error);
                event_writer_counts(w, &counts);
                assert_true(counts.events_lost > 0);
                assert_int_equal(counts.events + counts.events_lost, accepted);
                assert_int_equal(counts.events_written, counts.events);
                assert_int_equal(closed.events, counts.events);
                assert_int_equal(sample_events(closed.last), counts.events);
                event_writer_free(take_ptr(w));
        }
}

/* A request that the kernel did not carry out is repeated. */
TEST_WITH(test_repeats, setup, teardown)
{
        static const int errors[] = {-EAGAIN, -EINTR, -EINVAL};

        for (size_t i = 0; i < 2 * ARRAY_SIZE(errors); i++) {
                uint64_t n;

                begin(*state, i % 2 == 1 && has_direct);
                result = errors[i / 2];
                n = fill(0);
                finish();
                assert_int_equal(result, 0);
                assert_int_equal(sample_events(closed.last), n);
                event_writer_free(take_ptr(w));
        }
}

int main(int argc, char **argv)
{
        has_direct = sample_has_direct();
        return test_run(argc, argv, NULL, NULL);
}
