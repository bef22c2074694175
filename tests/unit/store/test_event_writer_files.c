/* Tests how the writer numbers its files, and how it protects the open one. */
#include "../test.h"

#include <fcntl.h>
#include <signal.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "writer_sample.h"

struct left {
        unsigned n;
        char last[PATH_MAX];
        pid_t writer;
};

static void on_left(void *userdata, const char *path, pid_t writer)
{
        struct left *left = userdata;

        left->n++;
        left->writer = writer;
        snprintf(left->last, sizeof left->last, "%s", path);
}

/* A new writer begins after the highest existing number. */
TEST_WITH(test_next_free_number, setup, teardown)
{
        static const struct {
                const char *name, *next;
                unsigned left;
        } files[] = {
                {CORE "._0001.data", CORE "._0002.writing", 0},
                {CORE "._0003.writing", CORE "._0004.writing", 1},
                {CORE "._0012.data", CORE "._0013.writing", 1},
                {CORE "0._0090.data", CORE "._0013.writing", 1},
                {CORE "._00x0.data", CORE "._0013.writing", 1},
                {CORE "._0090.dataset", CORE "._0013.writing", 1},
                {CORE "._10000.data", CORE "._10001.writing", 1},
        };
        struct left left;
        char path[PATH_MAX];

        s.closed = NULL;
        s.left = on_left;
        s.userdata = &left;
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                size_t size_bytes;

                left = (struct left){0};
                snprintf(path, sizeof path, "%s/%s", (const char *)*state, files[i].name);
                sample_write(path, "precious", 8);
                start();
                assert_string_equal(strrchr(event_writer_path(w), '/') + 1, files[i].next);
                assert_int_equal(left.n, files[i].left);
                unlink(event_writer_path(w));
                event_writer_free(take_ptr(w));
                _cleanup_free_ uint8_t *bytes = sample_read(path, &size_bytes);

                assert_int_equal(size_bytes, 8);
                assert_memory_equal(bytes, "precious", 8);
        }
        assert_string_equal(strrchr(left.last, '/') + 1, CORE "._0003.writing");
        assert_int_equal(left.writer, 0);
}

/* It also skips a number that another writer takes in the meantime. */
TEST_WITH(test_number_taken_concurrently, setup, teardown)
{
        char path[PATH_MAX];

        s.file_events = 1;
        start();
        snprintf(path, sizeof path, "%s/" CORE "._0002.data", (const char *)*state);
        sample_write(path, "precious", 8);
        assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
        assert_int_equal(sample_put(w, &eformat_3, 1, 8), 0);
        finish();
        assert_string_equal(strrchr(closed.last, '/'), "/" CORE "._0003.data");
        assert_int_equal(closed.events, 2);
}

static unsigned closed_meanwhile;

int __real_openat64(int directory_fd, const char *name, int flags, mode_t mode);
int __wrap_openat64(int directory_fd, const char *name, int flags, mode_t mode);

/* Another writer closes its file just before ours creates one with the same number. */
int __wrap_openat64(int directory_fd, const char *name, int flags, mode_t mode)
{
        char writing[96], final[96];

        snprintf(writing, sizeof writing, CORE "._%04u.writing", closed_meanwhile);
        snprintf(final, sizeof final, CORE "._%04u.data", closed_meanwhile);
        if (flags & O_CREAT && strcmp(name, writing) == 0)
                assert_int_equal(renameat(directory_fd, writing, directory_fd, final), 0);
        return __real_openat64(directory_fd, name, flags, mode);
}

TEST_WITH(test_number_used_up_concurrently, setup, teardown)
{
        char path[PATH_MAX];
        size_t size_bytes;

        s.file_events = 1;
        start();
        snprintf(path, sizeof path, "%s/" CORE "._0002.writing", (const char *)*state);
        sample_write(path, "precious", 8);
        closed_meanwhile = 2;
        assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
        assert_int_equal(sample_put(w, &eformat_3, 1, 8), 0);
        closed_meanwhile = 0;
        finish();
        assert_string_equal(strrchr(closed.last, '/'), "/" CORE "._0003.data");
        assert_int_equal(closed.events, 2);
        assert_int_equal(access(path, F_OK), -1);
        snprintf(path, sizeof path, "%s/" CORE "._0002.data", (const char *)*state);
        _cleanup_free_ uint8_t *bytes = sample_read(path, &size_bytes);
        assert_int_equal(size_bytes, 8);
        assert_memory_equal(bytes, "precious", 8);
}

