/* The record of a DFM's run: whole or refused, and gone if it cannot be written. */
#include "../test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/processes_file.h"

static char folder[] = "/tmp/evb-processes-XXXXXX";

static void open_file(struct processes_file *f)
{
        char path[64];

        snprintf(path, sizeof path, "%s/dfm", folder);
        assert_int_equal(processes_file_open(f, path), 0);
}

static void fill(struct dfm_processes *p)
{
        memset(p, 0, sizeof *p);
        p->cookie = 0xC0C1E;
        p->dfms[0] = 7;
        p->dfms[DFM_LINEAGE - 1] = 9;
        p->has_all = true;
        p->guessed = true;
        p->unrecorded = true;
        p->forgotten = 17;
        p->replaced = (struct node_totals){1, 2, 3, 4, 5};
        p->again = (struct node_totals){11, 12, 13, 14, 15};
        p->counted = (struct dfm_ends){21, 22, 23, 24, 25};
        p->came.offered = (struct dfm_offered){.triggers = 31, .refused = 32, .in_spills = 33};
        p->came.next = UINT64_MAX;
        p->came.waiting = 34;
        for (size_t i = 0; i < DFM_NUMBERS_WINDOW / 64; i++)
                p->came.seen[i] = UINT64_MAX / 3 + i;
        p->came.in_spill = true;
        p->came.paused = true;
        p->came.over = true;
        p->figures = (struct dfm_figures){41, 42, 43, 44, 48, 49, 50, {45, 46, 47}, {51, 52, 53, 54, 55, 56}};
        p->metadata = (struct metadata_set){.version = 61, .n = 2, {{"target", "Pb"}, {"who", ""}}};
        p->n_ros = 1;
        p->n_sfi = 2;
        p->ross[0] = (struct dfm_process){
                .incarnation = 10, .left = true, .flags = ALIVE_SHORT | ALIVE_UNRELIABLE, .frames = 62};
        p->sfis[0] = (struct dfm_process){.incarnation = 11,
                                          .gone = true,
                                          .replaced = true,
                                          .left = true,
                                          .ends = {6, 7, 8, 9, 10},
                                          .unclosed = 16};
        p->sfis[1] = (struct dfm_process){.incarnation = 12, .vanished = true, .unknown = true};
        p->oldest = 70;
        p->next = 200;
        p->built_end = 180;
        p->away_from = 64;
        p->forgotten_from = 100;
        p->n_away = 1;
        p->away[0] = 0x21;
        p->lost_from = 128;
        p->n_lost = 1;
        p->lost[0] = 0x11;
        p->n_words = 3;
        p->words[0] = 0x80;
        p->words[2] = 0x41;
}

TEST(what_was_written_is_read)
{
        _cleanup_free_ struct dfm_processes *expected = calloc(1, sizeof *expected);
        _cleanup_(processes_file_close) struct processes_file f, g;

        assert_non_null(expected);
        fill(expected);
        open_file(&f);
        assert_int_equal(processes_file_read(&f), -ENOENT);
        fill(f.processes);
        f.counters = (struct processes_counters){.trigger_datagrams = 71, .busy_datagrams = 72};
        assert_int_equal(processes_file_write(&f), 0);
        open_file(&g);
        assert_int_equal(processes_file_read(&g), 0);
        assert_memory_equal(g.processes, expected, sizeof *expected);
        assert_memory_equal(&g.counters, &f.counters, sizeof f.counters);
        processes_file_remove(&f);
        assert_int_equal(processes_file_read(&g), -ENOENT);
        assert_int_equal(g.processes->cookie, 0);
}

/* Cut off anywhere, or with any byte changed. */
TEST(a_damaged_file_is_refused)
{
        _cleanup_(processes_file_close) struct processes_file f;
        uint8_t bytes[4096];
        ssize_t n;
        FILE *file;

        open_file(&f);
        fill(f.processes);
        assert_int_equal(processes_file_write(&f), 0);
        file = fopen(f.path, "r");
        assert_non_null(file);
        n = (ssize_t)fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        assert_true(n > 100 && n < (ssize_t)sizeof bytes);
        for (ssize_t i = 0; i < 2 * n; i++) {
                ssize_t kept = i < n ? i : n;

                bytes[i % n] ^= i < n ? 0 : 0x10;
                file = fopen(f.path, "w");
                assert_non_null(file);
                assert_int_equal(fwrite(bytes, 1, (size_t)kept, file), kept);
                assert_int_equal(fclose(file), 0);
                bytes[i % n] ^= i < n ? 0 : 0x10;
                assert_int_equal(processes_file_read(&f), -EBADMSG);
                assert_int_equal(f.processes->cookie, 0);
        }
        processes_file_remove(&f);
}

/* An old file would be wrong. */
TEST(a_failure_leaves_no_file)
{
        _cleanup_(processes_file_close) struct processes_file f;

        open_file(&f);
        fill(f.processes);
        assert_int_equal(processes_file_write(&f), 0);
        assert_int_equal(mkdir(f.next, 0700), 0);
        assert_int_equal(processes_file_write(&f), -EISDIR);
        assert_int_equal(processes_file_read(&f), -ENOENT);
        assert_int_equal(rmdir(f.next), 0);
        fill(f.processes);
        assert_int_equal(processes_file_write(&f), 0);
        assert_int_equal(processes_file_read(&f), 0);
        processes_file_remove(&f);
}

static int set_up(void **state)
{
        return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
        return rmdir(folder);
}

TESTS_BETWEEN(set_up, tear_down)
