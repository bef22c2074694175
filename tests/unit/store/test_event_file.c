/* Tests reader and repair on damaged files: truncated at every byte, with every word replaced. Nothing may
 * crash, and a repaired file must be valid and contain every intact event. */

#include "../test.h"

#include <sys/file.h>

#include "store/replay.h"
#include "store/verify.h"
#include "store_sample.h"

static struct {
        char *directory;
        char path[PATH_MAX], out[PATH_MAX];
        uint8_t *bytes;             /* a valid v2 file of four events */
        size_t size_bytes, ends[5]; /* of the front, and of each data record */
} f;

static int setup(void **state)
{
        struct event_writer_settings s = {.core_name = "core",
                                          .application = "SFI-1",
                                          .version = 2,
                                          .run = 12,
                                          .stamped = true,
                                          .has_seed = true,
                                          .seed = 5};
        struct event_writer *w;
        struct event_file *file;
        struct event_record record;
        size_t position = 0, n = 0;

        /* Each repair ends with fsync(), which takes milliseconds on a disk; thousands follow. */
        if (access("/dev/shm", W_OK) == 0)
                setenv("TMPDIR", "/dev/shm", 1);
        s.directory = f.directory = sample_directory();
        if (event_writer_new(&w, &s, SAMPLE_NOW) < 0)
                return -1;
        for (uint64_t i = 0; i < 4; i++)
                sample_put(w, &eformat_3, i, (uint32_t)i * 3);
        event_writer_close(w, SAMPLE_NOW);
        snprintf(f.path, sizeof f.path, "%s/damaged", f.directory);
        snprintf(f.out, sizeof f.out, "%s/out", f.directory);
        f.bytes = sample_read(event_writer_path(w), &f.size_bytes);
        if (event_file_open(&file, event_writer_path(w), NULL) < 0)
                return -1;
        while (event_file_next(file, &position, &record, NULL) == 1) {
                f.ends[n++] = record.offset_bytes;
                f.ends[n] = position;
        }
        event_file_free(file);
        event_writer_free(w);
        return n == 4 ? 0 : -1;
}

static int teardown(void **state)
{
        sample_remove(f.directory);
        free(f.bytes);
        memset(&f, 0, sizeof f);
        return 0;
}

/* Returns -1 if the file does not open. */
static int verify(const char *path, struct verify_report *ret)
{
        struct event_file *file;

        if (event_file_open(&file, path, NULL) < 0)
                return -1;
        assert_int_equal(event_file_verify(file, NULL, NULL, NULL, ret), 0);
        event_file_free(file);
        return 0;
}

static void assert_sound(const char *path, uint64_t events)
{
        struct verify_report report;

        assert_int_equal(verify(path, &report), 0);
        assert_int_equal(report.n_faults, 0);
        assert_true(report.ended);
        assert_int_equal(report.events, events);
}

TEST_WITH(test_front_and_end, setup, teardown)
{
        struct event_file_end end;
        struct event_file *file;

        sample_write(f.path, f.bytes, f.size_bytes);
        assert_int_equal(event_file_open(&file, f.path, NULL), 0);
        assert_int_equal(event_file_front(file)->run, 12);
        assert_string_equal(event_file_front(file)->core_name, "core");
        assert_true(event_file_front(file)->has_seed);
        assert_int_equal(event_file_front(file)->seed, 5);
        assert_int_equal(event_file_read_end(file, f.ends[4], &end, NULL), 0);
        assert_fields(&end, events, 4, status, 1);
        event_file_free(file);
        assert_sound(f.path, 4);
}

TEST(test_real_file)
{
        const char *path = sample_real_file();
        struct verify_report report;

        if (!path) {
                print_message("skipped: data/bes3-run91668.raw of EVB_SHARED is not there\n");
                skip();
        }
        assert_int_equal(verify(path, &report), 0);
        assert_int_equal(report.n_faults, 0);
        assert_true(report.ended);
        assert_fields(&report, events, 10, ros, 260, robs, 420, l1_mismatches, 20, partial_events, 0);
        assert_false(report.has_seed);
}

