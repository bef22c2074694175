/* Runs paths over loopback: what arrives, what is counted, what is refused, and that every run ends. */
#include "../test.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "stream/paths.h"

#define FILE_BYTES (1u << 20)
#define PAYLOAD 1024u

static struct path_file *file;

static int make_file(void **state)
{
        static const bool want[PATH_SOURCES] = {true, false};
        struct error e = {};

        return path_file_new(&file, "/var/tmp", FILE_BYTES, want, &e);
}

static int free_file(void **state)
{
        file = path_file_free(file);
        return 0;
}

static struct path_result run_one(struct path_run r)
{
        struct path_result result;
        struct error e = {};

        if (path_run(&r, file, NULL, &result, &e) < 0)
                fail_msg("%s, %s: %s", r.path->row, r.path->form, e.message);
        /* No process is left. */
        assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
        return result;
}

static struct path_result run(unsigned row, unsigned form, enum path_wire wire)
{
        return run_one((struct path_run){.path = path_find(row, form),
                                         .wire = wire,
                                         .payload_bytes = PAYLOAD,
                                         .seconds = 1,
                                         .check_bytes = FILE_BYTES});
}

static uint64_t count_of(const struct path_result *r, int number)
{
        for (size_t i = 0; i < PATH_CALLS_NAMED; i++) {
                if (r->by_call[i].number == number)
                        return r->by_call[i].n;
        }
        return 0;
}

TEST(all_bytes_arrive)
{
        for (unsigned wire = 0; wire < PATH_WIRES; wire++) {
                struct path_result r = run(4, 0, wire);

                /* Without permission. */
                if (wire == PATH_SINK && r.refused)
                        continue;
                assert_null(r.refused);
                assert_true(r.intact);
                assert_fields(&r, checked_bytes, FILE_BYTES, sent_bytes, FILE_BYTES);
                /* The measurement sends the file several times. */
                assert_true(r.bytes >= FILE_BYTES && r.bytes == r.packets * PAYLOAD);
                assert_true(r.seconds > 0 && r.system_seconds + r.user_seconds > 0);
                assert_int_equal(r.received_bytes > 0, wire != PATH_SINK);
                assert_int_equal(r.notified, 0);
        }
}

/* Small, odd and large ones; the last packet of the file is shorter. How much is checked does not depend on
 * the time. */
TEST(any_payload_arrives)
{
        static const unsigned rows[] = {3, 5, 7, 10, 11, 13};
        static const struct {
                uint32_t payload_bytes;
                uint64_t check_bytes;
        } sizes[] = {{32, 65536}, {1000, FILE_BYTES}, {PATH_PAYLOAD_MAX_BYTES, FILE_BYTES}};

        for (unsigned i = 0; i < ARRAY_SIZE(rows) * ARRAY_SIZE(sizes) * 4; i++) {
                const struct path *path = path_find(rows[i % 6], i / 6 % 2);
                unsigned size = i / 24;
                struct path_result r;

                if (!path)
                        continue;
                r = run_one((struct path_run){.path = path,
                                              .wire = i / 12 % 2 ? PATH_TCP : PATH_UDP,
                                              .payload_bytes = sizes[size].payload_bytes,
                                              .seconds = 0.001,
                                              .check_bytes = sizes[size].check_bytes});
                if (!r.refused && (!r.intact || r.checked_bytes != sizes[size].check_bytes))
                        fail_msg("%s, %s, %u bytes: not intact", path->row, path->form,
                                 sizes[size].payload_bytes);
        }
}

/* Exactly those that the path makes. */
TEST(calls_are_counted)
{
        struct path_result r = run(1, 0, PATH_UDP);
        uint64_t n = FILE_BYTES / PAYLOAD;

        if (!r.counted) {
                print_message("not counted: %s\n", strerror(-r.not_counted));
                skip();
        }
        assert_int_equal(r.counted_packets, n);
        assert_int_equal(count_of(&r, SYS_read), n);
        assert_int_equal(count_of(&r, SYS_sendto), n);
        assert_true(r.calls >= 2 * n && r.calls < 2 * n + 20);
        r = run(6, 0, PATH_UDP);
        assert_int_equal(count_of(&r, SYS_setsockopt), 2 * n);
        assert_int_equal(count_of(&r, SYS_sendto), 2 * n);
}

TEST(a_refusal_names_the_call)
{
        static const bool want[PATH_SOURCES] = {false, true};
        struct path_run r = {.path = path_find(13, 0),
                             .source = PATH_DISK,
                             .payload_bytes = 1000,
                             .seconds = 1,
                             .check_bytes = FILE_BYTES};
        struct path_file *disk = NULL;
        struct path_result result;
        struct error e = {};

        assert_int_equal(path_file_new(&disk, "/var/tmp", FILE_BYTES, want, &e), 0);
        /* O_DIRECT takes no such payload. */
        assert_int_equal(path_run(&r, disk, NULL, &result, &e), 0);
        path_file_free(disk);
        if (!result.refused) {
                print_message("this file system takes any payload\n");
                skip();
        }
        assert_true(strlen(result.refused) > 5 && result.refusal < 0);
        assert_int_equal(result.bytes, 0);
}

TEST(a_full_disk_is_refused)
{
        static const bool want[PATH_SOURCES] = {true, true};
        struct path_file *f = NULL;
        struct error e = {};

        assert_int_equal(path_file_new(&f, "/var/tmp", UINT64_C(1) << 60, want, &e), -ENOSPC);
        assert_non_null(strstr(e.message, "MB are free"));
        assert_string_equal(e.location, "/var/tmp");
        assert_true(path_file_new(&f, "/nonexistent", FILE_BYTES, want, &e) < 0);
        assert_null(f);
}

TESTS_BETWEEN(make_file, free_file)
