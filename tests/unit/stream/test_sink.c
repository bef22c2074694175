/* Sinks: what is put is there, what exists is not overwritten, and what differs from the pattern is counted.
 */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pattern.h"
#include "stream/receive_threads.h"

DEFINE_FREEP(sink)

static char folder[] = "/tmp/evb-test-sink-XXXXXX", path[64];
static _Atomic bool stop;

/* The call that fails; 0: none. */
static unsigned failing_sync;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
        if (failing_sync == 0 || --failing_sync > 0)
                return __real_fdatasync(fd);
        errno = EIO;
        return -1;
}

static void check_file(const char *expected)
{
        char bytes[64] = {};
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

        assert_int_equal(read(fd, bytes, sizeof bytes), strlen(expected));
        assert_memory_equal(bytes, expected, strlen(expected));
}

static void write_file(const char *bytes)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
}

TEST(a_file_gets_all_that_is_put)
{
        struct error e = {};
        struct sink *s;

        assert_int_equal(sink_open(&s, path, false, &e), 0);
        assert_false(sink_is_pattern(s));
        assert_int_equal(sink_put(s, "abcd", 4, false, &stop), 0);
        assert_int_equal(sink_put(s, "efgh", 4, true, &stop), 0);
        assert_int_equal(sink_bytes(s), 8);
        assert_int_equal(sink_finish(s, &e), 0);
        sink_free(s);
        check_file("abcdefgh");
        sink_free(NULL);
}

TEST(a_file_is_not_overwritten)
{
        struct error e = {};
        struct sink *s;

        assert_int_equal(sink_open(&s, path, false, &e), -EEXIST);
        assert_string_equal(e.location, path);
        check_file("abcdefgh");
        /* Not before there is something else. */
        assert_int_equal(sink_open(&s, path, true, &e), 0);
        sink_free(s);
        check_file("abcdefgh");
        assert_int_equal(sink_open(&s, path, true, &e), 0);
        assert_int_equal(sink_put(s, "xyz", 3, false, &stop), 0);
        assert_int_equal(sink_finish(s, &e), 0);
        sink_free(s);
        check_file("xyz");
        /* An empty stream is something else, too. */
        assert_int_equal(sink_open(&s, path, true, &e), 0);
        assert_int_equal(sink_finish(s, &e), 0);
        sink_free(s);
        check_file("");
        unlink(path);
}

/* Neither has written anything yet. What the second one does removes nothing of the first one's. */
TEST_EACH(a_file_has_one_receiver, overwrite, 2)
{
        struct error e = {};
        struct sink *s, *second;

        (void)unlink(path);
        assert_int_equal(sink_open(&s, path, false, &e), 0);
        assert_int_equal(sink_open(&second, path, overwrite != 0, &e), -EBUSY);
        assert_non_null(strstr(e.message, "another receiver writes this file"));
        assert_int_equal(sink_put(s, "abcd", 4, true, &stop), 0);
        assert_int_equal(sink_finish(s, &e), 0);
        sink_free(s);
        check_file("abcd");
        unlink(path);
}

TEST(a_file_is_continued)
{
        struct error e = {};
        struct sink *s;
        uint64_t bytes;
        char seen[3];

        assert_int_equal(sink_open(&s, path, false, &e), 0);
        assert_int_equal(sink_put(s, "abcdefgh", 8, false, &stop), 0);
        sink_free(s);
        assert_int_equal(sink_open(&s, path, true, &e), 0);
        assert_int_equal(sink_resume(s, &bytes, &e), 0);
        assert_int_equal(bytes, 8);
        assert_int_equal(sink_read(s, 2, seen, sizeof seen), 0);
        assert_memory_equal(seen, "cde", sizeof seen);
        assert_int_equal(sink_read(s, 6, seen, sizeof seen), -ENODATA);
        assert_int_equal(sink_keep(s, 4), 0);
        check_file("abcdefgh");
        assert_int_equal(sink_put(s, "xyz", 3, false, &stop), 0);
        assert_int_equal(sink_bytes(s), 3);
        assert_int_equal(sink_finish(s, &e), 0);
        sink_free(s);
        check_file("abcdxyz");
        unlink(path);
}