TEST_WITH(test_truncated_at_every_byte, setup, teardown)
{
        for (size_t cut = 0; cut < f.size_bytes; cut++) {
                struct event_file_repair repair;
                uint64_t whole = 0;

                while (whole < 4 && f.ends[whole + 1] <= cut)
                        whole++;
                sample_write(f.path, f.bytes, cut);
                unlink(f.out);
                if (cut < f.ends[0]) {
                        assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), -EBADMSG);
                        assert_non_null(repair.fault.reason);
                        assert_int_equal(access(f.out, F_OK), -1);
                        continue;
                }
                assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), 0);
                assert_false(repair.was_whole);
                assert_fields(&repair, events, whole, cut_bytes, cut - f.ends[whole]);
                assert_sound(f.out, whole);
                assert_int_equal(event_file_repair(f.path, NULL, SAMPLE_NOW, &repair), 0);
                assert_sound(f.path, whole);
                assert_int_equal(event_file_repair(f.path, NULL, SAMPLE_NOW, &repair), 0);
                assert_true(repair.was_whole);
        }
}

TEST_WITH(test_bytes_after_the_end, setup, teardown)
{
        static const size_t more[] = {1, 3, 4, 5, 8, 100};
        struct event_file_repair repair;
        _cleanup_free_ uint8_t *longer = calloc(1, f.size_bytes + 100);

        memcpy(longer, f.bytes, f.size_bytes);
        for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
                sample_write(f.path, longer, f.size_bytes + more[i]);
                assert_int_equal(event_file_repair(f.path, NULL, SAMPLE_NOW, &repair), 0);
                assert_false(repair.was_whole);
                assert_string_equal(repair.fault.reason, "bytes after the end record");
                assert_sound(f.path, 4);
        }
}

static void assert_is(const char *path, const unsigned *events, unsigned n)
{
        size_t size_bytes, at = f.ends[0];
        _cleanup_free_ uint8_t *bytes = sample_read(path, &size_bytes);

        assert_sound(path, n);
        assert_memory_equal(bytes, f.bytes, f.ends[0]);
        for (unsigned i = 0; i < n; i++) {
                size_t from = f.ends[events[i]], size = f.ends[events[i] + 1] - from;

                assert_memory_equal(bytes + at, f.bytes + from, size);
                at += size;
        }
        assert_int_equal(size_bytes, at + EVENT_FILE_END_BYTES);
}

/* Whole events behind a damage stay: in another file, as a repair in place would have to move them. */
TEST_WITH(test_events_behind_damage, setup, teardown)
{
        const struct {
                size_t from, to; /* overwritten */
                uint8_t with;
                unsigned n, kept[4], gaps;
        } cases[] = {
                {f.ends[1], f.ends[2], 0, 3, {0, 2, 3}, 1},
                {f.ends[0], f.ends[2], 0xff, 2, {2, 3}, 1},
                {f.ends[1] + EVENT_FILE_DATA_BYTES,
                 f.ends[1] + EVENT_FILE_DATA_BYTES + 4,
                 0,
                 3,
                 {0, 2, 3},
                 1},
                {f.ends[1] + 12, f.ends[1] + 16, 0xf0, 3, {0, 2, 3}, 1}, /* its size */
                {f.ends[2] - 8, f.ends[2] + 8, 0, 2, {0, 3}, 1},
        };

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                _cleanup_free_ uint8_t *bytes = malloc(f.size_bytes), *left = NULL;
                struct event_file_repair repair;
                size_t size_bytes;

                memcpy(bytes, f.bytes, f.size_bytes);
                memset(bytes + cases[i].from, cases[i].with, cases[i].to - cases[i].from);
                sample_write(f.path, bytes, f.size_bytes);
                assert_int_equal(event_file_repair(f.path, NULL, SAMPLE_NOW, &repair), -EBADMSG);
                assert_int_equal(repair.events, cases[i].n);
                assert_int_equal(repair.behind, cases[i].n - (cases[i].kept[0] == 0));
                left = sample_read(f.path, &size_bytes);
                assert_int_equal(size_bytes, f.size_bytes);
                assert_memory_equal(left, bytes, size_bytes);
                unlink(f.out);
                assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), 0);
                assert_fields(&repair, events, cases[i].n, gaps, cases[i].gaps);
                assert_is(f.out, cases[i].kept, cases[i].n);
        }
}

static void put_word(uint8_t *bytes, size_t at, uint32_t word)
{
        word = htole32(word);
        memcpy(bytes + at, &word, sizeof word);
}

