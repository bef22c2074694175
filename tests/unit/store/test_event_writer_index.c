/* Tests the index that the writer makes of each file. */
#include "../test.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "writer_sample.h"

static struct {
        unsigned n;
        int error;
        char path[PATH_MAX];
} unindexed;

static void on_unindexed(void *userdata, const char *path, int error)
{
        assert_ptr_equal(userdata, &closed);
        unindexed.n++;
        unindexed.error = error;
        snprintf(unindexed.path, sizeof unindexed.path, "%s", path);
}

static int setup_index(void **state)
{
        setup(state);
        s.indexed = true;
        s.unindexed = on_unindexed;
        memset(&unindexed, 0, sizeof unindexed);
        return 0;
}

static const char *in_directory(const char *directory, const char *name)
{
        static char path[2][PATH_MAX];
        static unsigned next;
        char *to = path[next++ % 2];

        snprintf(to, PATH_MAX, "%s/%s", directory, name);
        return to;
}

static unsigned count_indexes(const char *directory)
{
        DIR *d = opendir(directory);
        unsigned n = 0;

        for (struct dirent *e; (e = readdir(d));)
                n += strstr(e->d_name, EVENT_FILE_INDEX) != NULL;
        closedir(d);
        return n;
}

static const char *file_name(unsigned number)
{
        static char name[sizeof CORE + 16];

        snprintf(name, sizeof name, CORE "._%04u.data", number);
        return name;
}

/* The index of the file equals the one that is made of the whole file. */
static void compare_index(const char *directory, unsigned number, uint64_t expected_events)
{
        const char *file = in_directory(directory, file_name(number));
        char path[PATH_MAX + sizeof EVENT_FILE_INDEX];
        size_t size_bytes, expected_bytes;
        struct eformat_fault fault;
        uint64_t events;
        bool at_index;

        snprintf(path, sizeof path, "%s" EVENT_FILE_INDEX, file);
        _cleanup_free_ uint8_t *bytes = sample_read(path, &size_bytes);

        assert_int_equal(event_file_write_index(file, &events, &fault, &at_index), 0);
        assert_int_equal(events, expected_events);
        _cleanup_free_ uint8_t *expected = sample_read(path, &expected_bytes);

        assert_int_equal(size_bytes, expected_bytes);
        assert_memory_equal(bytes, expected, size_bytes);
        /* The version of the first event, 36 bytes after the start of its entry. */
        if (events > 0)
                assert_int_equal(bytes[80 + 36], number <= 2 ? 3 : 5);
}

/* Small and large events, more than the index writes at once, and several files. */
TEST_WITH(test_index_equals_that_of_the_whole_file, setup_index, teardown)
{
        static const unsigned versions[] = {2, 6};
        uint64_t n = 0;

        s.file_events = 2500;
        s.buffer_bytes = 64 << 10;
        for (unsigned v = 0; v < ARRAY_SIZE(versions); v++) {
                s.version = versions[v];
                start();
                for (unsigned i = 0; i < 3100; i++, n++)
                        assert_int_equal(sample_put(w, v == 0 ? &eformat_3 : &eformat_5, n << 31,
                                                    i % 800 == 799 ? 3 << 20 : 8),
                                         0);
                finish();
                event_writer_free(take_ptr(w));
        }
        assert_int_equal(unindexed.n, 0);
        for (unsigned number = 1; number <= 4; number++)
                compare_index(*state, number, number % 2 ? 2500 : 600);
        assert_int_equal(count_indexes(*state), 4);
}

/* A file without events has an index, too. The index of an earlier file of the same name is replaced. */
TEST_WITH(test_index_replaces_an_old_one, setup_index, teardown)
{
        sample_write(in_directory(*state, CORE "._0001.data.index"), "old", 3);
        sample_write(in_directory(*state, CORE "._0001.writing.index"), "older", 5);
        start();
        finish();
        assert_int_equal(count_indexes(*state), 1);
        compare_index(*state, 1, 0);
}

/* Whatever prevents the index, the files are complete, and the failure is reported once. */
TEST_WITH(test_events_do_not_need_the_index, setup_index, teardown)
{
        static const char *const names[] = {CORE "._0001.writing.index", CORE "._0001.data.index"};

        s.file_events = 2;
        for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
                const char *blocked = in_directory(*state, names[i]);
                unsigned files = closed.n;

                assert_int_equal(mkdir(blocked, 0700), 0);
                start();
                for (unsigned event = 0; event < 5; event++)
                        assert_int_equal(sample_put(w, &eformat_3, event, 8), 0);
                finish();
                event_writer_free(take_ptr(w));
                assert_fields(&unindexed, n, i + 1, error, -EISDIR);
                assert_string_equal(unindexed.path, blocked);
                assert_int_equal(closed.n - files, 3);
                assert_int_equal(rmdir(blocked), 0);
                assert_int_equal(count_indexes(*state), 0);
                for (unsigned file = 1; file <= 3; file++) {
                        assert_int_equal(sample_events(in_directory(*state, file_name(file))),
                                         file == 3 ? 1 : 2);
                        unlink(in_directory(*state, file_name(file)));
                }
        }
}

/* A file that is not closed has no index, whether after an error, or because the writer is freed. */
TEST_WITH(test_unfinished_file_has_no_index, setup_index, teardown)
{
        start();
        assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
        assert_int_equal(event_writer_flush(w, SAMPLE_NOW), 0);
        assert_int_equal(count_indexes(*state), 1);
        event_writer_free(take_ptr(w));
        assert_int_equal(count_indexes(*state), 0);
        start();
        assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
        assert_int_equal(truncate(event_writer_path(w), 0), 0);
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), -EBADFD);
        event_writer_free(take_ptr(w));
        assert_int_equal(count_indexes(*state), 0);
        assert_int_equal(unindexed.n, 0);
}

static void fill(int fd)
{
        static const char bytes[4096];

        for (unsigned i = 0; i < 1000; i++)
                if (write(fd, bytes, sizeof bytes) < 0) {
                        assert_int_equal(errno, ENOSPC);
                        return;
                }
        fail_msg("the disk is not full");
}

/* Runs in a child process, which enters a mount namespace. Exits with 77 if it may not. */
static int on_full_tmpfs(const char *directory)
{
        _cleanup_close_ int fd = -1;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", directory, "tmpfs", 0, "size=2m") < 0)
                return 77;
        s.buffer_bytes = 1 << 20;
        start();
        fd = open(in_directory(directory, "other"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        fill(fd);
        /* The index is written in parts, the first of which precedes the first write of events. */
        for (unsigned i = 0; i < 1100; i++)
                assert_int_equal(sample_put(w, &eformat_3, i, 8), 0);
        assert_fields(&unindexed, n, 1, error, -ENOSPC);
        assert_int_equal(count_indexes(directory), 0);
        assert_int_equal(ftruncate(fd, 0), 0);
        finish();
        assert_int_equal(sample_events(closed.last), 1100);
        assert_int_equal(count_indexes(directory), 0);
        event_writer_free(take_ptr(w));
        return 0;
}

TEST_WITH(test_index_on_a_full_disk, setup_index, teardown)
{
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(on_full_tmpfs(*state));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
                print_message("index_on_a_full_disk: skipped, no privilege to mount a tmpfs\n");
                skip();
        }
        assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
        if (!sample_can_write())
                return 77;
        return test_run(argc, argv, NULL, NULL);
}
