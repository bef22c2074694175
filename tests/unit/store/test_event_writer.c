/* Tests the event writer: reference bytes at both ends of a file, the start of the next file, and disk errors
 * at every byte. */
#include "../test.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "writer_sample.h"

TEST(test_core_name)
{
        char text[96];

        assert_string_equal(event_writer_core_name(text, sizeof text, SAMPLE_NOW, 91668, 0, "SFI-1"),
                            "data26_evb.00091668.physics_Main.daq.RAW._lb0000._SFI-1");
}

TEST_WITH(test_golden_version_2, setup, teardown)
{
        static const char texts[] = "SFI-1   "
                                    "\x3e\0\0\0" CORE " seed=5  ";
        size_t size_bytes;
        uint32_t date, time;

        setenv("TZ", "UTC", 1);
        start();
        assert_string_equal(strrchr(event_writer_path(w), '/'), "/" CORE "._0001.writing");
        assert_int_equal(sample_put(w, &eformat_3, 0, 8), 0);
        assert_int_equal(closed.n, 0);
        assert_int_equal(event_writer_close(w, SAMPLE_NOW + 1), 0);
        assert_string_equal(strrchr(event_writer_path(w), '/'), "/" CORE "._0001.data");
        _cleanup_free_ uint8_t *bytes = sample_read(closed.last, &size_bytes);
        const uint32_t front[] = {0x1234AAAA, 8, 2, 1, eformat_word(bytes, 4), eformat_word(bytes, 5), 0, 0,
                                  0x1234AABB, 5};
        const uint32_t run[] = {
                0x1234BBBB, 9, 12, 0, 1, 0, 0, 0, 0, 0x1234CCCC, 4, 1, 4 * (18 + 9 + 2 * 35 + 16),
                0xAA1234AA};
        const uint32_t end[] = {
                0x1234DDDD, 10,        eformat_word(bytes, 4), eformat_word(bytes, 5) + 1, 1, 0, 1, 0,
                0,          0x1234EEEE};

        date = eformat_word(bytes, 4);
        time = eformat_word(bytes, 5);
        assert_int_equal(date, 8042026);
        assert_int_equal(time, 40340);
        assert_memory_equal(bytes, front, sizeof front);
        assert_memory_equal(bytes + sizeof front, texts, sizeof texts - 1);
        assert_memory_equal(bytes + sizeof front + sizeof texts - 1, run, sizeof run);
        /* The status word contains 1 and the check. */
        assert_int_equal(eformat_word(bytes + size_bytes - 40, 8) & 0xff0000ff, 0xeb000001);
        memset(bytes + size_bytes - 8, 0, 4);
        assert_memory_equal(bytes + size_bytes - 40, end, sizeof end);
        assert_int_equal(size_bytes,
                         sizeof front + sizeof texts - 1 + 4 * 13 + 4 * (18 + 9 + 2 * 35 + 16) + 40);
        assert_int_equal(closed.bytes, size_bytes);
        assert_int_equal(sample_events(closed.last), 1);
}

TEST_WITH(test_version_6_reads_back, setup, teardown)
{
        const struct event_file_front *front;
        struct event_file *file;
        char metadata[EVENT_FILE_METADATA_FREE][EVENT_FILE_TEXT_MAX];

        for (size_t i = 0; i < ARRAY_SIZE(metadata); i++)
                snprintf(metadata[i], sizeof metadata[i], "Name%02zu=%0*d", i, 190, 7);
        s.version = 6;
        s.detector_mask = 0x123456789abcdef0;
        s.lumi_block = 4;
        s.metadata = metadata;
        s.n_metadata = EVENT_FILE_METADATA_FREE;
        start();
        for (uint64_t i = 0; i < 3; i++)
                assert_int_equal(sample_put(w, &eformat_5, i, 13), 0);
        finish();
        assert_int_equal(sample_events(closed.last), 3);
        assert_int_equal(event_file_open(&file, closed.last, NULL), 0);
        front = event_file_front(file);
        assert_fields(front, version, 6, run, 12);
        assert_true(front->detector_mask[0] == 0x123456789abcdef0);
        assert_true(front->has_seed);
        assert_int_equal(front->seed, 5);
        assert_string_equal(front->core_name, CORE);
        assert_string_equal(front->application, "SFI-1");
        assert_int_equal(front->n_metadata, EVENT_FILE_METADATA_MAX);
        assert_string_equal(front->metadata[2], "LumiBlock=4");
        for (size_t i = 0; i < ARRAY_SIZE(metadata); i++)
                assert_string_equal(front->metadata[3 + i], metadata[i]);
        event_file_free(file);
}

