/* Shared by the tests of the event writer: its settings, and a record of the closed files. All tests run for
 * each way of writing. */
#pragma once

#include "store/verify.h"
#include "sys/disk_writer.h"
#include "store_sample.h"

#define CORE "data26_evb.00000012.physics_Main.daq.RAW._lb0000._SFI-1"

static struct event_writer *w;
static struct event_writer_settings s;

static struct closed {
        unsigned n;
        uint64_t events, bytes;
        struct event_writer_file file; /* the last one, with the path `last` */
        char last[PATH_MAX];
} closed;

static inline void on_closed(void *userdata, const struct event_writer_file *file)
{
        assert_ptr_equal(userdata, &closed);
        closed.n++;
        closed.events += file->events;
        closed.bytes += file->size_bytes;
        snprintf(closed.last, sizeof closed.last, "%s", file->path);
        assert_true(file->begun > 0 && file->ended >= file->begun);
        closed.file = *file;
}

static inline void make_settings(const char *directory)
{
        const char *way = getenv("EVB_TEST_WRITE") ?: "";

        closed = (struct closed){0};
        s = (struct event_writer_settings){
                .directory = directory,
                .core_name = CORE,
                .application = "SFI-1",
                .version = 2,
                .run = 12,
                .stamped = true,
                .has_seed = true,
                .seed = 5,
                .background = strstr(way, "background"),
                .direct = strstr(way, "direct"),
                .closed = on_closed,
                .userdata = &closed,
        };
}

/* Whether the way of writing is possible here. */
static inline bool sample_has_direct(void)
{
        const char *parent = getenv("TMPDIR") ?: "/tmp";
        int r = disk_check_direct(parent);

        if (r < 0)
                print_message("skipped: direct writes to %s: %s\n", parent, strerror(-r));
        return r == 0;
}

static inline bool sample_can_write(void)
{
        return !strstr(getenv("EVB_TEST_WRITE") ?: "", "direct") || sample_has_direct();
}

static inline int setup(void **state)
{
        *state = sample_directory();
        make_settings(*state);
        return 0;
}

static inline int teardown(void **state)
{
        event_writer_free(take_ptr(w));
        sample_remove(*state);
        return 0;
}

static inline void start(void)
{
        assert_int_equal(event_writer_new(&w, &s, SAMPLE_NOW), 0);
}

static inline void finish(void)
{
        assert_int_equal(event_writer_close(w, SAMPLE_NOW), 0);
}

/* Asserts that the closed file that was reported last has the reported size and checksum. */
static inline void check_closed(const struct event_file *file)
{
        size_t size_bytes;
        const uint8_t *bytes = event_file_bytes(file, &size_bytes);

        assert_int_equal(size_bytes, closed.file.size_bytes);
        assert_int_equal(adler_add(ADLER_BEGIN, bytes, size_bytes), closed.file.sum);
}

/* Asserts that the file has no fault, and returns the number of its events. */
static inline uint64_t sample_events(const char *path)
{
        struct verify_report report;
        struct event_file *file;
        struct eformat_fault fault = {0};

        if (event_file_open(&file, path, &fault) < 0)
                fail_msg("%s: byte %zu: %s", path, fault.offset_bytes, fault.reason);
        assert_int_equal(event_file_verify(file, NULL, NULL, NULL, &report), 0);
        assert_int_equal(report.n_faults, 0);
        assert_true(report.ended);
        if (strcmp(path, closed.last) == 0)
                check_closed(file);
        event_file_free(file);
        return report.events;
}