static const char *const continued[] = {"pattern", "null", "/dev/full", "-"};

TEST_EACH(only_a_file_is_continued, i, ARRAY_SIZE(continued))
{
        struct error e = {};
        _cleanup_(sink_freep) struct sink *s;
        uint64_t bytes;

        assert_int_equal(sink_open(&s, continued[i], true, &e), 0);
        assert_int_equal(sink_resume(s, &bytes, &e), -EINVAL);
}

TEST(an_empty_file_does_not_stay)
{
        struct error e = {};
        struct sink *s;

        assert_int_equal(sink_open(&s, path, false, &e), 0);
        assert_int_equal(access(path, F_OK), 0);
        sink_free(s);
        assert_int_equal(access(path, F_OK), -1);
}

TEST(a_full_disk_is_explained)
{
        struct error e = {};
        struct sink *s;
        int r;

        assert_int_equal(sink_open(&s, "/dev/full", false, &e), 0);
        r = sink_put(s, "abcd", 4, false, &stop);
        assert_int_equal(r, -ENOSPC);
        assert_int_equal(sink_explain(s, r, &e), -ENOSPC);
        assert_string_equal(e.location, "/dev/full");
        sink_free(s);
        assert_true(sink_open(&s, "/nonexistent/file", false, &e) < 0);
}

/* Puts pieces that are no whole blocks, and checks the file. */
static void put_pieces(struct sink *s, size_t whole)
{
        static uint8_t bytes[100000], seen[100000];
        struct error e = {};
        size_t at = 0, n;
        _cleanup_close_ int fd;

        for (size_t piece = 1; at < whole; at += n, piece = piece * 3 % 99991) {
                n = MIN(piece, whole - at);
                pattern_fill(3, bytes, at, n);
                assert_int_equal(sink_put(s, bytes, n, false, &stop), 0);
                assert_true(sink_bytes(s) <= at + n);
        }
        assert_int_equal(sink_finish(s, &e), 0);
        assert_int_equal(sink_bytes(s), whole);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        for (at = 0; at < whole; at += n) {
                n = MIN(sizeof seen, whole - at);
                assert_int_equal(read(fd, seen, n), n);
                assert_int_equal(pattern_check(3, seen, at, n), n);
        }
        assert_int_equal(read(fd, seen, 1), 0);
}

TEST(direct_writes_make_the_same_file)
{
        static const size_t sizes[] = {0, 1, 4096, 1 << 20, (1 << 20) + 1, 5 << 20, 5555555};
        struct error e = {};

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                struct sink *s;

                assert_int_equal(sink_open(&s, path, true, &e), 0);
                if (sink_set_direct(s, &e) < 0) {
                        sink_free(s);
                        print_message("skipped: the file system of %s has no direct writes\n", folder);
                        skip();
                }
                put_pieces(s, sizes[i]);
                sink_free(s);
        }
        unlink(path);
}

TEST(a_limit_ends_direct_writes)
{
        static uint8_t bytes[3 << 20];
        struct rlimit limit, low;
        struct error e = {};
        struct sink *s;
        int r;

        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &limit);
        low = limit;
        low.rlim_cur = 1500000;
        assert_int_equal(sink_open(&s, path, false, &e), 0);
        if (sink_set_direct(s, &e) < 0)
                skip();
        setrlimit(RLIMIT_FSIZE, &low);
        r = sink_put(s, bytes, sizeof bytes, false, &stop);
        if (r == 0)
                r = sink_finish(s, &e);
        setrlimit(RLIMIT_FSIZE, &limit);
        assert_int_equal(r, -EFBIG);
        assert_int_equal(sink_bytes(s), 1500000);
        sink_free(s);
        unlink(path);
}

TEST(only_a_file_takes_direct_writes)
{
        static const char *const outputs[] = {"pattern", "null", "/dev/full", "-"};

        for (size_t i = 0; i < ARRAY_SIZE(outputs); i++) {
                struct error e = {};
                _cleanup_(sink_freep) struct sink *s;

                assert_int_equal(sink_open(&s, outputs[i], false, &e), 0);
                assert_int_equal(sink_set_direct(s, &e), -EINVAL);
                assert_string_equal(e.message, "--direct needs a file as output");
        }
}