TEST_WITH(test_next_file_by_events, setup, teardown)
{
        struct event_writer_counts counts;

        s.file_events = 4;
        start();
        for (uint64_t i = 0; i < 8; i++)
                assert_int_equal(sample_put(w, &eformat_3, i, 100), 0);
        assert_int_equal(closed.n, 1); /* the second is full, but may be the last one */
        finish();
        event_writer_counts(w, &counts);
        assert_int_equal(closed.n, 2);
        assert_fields(&counts, events, 8, files, 2, file_bytes, closed.bytes, written_bytes, closed.bytes);
        assert_int_equal(counts.event_bytes, 8 * 4 * (18 + 9 + 2 * (33 + 25) + 16));
        assert_string_equal(strrchr(closed.last, '/'), "/" CORE "._0002.data");
        assert_int_equal(sample_events(closed.last), 4);

        size_t size_bytes;
        _cleanup_free_ uint8_t *bytes = sample_read(closed.last, &size_bytes);

        assert_int_equal(eformat_word(bytes + size_bytes - 40, 4), 4);
        assert_int_equal(eformat_word(bytes + size_bytes - 40, 6), 8);
        assert_int_equal(eformat_word(bytes + size_bytes - 40, 8) & 0xff, 1);
        closed.last[strlen(closed.last) - 6] = '1';
        _cleanup_free_ uint8_t *first = sample_read(closed.last, &size_bytes);

        assert_int_equal(eformat_word(first + size_bytes - 40, 8) & 0xff, 0);
}

TEST_WITH(test_next_file_by_bytes, setup, teardown)
{
        s.file_bytes = 3000;
        start();
        for (uint64_t i = 0; i < 10; i++)
                assert_int_equal(sample_put(w, &eformat_3, i, i == 5 ? 3000 : 400), 0);
        finish();
        /* Two small events of 1.1 kB fit; the large one exceeds a file on its own. */
        assert_fields(&closed, n, 6, events, 10);
}

TEST_WITH(test_wrong_settings, setup, teardown)
{
        s.version = 3;
        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), -EINVAL);
        s.version = 2;
        s.directory = "/nonexistent";
        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), -ENOENT);
}

static struct event_writer_counts at_sealing;

static void assert_stages(uint64_t events, uint64_t written, uint64_t synced, uint64_t in_closed)
{
        struct event_writer_counts counts;

        event_writer_counts(w, &counts);
        assert_fields(&counts, events, events, events_written, written, events_synced, synced, events_closed,
                      in_closed);
}

static void on_sealing(void *userdata)
{
        event_writer_counts(w, &at_sealing);
}

/* The writer reports that the kernel has its events before it seals the file, which may take long. */
TEST_WITH(test_counts_before_sealing, setup, teardown)
{
        s.file_events = 4;
        s.closed = NULL;
        s.sealing = on_sealing;
        start();
        for (uint64_t i = 0; i < 5; i++)
                assert_int_equal(sample_put(w, &eformat_3, i, 100), 0);
        assert_fields(&at_sealing, events_written, 4, events_closed, 0);
        finish();
        assert_int_equal(at_sealing.events_written, 5);
}

/* Events are accepted, then in the kernel, on the disk, and in a closed file. */
TEST_WITH(test_counts, setup, teardown)
{
        s.file_events = 4;
        s.buffer_bytes = 1 << 20;
        start();
        for (uint64_t i = 0; i < 3; i++)
                assert_int_equal(sample_put(w, &eformat_3, i, 100), 0);
        assert_stages(3, 0, 0, 0);
        assert_int_equal(event_writer_flush(w, SAMPLE_NOW), 0);
        assert_stages(3, 3, 0, 0);
        assert_int_equal(event_writer_sync(w, SAMPLE_NOW), 0);
        assert_stages(3, 3, 3, 0);
        assert_int_equal(sample_put(w, &eformat_3, 3, 1 << 20), 0); /* a large event is written at once */
        assert_stages(4, 4, 3, 0);
        assert_int_equal(sample_put(w, &eformat_3, 4, 100), 0); /* the next event starts another file */
        assert_stages(5, 4, 4, 4);
        assert_int_equal(event_writer_sync(w, SAMPLE_NOW), 0);
        assert_stages(5, 5, 5, 4);
        finish();
        assert_stages(5, 5, 5, 5);
}

TEST_WITH(test_inconsistent_sizes, setup, teardown)
{
        struct iovec iov = {.iov_base = (void *)"12345678", .iov_len = 8};

        start();
        assert_int_equal(event_writer_write(w, &iov, 1, 4, 0, NULL, SAMPLE_NOW), -EMSGSIZE);
        assert_int_equal(event_writer_write(w, &iov, 1, 0, 0, NULL, SAMPLE_NOW), -EMSGSIZE);
        iov.iov_len = 7;
        assert_int_equal(event_writer_write(w, &iov, 1, 7, 0, NULL, SAMPLE_NOW), -EMSGSIZE);
        finish();
        assert_int_equal(sample_events(closed.last), 0);
}