/* If the open file is removed, the next write fails, before more events are lost. */
TEST_WITH(test_removed_while_written, setup, teardown)
{
        static const size_t sizes[] = {8, 8 << 20}; /* buffered and unbuffered */

        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                struct event_writer_counts counts;
                int r;

                start();
                assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
                assert_int_equal(event_writer_flush(w, SAMPLE_NOW), 0);
                assert_int_equal(unlink(event_writer_path(w)), 0);
                r = sample_put(w, &eformat_3, 1, sizes[i]);
                if (r == 0)
                        r = event_writer_flush(w, SAMPLE_NOW);
                assert_int_equal(r, -ENOENT);
                assert_int_equal(event_writer_close(w, SAMPLE_NOW), -ENOENT);
                event_writer_counts(w, &counts);
                assert_int_equal(counts.events_written, 1);
                assert_int_equal(closed.n, 0);
                event_writer_free(take_ptr(w));
        }
}

/* A file that somebody empties, to make room, is not sealed as if it held its events; nor one that grew. */
TEST_WITH(test_resized_while_written, setup, teardown)
{
        static const struct {
                size_t next_bytes; /* of the next event; 0: none, the file is closed */
                off_t change_bytes;
        } cases[] = {{8, 0}, {8 << 20, 0}, {0, 0}, {0, -4}, {0, 4}};

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct stat st;
                int r = 0;

                start();
                assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
                assert_int_equal(event_writer_flush(w, SAMPLE_NOW), 0);
                assert_int_equal(stat(event_writer_path(w), &st), 0);
                assert_int_equal(truncate(event_writer_path(w), cases[i].change_bytes == 0
                                                                        ? 0
                                                                        : st.st_size + cases[i].change_bytes),
                                 0);
                if (cases[i].next_bytes > 0)
                        r = sample_put(w, &eformat_3, 1, cases[i].next_bytes);
                if (r == 0)
                        r = event_writer_close(w, SAMPLE_NOW);
                assert_int_equal(r, -EBADFD);
                assert_int_equal(event_writer_close(w, SAMPLE_NOW), -EBADFD);
                assert_int_equal(closed.n, 0);
                assert_non_null(strstr(event_writer_path(w), ".writing"));
                event_writer_free(take_ptr(w));
        }
}

/* Another file in place of the open one does not get its final name. */
TEST_WITH(test_replaced_while_written, setup, teardown)
{
        char moved[PATH_MAX];

        start();
        assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
        assert_int_equal(event_writer_flush(w, SAMPLE_NOW), 0);
        snprintf(moved, sizeof moved, "%s.old", event_writer_path(w));
        assert_int_equal(rename(event_writer_path(w), moved), 0);
        sample_write(event_writer_path(w), "another", 7);
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), -EBADFD);
        assert_int_equal(closed.n, 0);
        assert_int_equal(access(event_writer_path(w), F_OK), 0);
        assert_non_null(strstr(event_writer_path(w), ".writing"));
        assert_int_equal(sample_events(moved), 1);
        event_writer_free(take_ptr(w));
}

/* The events are in the directory that the writer opened, but nobody finds them by their path. */
TEST_WITH(test_directory_replaced_while_written, setup, teardown)
{
        const char *directory = *state;
        char moved[PATH_MAX];

        start();
        assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
        snprintf(moved, sizeof moved, "%s.old", directory);
        assert_int_equal(rename(directory, moved), 0);
        assert_int_equal(mkdir(directory, 0700), 0);
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), -ESTALE);
        assert_int_equal(closed.n, 1);
        assert_int_equal(rmdir(directory), 0);
        assert_int_equal(rename(moved, directory), 0);
        assert_int_equal(sample_events(event_writer_path(w)), 1);
        event_writer_free(take_ptr(w));
}

TEST(errors_have_descriptions)
{
        assert_string_equal(event_writer_describe_error(-EBADFD),
                            "another program changed or replaced the file");
        assert_string_equal(event_writer_describe_error(-ESTALE),
                            "another program moved or replaced the directory of the files");
        assert_string_equal(event_writer_describe_error(-EIO), strerror(EIO));
        assert_true(event_writer_is_full(-ENOSPC) && event_writer_is_full(-EDQUOT));
        assert_false(event_writer_is_full(-EIO));
}