/* A wrong size may lead to the end of another event: those in between stay. */
TEST_WITH(test_size_of_several_events, setup, teardown)
{
        for (size_t first = 0; first < 3; first++) {
                for (size_t last = first + 1; last < 4; last++) {
                        _cleanup_free_ uint8_t *bytes = malloc(f.size_bytes);
                        struct event_file_repair repair;
                        unsigned kept[4], n = 0;

                        for (unsigned i = 0; i < 4; i++)
                                if (i != first)
                                        kept[n++] = i;
                        memcpy(bytes, f.bytes, f.size_bytes);
                        put_word(bytes, f.ends[first] + 12,
                                 (uint32_t)(f.ends[last + 1] - f.ends[first] - EVENT_FILE_DATA_BYTES));
                        sample_write(f.path, bytes, f.size_bytes);
                        unlink(f.out);
                        assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), 0);
                        assert_fields(&repair, gaps, 1, missing, 1);
                        assert_is(f.out, kept, n);
                }
        }
}

TEST_WITH(test_bytes_missing, setup, teardown)
{
        static const unsigned kept[] = {0, 2, 3};

        for (size_t n = 1; n < 8; n++) {
                _cleanup_free_ uint8_t *bytes = malloc(f.size_bytes);
                size_t at = f.ends[1] + 40;
                struct event_file_repair repair;

                memcpy(bytes, f.bytes, at);
                memcpy(bytes + at, f.bytes + at + n, f.size_bytes - at - n);
                sample_write(f.path, bytes, f.size_bytes - n);
                unlink(f.out);
                assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), 0);
                assert_is(f.out, kept, 3);
        }
}

/* The end record says how many events were there, also if the last ones are damaged. */
TEST_WITH(test_last_events_damaged, setup, teardown)
{
        for (unsigned n = 0; n < 4; n++) {
                for (size_t zeros = 0; zeros <= 512; zeros += 512) {
                        _cleanup_free_ uint8_t *bytes = calloc(1, f.size_bytes + zeros);
                        struct event_file_repair repair;

                        memcpy(bytes, f.bytes, f.size_bytes);
                        memset(bytes + f.ends[n], 0, f.ends[4] - f.ends[n]);
                        sample_write(f.path, bytes, f.size_bytes + zeros);
                        unlink(f.out);
                        assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), 0);
                        assert_fields(&repair, events, n, missing, 4 - n);
                        assert_sound(f.out, n);
                }
        }
}

/* Which of these records is wrong is unknown, so a repair, which makes a new check, says it. */
TEST_WITH(test_records_that_their_check_refuses, setup, teardown)
{
        struct event_file_repair repair;
        unsigned n = 0;

        for (size_t at = 0; at < f.ends[0]; at++) {
                int r;

                f.bytes[at] ^= 1;
                sample_write(f.path, f.bytes, f.size_bytes);
                f.bytes[at] ^= 1;
                r = event_file_repair(f.path, NULL, SAMPLE_NOW, &repair);
                assert_true(r == -EBADMSG || (r == 0 && repair.wrong_records));
                n += r == 0;
        }
        assert_true(n > 40);
        for (size_t cut = 0; cut <= EVENT_FILE_END_BYTES; cut++) {
                sample_write(f.path, f.bytes, f.size_bytes - cut);
                assert_int_equal(event_file_repair(f.path, NULL, SAMPLE_NOW, &repair), 0);
                assert_false(repair.wrong_records);
        }
}

/* The second file may be of another run. */
TEST_WITH(test_another_file_behind_the_end, setup, teardown)
{
        _cleanup_free_ uint8_t *twice = malloc(2 * f.size_bytes);
        struct event_file_repair repair;

        for (size_t damaged = 0; damaged < 2; damaged++) {
                memcpy(twice, f.bytes, f.size_bytes);
                memcpy(twice + f.size_bytes, f.bytes, f.size_bytes);
                twice[f.ends[1]] ^= (uint8_t)damaged;
                sample_write(f.path, twice, 2 * f.size_bytes);
                unlink(f.out);
                assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), -EBADMSG);
                assert_int_equal(access(f.out, F_OK), -1);
                assert_int_equal(event_file_repair(f.path, NULL, SAMPLE_NOW, &repair), -EBADMSG);
                assert_fields(&repair, behind, damaged ? 6 : 4, other_file, f.size_bytes);
        }
}

/* The first file has lost its end, or zeros follow it. */
TEST_WITH(test_another_file_behind_a_damage, setup, teardown)
{
        const size_t sizes[] = {f.ends[4], f.ends[4] - 8, f.size_bytes - 4, f.size_bytes + 4096};

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                _cleanup_free_ uint8_t *both = calloc(1, sizes[i] + f.size_bytes);
                struct event_file_repair repair;

                memcpy(both, f.bytes, MIN(sizes[i], f.size_bytes));
                memcpy(both + sizes[i], f.bytes, f.size_bytes);
                sample_write(f.path, both, sizes[i] + f.size_bytes);
                unlink(f.out);
                assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), -EBADMSG);
                assert_int_equal(repair.other_file, sizes[i]);
                assert_int_equal(access(f.out, F_OK), -1);
        }
}