/* Between calls the file is complete, so that a killed process loses at most the buffer. */
TEST_WITH(test_file_is_complete_after_every_write, setup, teardown)
{
        s.buffer_bytes = 4096;
        start();
        assert_int_equal(sample_events(event_writer_path(w)), 0);
        for (uint64_t i = 0; i < 20; i++) {
                uint64_t on_disk;

                assert_int_equal(sample_put(w, &eformat_3, i, i % 5 == 4 ? 20000 : 100), 0);
                on_disk = i % 5 == 4 ? i + 1 : i + 1 - i % 5 - 1;
                assert_int_equal(sample_events(event_writer_path(w)), on_disk);
        }
        assert_int_equal(sample_put(w, &eformat_3, 20, 100), 0);
        assert_int_equal(event_writer_flush(w, SAMPLE_NOW), 0);
        assert_int_equal(sample_events(event_writer_path(w)), 21);
}

/* Otherwise the credits of an SFI with fewer bytes on their way than a buffer would wait for all of them. */
TEST_WITH(test_no_copy_waits_for_a_full_buffer, setup, teardown)
{
        uint64_t most = 0;

        start();
        for (uint64_t i = 0; i < 30; i++) {
                struct event_writer_counts c;

                assert_int_equal(sample_put(w, &eformat_3, i, 300000), 0);
                event_writer_counts(w, &c);
                most = MAX(most, c.events - c.events_written);
        }
        /* 1 MiB, or two buffers of 4 MiB */
        assert_in_range(most, 1, s.background ? 27 : 4);
        finish();
        assert_int_equal(sample_events(closed.last), 30);
}

static void limit_file_size(uint64_t bytes)
{
        struct rlimit limit;

        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = bytes ? bytes : limit.rlim_max;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Writes until the size limit fails a call; the files must contain exactly the events that the writer counts.
 */
static void fill_until_error(const char *directory, int error, uint32_t size_bytes, size_t buffer_bytes,
                             bool large_too)
{
        struct event_writer_counts counts;
        uint64_t accepted = 0;
        int r;

        make_settings(directory);
        s.buffer_bytes = buffer_bytes;
        start();
        while ((r = sample_put(w, &eformat_3, accepted,
                               large_too && accepted % 3 == 2 ? 10 * size_bytes : size_bytes)) == 0)
                assert_true(++accepted < 100000);
        assert_int_equal(r, error);
        assert_int_equal(sample_put(w, &eformat_3, 0, 8), error);
        assert_int_equal(event_writer_flush(w, SAMPLE_NOW), error);
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), error);
        event_writer_counts(w, &counts);
        assert_int_equal(counts.events + counts.events_lost, accepted);
        assert_fields(&counts, events_written, counts.events, events_closed, counts.events);
        assert_fields(&closed, n, 1, events, counts.events);
        assert_int_equal(sample_events(closed.last), counts.events);
        event_writer_free(take_ptr(w));
        unlink(closed.last);
}

TEST_WITH(test_limit_at_every_byte, setup, teardown)
{
        signal(SIGXFSZ, SIG_IGN);
        for (uint64_t limit = 1000; limit<3200; limit += limit> 1400 && limit < 2600 ? 4 : 52) {
                limit_file_size(limit);
                fill_until_error(*state, -EFBIG, 16, 2000, false);
                fill_until_error(*state, -EFBIG, 16, 4000, true);
        }
        limit_file_size(0);
}

/* Each event is larger than the buffer. */
TEST_WITH(test_limit_behind_large_events, setup, teardown)
{
        signal(SIGXFSZ, SIG_IGN);
        limit_file_size(10000);
        fill_until_error(*state, -EFBIG, 1000, 1000, false);
        limit_file_size(0);
}

TEST_WITH(test_no_room_for_the_first_file, setup, teardown)
{
        char path[PATH_MAX];

        signal(SIGXFSZ, SIG_IGN);
        limit_file_size(60);
        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), -EFBIG);
        limit_file_size(0);
        snprintf(path, sizeof path, "%s/" CORE "._0001.writing", (const char *)*state);
        assert_int_equal(access(path, F_OK), -1);
}

/* An io_uring may hold a file for a moment after its end: only then is the room of a removed one free. */
static void wait_for_room(const char *directory)
{
        struct statvfs disk = {0};

        for (int i = 0; i < 60000; i++) {
                assert_int_equal(statvfs(directory, &disk), 0);
                if (disk.f_bfree == disk.f_blocks)
                        return;
                usleep(1000);
        }
        fail_msg("%ju of %ju blocks are free", (uintmax_t)disk.f_bfree, (uintmax_t)disk.f_blocks);
}

/* Runs in a child process, which enters a mount namespace. Exits with 77 if it may not. */
static int on_small_tmpfs(const char *directory)
{
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", directory, "tmpfs", 0, "size=256k") < 0)
                return 77;
        fill_until_error(directory, -ENOSPC, 3000, 32768, false);
        wait_for_room(directory);
        fill_until_error(directory, -ENOSPC, 1000, 40000, true);
        wait_for_room(directory);
        fill_until_error(directory, -ENOSPC, 400, 1 << 20, false);
        return 0;
}

TEST_WITH(test_full_disk, setup, teardown)
{
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                int r = on_small_tmpfs(*state);

                /* A failed assertion jumps into the child's copy of the runner, which exits with 1. */
                _exit(r);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
                print_message("full_disk: skipped, no privilege to mount a tmpfs\n");
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
