/* The files of a stream from disk to disk: an output that differs, ends early or goes on is found. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "streams/stream_files.h"

#define SIZE ((3 << 20) + 77)

static struct stream_files files;
static uint8_t bytes[SIZE];

static int begin(void **state)
{
        struct error e = {};

        (void)state;
        assert_int_equal(stream_files_init(&files, SIZE, &e), 0);
        assert_int_equal(pread(files.input, bytes, SIZE, 0), SIZE);
        return 0;
}

static int end(void **state)
{
        (void)state;
        stream_files_fini(&files);
        assert_int_equal(files.input, -1);
        stream_files_fini(&files);
        return 0;
}

/* Puts the first n bytes of the input into the output, and returns how many are the same. */
static int64_t after(size_t n, bool *ret_same)
{
        assert_int_equal(ftruncate(files.output, 0), 0);
        assert_int_equal(pwrite(files.output, bytes, n, 0), n);
        return stream_files_compare(&files, ret_same);
}

static void equal_files_are_the_same(void **state)
{
        bool same = false;

        (void)state;
        assert_int_equal(after(SIZE, &same), SIZE);
        assert_true(same);
}

static void an_output_that_ends_early_is_corrupt(void **state)
{
        static const size_t ends[] = {0, 1, 1 << 20, (3 << 20) - 1, 3 << 20, SIZE - 1};

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                bool same = true;

                assert_int_equal(after(ends[i], &same), ends[i]);
                assert_false(same);
        }
}

static void a_byte_that_differs_is_found(void **state)
{
        static const size_t places[] = {0, (1 << 20) - 1, 1 << 20, SIZE - 1};

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
                bool same = true;

                bytes[places[i]] ^= 1;
                assert_int_equal(after(SIZE, &same), places[i]);
                assert_false(same);
                bytes[places[i]] ^= 1;
        }
}

static void an_output_that_goes_on_is_corrupt(void **state)
{
        bool same = true;

        (void)state;
        (void)after(SIZE, &same);
        assert_int_equal(pwrite(files.output, "x", 1, SIZE), 1);
        assert_int_equal(stream_files_compare(&files, &same), SIZE);
        assert_false(same);
}

/* Another process opens them by these paths. */
static void the_files_have_paths(void **state)
{
        char path[STREAM_FILES_PATH_MAX];
        bool same = true;
        int fd;

        (void)state;
        stream_files_path(files.output, path);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, bytes, 100), 100);
        close(fd);
        assert_int_equal(stream_files_compare(&files, &same), 100);
}

static void a_disk_without_room_is_named(void **state)
{
        char lack[200] = "";

        (void)state;
        assert_true(stream_files_are_possible(0, false, lack, sizeof lack) || strstr(lack, "needs 1.0 GB"));
        assert_false(stream_files_are_possible(UINT64_C(1) << 60, false, lack, sizeof lack));
        assert_non_null(strstr(lack, "needs 2305843010.2 GB in /var/tmp, where "));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                CASE(equal_files_are_the_same),     CASE(an_output_that_ends_early_is_corrupt),
                CASE(a_byte_that_differs_is_found), CASE(an_output_that_goes_on_is_corrupt),
                CASE(the_files_have_paths),         cmocka_unit_test(a_disk_without_room_is_named),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
