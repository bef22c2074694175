/* The files of a stream from disk to disk: an output that differs, ends early or goes on is found. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "lab/streams/stream_files.h"

#define SIZE ((3 << 20) + 77)

static struct stream_files files;
static uint8_t bytes[SIZE];

static int begin(void **state)
{
        struct error e = {};

        assert_int_equal(stream_files_init(&files, SIZE, &e), 0);
        assert_int_equal(pread(files.input, bytes, SIZE, 0), SIZE);
        return 0;
}

static int end(void **state)
{
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

TEST_WITH(equal_files_are_the_same, begin, end)
{
        bool same = false;

        assert_int_equal(after(SIZE, &same), SIZE);
        assert_true(same);
}

TEST_WITH(an_output_that_ends_early_is_corrupt, begin, end)
{
        static const size_t ends[] = {0, 1, 1 << 20, (3 << 20) - 1, 3 << 20, SIZE - 1};

        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                bool same = true;

                assert_int_equal(after(ends[i], &same), ends[i]);
                assert_false(same);
        }
}

TEST_WITH(a_byte_that_differs_is_found, begin, end)
{
        static const size_t places[] = {0, (1 << 20) - 1, 1 << 20, SIZE - 1};

        for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
                bool same = true;

                bytes[places[i]] ^= 1;
                assert_int_equal(after(SIZE, &same), places[i]);
                assert_false(same);
                bytes[places[i]] ^= 1;
        }
}

TEST_WITH(an_output_that_goes_on_is_corrupt, begin, end)
{
        bool same = true;

        (void)after(SIZE, &same);
        assert_int_equal(pwrite(files.output, "x", 1, SIZE), 1);
        assert_int_equal(stream_files_compare(&files, &same), SIZE);
        assert_false(same);
}

/* Another process opens them by these paths. */
TEST_WITH(the_files_have_paths, begin, end)
{
        char path[STREAM_FILES_PATH_MAX];
        bool same = true;
        int fd;

        stream_files_path(files.output, path);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, bytes, 100), 100);
        close(fd);
        assert_int_equal(stream_files_compare(&files, &same), 100);
}

TEST(a_disk_without_room_is_named)
{
        char lack[200] = "";

        assert_true(stream_files_are_possible(0, false, lack, sizeof lack) || strstr(lack, "needs 1.0 GB"));
        assert_false(stream_files_are_possible(UINT64_C(1) << 60, false, lack, sizeof lack));
        assert_non_null(strstr(lack, "needs 2305843010.2 GB in /var/tmp, where "));
}