/* A file that is emptied while the kernel takes data for it has the expected size again after that. */
TEST_WITH(test_resized_at_any_moment, setup, teardown)
{
        for (unsigned i = 0; i < 200; i++) {
                pid_t child;
                int r = 0;

                closed = (struct closed){0};
                start();
                child = fork();
                assert_true(child >= 0);
                if (child == 0) {
                        usleep(i * 10);
                        _exit(truncate(event_writer_path(w), 0) == 0 ? 0 : 1);
                }
                for (uint64_t event = 0; waitpid(child, NULL, WNOHANG) == 0 && r == 0; event++) {
                        r = sample_put(w, &eformat_3, event, 300000);
                        if (r == 0)
                                r = event_writer_flush(w, SAMPLE_NOW);
                }
                if (r == 0)
                        r = event_writer_close(w, SAMPLE_NOW);
                else
                        waitpid(child, NULL, 0);
                /* A direct write of the first block writes all of the file. */
                if (r == 0 && s.direct && closed.n == 1)
                        assert_int_equal(sample_events(closed.last), closed.events);
                else {
                        assert_int_equal(r, -EBADFD);
                        assert_int_equal(closed.n, 0);
                }
                event_writer_free(take_ptr(w));
        }
}

/* In a child process: writes two events, reports it, and waits until it is killed. */
static _Noreturn void write_and_wait(int to)
{
        bool done = event_writer_new(&w, &s, SAMPLE_NOW) == 0 && sample_put(w, &eformat_3, 0, 100) == 0 &&
                    sample_put(w, &eformat_3, 1, 100) == 0 && event_writer_flush(w, SAMPLE_NOW) == 0;

        if (write(to, &done, 1) != 1)
                _exit(1);
        for (;;)
                pause();
}

static void assert_same_bytes(const char *path, const uint8_t *bytes, size_t size_bytes)
{
        size_t now_bytes;
        _cleanup_free_ uint8_t *now = sample_read(path, &now_bytes);

        assert_int_equal(now_bytes, size_bytes);
        assert_memory_equal(now, bytes, size_bytes);
}

/* Repair refuses a file that another process writes and names that process. It works once that process ends.
 */
TEST_WITH(test_locked_while_written, setup, teardown)
{
        char path[PATH_MAX], copy[PATH_MAX];
        struct event_file_repair repair;
        size_t size_bytes;
        bool done = false;
        int pipes[2];
        pid_t pid;

        assert_int_equal(pipe(pipes), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
                write_and_wait(pipes[1]);
        assert_int_equal(read(pipes[0], &done, 1), 1);
        assert_true(done);
        snprintf(path, sizeof path, "%s/" CORE "._0001.writing", (const char *)*state);
        snprintf(copy, sizeof copy, "%s/copy", (const char *)*state);
        assert_int_equal(truncate(path, 500), 0); /* damages the file */
        _cleanup_free_ uint8_t *bytes = sample_read(path, &size_bytes);

        assert_int_equal(event_file_repair(path, NULL, SAMPLE_NOW, &repair), -EBUSY);
        assert_int_equal(repair.holder, pid);
        assert_int_equal(event_file_repair(path, copy, SAMPLE_NOW, &repair), -EBUSY);
        assert_int_equal(repair.holder, pid);
        assert_int_equal(access(copy, F_OK), -1);
        assert_same_bytes(path, bytes, size_bytes);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(event_file_repair(path, NULL, SAMPLE_NOW, &repair), 0);
        assert_false(repair.was_whole);
        close(pipes[0]);
        close(pipes[1]);
}

/* Returns how many pages of a file are in the page cache. */
static size_t cached_pages(const char *path)
{
        static unsigned char resident[1024];
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        size_t n = 0;
        void *map;

        assert_int_equal(fstat(fd, &st), 0);
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        assert_int_equal(mincore(map, (size_t)st.st_size, resident), 0);
        munmap(map, (size_t)st.st_size);
        close(fd);
        for (long i = 0; i < st.st_size / sysconf(_SC_PAGESIZE); i++)
                n += resident[i] & 1;
        return n;
}

/* By default, the memory of a closed file is free for the next one. Direct writes need none. */
TEST_WITH(test_closed_file_in_page_cache, setup, teardown)
{
        static uint8_t bytes[1 << 20];
        struct iovec iov = {bytes, sizeof bytes};
        struct statfs fs;

        if (statfs(*state, &fs) < 0 || fs.f_type == TMPFS_MAGIC) {
                print_message("skipped: %s is on a tmpfs\n", (const char *)*state);
                return;
        }
        for (int keeps = 0; keeps < 2; keeps++) {
                s.keeps_cached = keeps;
                start();
                for (int i = 0; i < 3; i++)
                        assert_int_equal(event_writer_write(w, &iov, 1, sizeof bytes, 0, NULL, SAMPLE_NOW),
                                         0);
                finish();
                event_writer_free(take_ptr(w));
                if (!keeps)
                        assert_int_equal(cached_pages(closed.last), 0);
                else if (!s.direct)
                        assert_true(cached_pages(closed.last) > 0);
        }
}

int main(int argc, char **argv)
{
        if (!sample_can_write())
                return 77;
        return test_run(argc, argv, NULL, NULL);
}
