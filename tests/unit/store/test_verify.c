/* Tests that a valid file verifies, and that each fault is reported with its event and byte. */

#include "../test.h"

#include <sys/mman.h>

#include "store/verify.h"
#include "store_sample.h"

static struct found {
        unsigned n;
        uint64_t event;
        struct eformat_fault fault;
} found;

static char path[PATH_MAX];
static uint8_t *bytes; /* of the file */
static size_t size_bytes;

static void on_fault(void *userdata, uint64_t event, const struct eformat_fault *fault)
{
        found.n++;
        found.event = event;
        found.fault = *fault;
}

static int setup(void **state)
{
        *state = sample_directory();
        return 0;
}

static int teardown(void **state)
{
        free(take_ptr(bytes));
        sample_remove(*state);
        return 0;
}

/* Writes a file of `n` events with `payload` bytes per source: 0, 1, 2 and 1 again. */
static void make_file_of(const char *directory, const struct eformat *format, uint64_t n, uint32_t payload,
                         bool has_seed)
{
        struct event_writer_settings s = {.directory = directory,
                                          .core_name = "c",
                                          .application = "a",
                                          .version = format->storage_version,
                                          .stamped = true,
                                          .has_seed = has_seed,
                                          .seed = 5};
        struct event_writer *w;

        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), 0);
        for (uint64_t i = 0; i < n; i++)
                assert_int_equal(sample_put(w, format, i < 3 ? i : 1, payload), 0);
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), 0);
        snprintf(path, sizeof path, "%s", event_writer_path(w));
        event_writer_free(w);
        free(bytes);
        bytes = sample_read(path, &size_bytes);
}

static void make_file(const char *directory, const struct eformat *format)
{
        make_file_of(directory, format, 4, 100, true);
}

static struct verify_report check(const uint64_t *seed)
{
        struct verify_report report;
        struct event_file *file;

        found = (struct found){0};
        assert_int_equal(event_file_open(&file, path, NULL), 0);
        assert_int_equal(event_file_verify(file, seed, on_fault, NULL, &report), 0);
        event_file_free(file);
        assert_int_equal(report.n_faults, found.n);
        return report;
}

/* The same for `n` bytes that are now in the file. */
static struct verify_report check_written(size_t n)
{
        sample_write(path, bytes, n);
        return check(NULL);
}

TEST_WITH(test_valid_file, setup, teardown)
{
        const struct eformat *formats[] = {&eformat_3, &eformat_5};

        for (size_t i = 0; i < 2; i++) {
                struct verify_report report;

                make_file(*state, formats[i]);
                report = check(NULL);

                assert_int_equal(report.n_faults, 0);
                assert_true(report.ended && report.has_seed);
                assert_fields(&report, events, 4, duplicate_events, 1, ros, i == 0 ? 8 : 0, robs, 8, sums,
                              i == 0 ? 4 : 12, pattern_fragments, 8);
                assert_fields(&report, stamped_events, 4, pattern_bytes, 800);
                unlink(path);
        }
}

TEST_WITH(test_another_seed, setup, teardown)
{
        uint64_t seed = 6;
        struct verify_report report;

        make_file(*state, &eformat_3);
        report = check(&seed);

        assert_int_equal(report.pattern_wrong, 8);
        assert_int_equal(found.n, 8);
        assert_string_equal(found.fault.reason, "byte differs from the source pattern");
}

/* Changes a payload byte of the last source of the last event, before 2 status and 3 trailer words, and the
 * stamp. */
TEST_WITH(test_one_wrong_byte, setup, teardown)
{
        size_t at;
        make_file(*state, &eformat_3);
        at = size_bytes - EVENT_FILE_END_BYTES - 64 - 20 - 1;
        bytes[at] ^= 0x80;
        struct verify_report report = check_written(size_bytes);

        assert_fields(&report, sums_wrong, 1, pattern_wrong, 1);
        assert_fields(&found, n, 2, event, 3);
        assert_int_equal(found.fault.offset_bytes, at);
}

static bool finds_flip(int fd, size_t bit)
{
        uint8_t flipped = bytes[bit / 8] ^ (uint8_t)(1 << bit % 8);
        struct verify_report report = {.n_faults = 1};
        struct event_file *file;

        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
        if (event_file_map(&file, fd, NULL) == 0) {
                assert_int_equal(event_file_verify(file, NULL, NULL, NULL, &report), 0);
                event_file_free(file);
        }
        assert_int_equal(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)), 1);
        return report.n_faults > 0;
}

TEST_WITH(test_each_flipped_bit_is_found, setup, teardown)
{
        const struct eformat *formats[] = {&eformat_3, &eformat_5};
        const uint64_t events[] = {0, 1, 3};

        for (size_t i = 0; i < 2 * ARRAY_SIZE(events); i++) {
                _cleanup_close_ int fd = memfd_create("flipped", MFD_CLOEXEC);

                make_file_of(*state, formats[i % 2], events[i / 2], 6, false);
                assert_int_equal(check(NULL).n_faults, 0);
                unlink(path);
                assert_int_equal(pwrite(fd, bytes, size_bytes, 0), size_bytes);
                for (size_t bit = 0; bit < 8 * size_bytes; bit++)
                        if (!finds_flip(fd, bit))
                                fail_msg("%s: bit %zu of byte %zu", formats[i % 2]->name, bit % 8, bit / 8);
        }
}

/* After a reset of the counters, events have equal L1 IDs. */
TEST_WITH(test_event_numbers_are_compared, setup, teardown)
{
        struct event_writer_settings s = {
                .directory = *state, .core_name = "c", .application = "a", .version = 2, .stamped = true};
        struct event_writer *w;

        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), 0);
        for (uint64_t i = 0; i < 6; i++)
                assert_int_equal(sample_put_as(w, &eformat_3, MIN(i, 4u), 0, (uint32_t)(i % 2), 8), 0);
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), 0);
        snprintf(path, sizeof path, "%s", event_writer_path(w));
        event_writer_free(w);
        struct verify_report report = check(NULL);

        assert_fields(&report, duplicate_events, 1, n_faults, 0);
}

TEST_WITH(test_one_wrong_byte_breaks_checksums, setup, teardown)
{
        make_file(*state, &eformat_5);
        bytes[size_bytes - EVENT_FILE_END_BYTES - 8 - 20 - 1] ^= 0x80;
        struct verify_report report = check_written(size_bytes);

        assert_fields(&report, sums_wrong, 2, pattern_wrong, 1);
        assert_int_equal(found.n, 3);
}

TEST_WITH(test_wrong_counters, setup, teardown)
{
        make_file(*state, &eformat_3);
        /* An event too many, and one too few. */
        for (int8_t difference = 1; difference >= -1; difference -= 2) {
                bytes[size_bytes - EVENT_FILE_END_BYTES + 16] = (uint8_t)(4 + difference);
                struct verify_report report = check_written(size_bytes);

                assert_false(report.ended);
                assert_int_equal(found.n, 1);
                assert_true(found.event == UINT64_MAX);
                assert_int_equal(found.fault.offset_bytes, size_bytes - EVENT_FILE_END_BYTES);
                assert_string_equal(found.fault.reason, "event count in the end record is wrong");
        }
}

TEST_WITH(test_missing_end, setup, teardown)
{
        make_file(*state, &eformat_3);
        struct verify_report report = check_written(size_bytes - EVENT_FILE_END_BYTES);

        assert_int_equal(report.events, 4);
        assert_int_equal(found.n, 1);
        assert_string_equal(found.fault.reason, "file ends without an end record");
}