TEST_WITH(test_every_word_replaced, setup, teardown)
{
        static const uint32_t values[] = {
                0, 1, 4, 0x7ffffffc, 0xfffffffc, 0xffffffff, EVENT_FILE_DATA, EVENT_FILE_END, EFORMAT_EVENT};

        for (size_t at = 0; at < f.size_bytes; at += 4) {
                for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
                        struct verify_report report;
                        struct event_file_repair repair;
                        struct replay *replay = NULL;
                        uint32_t right;
                        struct error error;

                        memcpy(&right, f.bytes + at, 4);
                        memcpy(f.bytes + at, &values[i], 4);
                        sample_write(f.path, f.bytes, f.size_bytes);
                        memcpy(f.bytes + at, &right, 4);
                        verify(f.path, &report);
                        replay_open(&replay, f.path, &error);
                        replay_free(replay);
                        unlink(f.out);
                        if (event_file_repair(f.path, f.out, SAMPLE_NOW, &repair) < 0)
                                continue;
                        assert_true(repair.events >= 3);
                        assert_int_equal(verify(f.out, &report), 0);
                        assert_true(report.ended);
                        assert_int_equal(report.events, repair.events);
                        /* A damaged front record stays, and may change the seed. */
                        if (at >= f.ends[0])
                                assert_int_equal(report.n_faults, 0);
                }
        }
}

/* Even if the end record and the first event do not show that events have stamps. */
TEST_WITH(test_event_without_its_stamp, setup, teardown)
{
        struct event_file_repair repair;

        put_word(f.bytes, f.ends[0] + 12, 3); /* the size of the first event */
        f.bytes[f.ends[2] - 32] ^= 1;         /* begins the stamp of the second one */
        for (size_t size_bytes = f.ends[4]; size_bytes <= f.size_bytes; size_bytes += EVENT_FILE_END_BYTES) {
                sample_write(f.path, f.bytes, size_bytes);
                unlink(f.out);
                assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), 0);
                assert_is(f.out, (const unsigned[]){2, 3}, 2);
        }
}

/* A whole fragment that is no event, such as a part of one, is a damage. */
TEST_WITH(test_record_without_an_event, setup, teardown)
{
        size_t at = f.ends[1] + EVENT_FILE_DATA_BYTES, part = f.ends[2] - 64; /* the stamp */
        _cleanup_free_ uint8_t *bytes = malloc(f.size_bytes);
        struct event_file_repair repair;

        memcpy(bytes, f.bytes, at);
        put_word(bytes, f.ends[1] + 12, (uint32_t)(f.ends[2] - part));
        memcpy(bytes + at, f.bytes + part, f.size_bytes - part);
        sample_write(f.path, bytes, f.size_bytes - (part - at));
        unlink(f.out);
        assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), 0);
        assert_string_equal(repair.fault.reason, "data record does not contain an event");
        assert_is(f.out, (const unsigned[]){0, 2, 3}, 3);
}

TEST_WITH(test_output_of_another_repair, setup, teardown)
{
        char unfinished[PATH_MAX + 8];
        struct event_file_repair repair;
        int fd;

        snprintf(unfinished, sizeof unfinished, "%s.repair", f.out);
        sample_write(f.path, f.bytes, f.size_bytes - 1);
        sample_write(unfinished, "left", 4);
        fd = open(unfinished, O_RDONLY | O_CLOEXEC);
        assert_int_equal(flock(fd, LOCK_EX), 0);
        assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), -EBUSY);
        assert_int_equal(access(f.out, F_OK), -1);
        close(fd);
        assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), 0);
        assert_sound(f.out, 4);
}

TEST_WITH(test_output_is_not_overwritten, setup, teardown)
{
        struct event_file_repair repair;

        sample_write(f.path, f.bytes, f.size_bytes - 1);
        sample_write(f.out, "precious", 8);
        assert_int_equal(event_file_repair(f.path, f.out, SAMPLE_NOW, &repair), -EEXIST);
        assert_int_equal(event_file_repair("/nonexistent", NULL, SAMPLE_NOW, &repair), -ENOENT);
        assert_int_equal(event_file_repair(f.directory, NULL, SAMPLE_NOW, &repair), -EISDIR);
}