TEST(a_pattern_is_checked)
{
        uint8_t bytes[64];
        struct error e = {};
        _cleanup_(sink_freep) struct sink *s;

        assert_int_equal(sink_open(&s, "pattern", false, &e), 0);
        assert_true(sink_is_pattern(s));
        sink_set_key(s, 5);
        for (uint64_t i = 0; i < 4; i++) {
                pattern_fill(5, bytes, i * sizeof bytes, sizeof bytes);
                bytes[63] ^= i == 2;
                assert_int_equal(sink_put(s, bytes, sizeof bytes, false, &stop), 0);
        }
        assert_int_equal(sink_corrupt(s), 1);
        /* What is missing is not corrupt. */
        memset(bytes, 0, sizeof bytes);
        assert_int_equal(sink_put(s, bytes, sizeof bytes, true, &stop), 0);
        assert_int_equal(sink_put(s, bytes, sizeof bytes, false, &stop), 0);
        assert_int_equal(sink_corrupt(s), 2);
        assert_int_equal(sink_finish(s, &e), 0);
}

TEST(a_pipe_that_nobody_reads_can_be_stopped)
{
        static uint8_t bytes[1 << 20];
        struct error e = {};
        struct sink *s;
        int reader;

        assert_int_equal(mkfifo(path, 0600), 0);
        reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        assert_int_equal(sink_open(&s, path, false, &e), 0);
        atomic_store(&stop, true);
        assert_int_equal(sink_put(s, bytes, sizeof bytes, false, &stop), -ECANCELED);
        atomic_store(&stop, false);
        sink_free(s);
        close(reader);
        assert_int_equal(unlink(path), 0);
}

/* Bytes of a scan, its time, and the name of its file. */
static const struct {
        const char *bytes, *name;
        int64_t unix_s;
} scans[] = {{"abcd", "out-20140616T055607.vdif", 1402898167},
             {"efghijk", "out-20140616T055608.vdif", 1402898168},
             {"l", "out-20140616T055609.vdif", 1402898169}};

TEST_EACH(each_scan_has_a_file, direct, 2)
{
        struct error e = {};
        struct sink *s;
        int r;

        snprintf(path, sizeof path, "%s/out.vdif", folder);
        assert_int_equal(sink_open_scans(&s, path, false, &e), 0);
        if (direct && sink_set_direct(s, &e) < 0)
                fail();
        for (size_t i = 0; i < ARRAY_SIZE(scans); i++) {
                r = sink_next(s, scans[i].unix_s, &e);
                if (direct && r == -EINVAL) {
                        sink_free(s);
                        skip(); /* a file system without O_DIRECT */
                }
                assert_int_equal(r, 0);
                assert_int_equal(sink_put(s, scans[i].bytes, strlen(scans[i].bytes), false, &stop), 0);
        }
        assert_int_equal(sink_finish(s, &e), 0);
        assert_int_equal(sink_bytes(s), 12);
        assert_int_equal(sink_files(s), 3);
        assert_int_equal(sink_renamed(s), 0);
        sink_free(s);
        for (size_t i = 0; i < ARRAY_SIZE(scans); i++) {
                snprintf(path, sizeof path, "%s/%s", folder, scans[i].name);
                check_file(scans[i].bytes);
                assert_int_equal(unlink(path), 0);
        }
        snprintf(path, sizeof path, "%s/none/out", folder);
        assert_int_equal(sink_open_scans(&s, path, false, &e), -ENOENT);
        snprintf(path, sizeof path, "%s/out", folder);
}

static const struct {
        int64_t unix_s; /* 0: of another recording */
        const char *name, *bytes;
} taken[] = {{0, "out-19700101T000002.vdif", "others"}, {0, "out-19700101T000002-2.vdif", "more"},
             {0, "out-19700101T000004.vdif", ""},       {1, "out-19700101T000001.vdif", "a"},
             {2, "out-19700101T000002-3.vdif", "b"},    {3, "out-19700101T000003.vdif", "c"},
             {4, "out-19700101T000004.vdif", "d"}};

/* An instrument does not wait for another name. */
TEST(a_later_scan_whose_name_is_taken_gets_another_one)
{
        struct error e = {};
        struct sink *s;
        char scans_path[64];

        snprintf(scans_path, sizeof scans_path, "%s/out.vdif", folder);
        assert_int_equal(sink_open_scans(&s, scans_path, false, &e), 0);
        for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
                snprintf(path, sizeof path, "%s/%s", folder, taken[i].name);
                if (taken[i].unix_s == 0) {
                        write_file(taken[i].bytes);
                        continue;
                }
                assert_int_equal(sink_next(s, taken[i].unix_s, &e), 0);
                assert_int_equal(e.code, 0);
                assert_int_equal(sink_put(s, taken[i].bytes, 1, false, &stop), 0);
        }
        assert_int_equal(sink_finish(s, &e), 0);
        assert_int_equal(sink_files(s), 4);
        assert_int_equal(sink_renamed(s), 1);
        sink_free(s);
        for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
                snprintf(path, sizeof path, "%s/%s", folder, taken[i].name);
                if (i == 2)
                        continue; /* it was empty */
                check_file(taken[i].bytes);
        }
        for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
                snprintf(path, sizeof path, "%s/%s", folder, taken[i].name);
                unlink(path);
        }
        /* Before the first scan, nothing is lost. */
        snprintf(path, sizeof path, "%s/%s", folder, taken[0].name);
        write_file("others");
        assert_int_equal(sink_open_scans(&s, scans_path, false, &e), 0);
        assert_int_equal(sink_next(s, 2, &e), -EEXIST);
        sink_free(s);
        check_file("others");
        unlink(path);
        snprintf(path, sizeof path, "%s/out", folder);
}

/* Both record the same seconds. */
TEST(a_later_scan_that_another_receiver_records_gets_another_name)
{
        struct error e = {};
        struct sink *s[2];
        char scans_path[64];

        snprintf(scans_path, sizeof scans_path, "%s/out.vdif", folder);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(sink_open_scans(&s[i], scans_path, true, &e), 0);
                assert_int_equal(sink_next(s[i], 1 + i, &e), 0);
        }
        assert_int_equal(sink_next(s[0], 2, &e), 0);
        assert_int_equal(sink_renamed(s[0]), 1);
        for (int i = 0; i < 2; i++)
                sink_free(s[i]);
        snprintf(path, sizeof path, "%s/out-19700101T000001.vdif", folder);
        unlink(path);
        snprintf(path, sizeof path, "%s/out", folder);
}

/* The disk refuses the first file while the second one is written, or the second one at the end, while the
 * third one is. */
TEST_EACH(the_scan_that_the_disk_refuses_is_named, at_end, 2)
{
        struct error e = {};
        struct sink *s;
        char refused[64];
        int r = 0;

        snprintf(path, sizeof path, "%s/out.vdif", folder);
        assert_int_equal(sink_open_scans(&s, path, false, &e), 0);
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(scans); i++) {
                failing_sync = i == 2 && !at_end ? 1 : 0;
                r = sink_next(s, scans[i].unix_s, &e);
                if (r == 0)
                        assert_int_equal(sink_put(s, scans[i].bytes, 1, false, &stop), 0);
        }
        if (at_end) {
                assert_int_equal(r, 0);
                failing_sync = 2; /* the first call is that of the third file */
                r = sink_finish(s, &e);
        }
        sink_free(s);
        assert_int_equal(failing_sync, 0);
        assert_int_equal(r, -EIO);
        snprintf(refused, sizeof refused, "%s/%s", folder, scans[at_end].name);
        assert_string_equal(e.location, refused);
        for (size_t i = 0; i < ARRAY_SIZE(scans); i++) {
                snprintf(path, sizeof path, "%s/%s", folder, scans[i].name);
                unlink(path);
        }
        snprintf(path, sizeof path, "%s/out", folder);
}

static int begin(void **state)
{
        if (!mkdtemp(folder))
                return -1;
        snprintf(path, sizeof path, "%s/out", folder);
        return 0;
}

static int end(void **state)
{
        unlink(path);
        return rmdir(folder);
}

TESTS_BETWEEN(begin, end)
