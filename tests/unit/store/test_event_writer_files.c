/* The writer among other files: which number it takes, and who may not touch its open file. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>

#include "writer_sample.h"

/* In a process of its own: writes two events, says so, and lives until it is killed. */
static _Noreturn void write_and_wait(const char *directory, int to)
{
        struct closed closed;
        struct event_writer_settings s = make_settings(directory, &closed);
        struct event_writer *w;
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

/* Repair leaves a file alone that another process writes, and names that process; after its end it does its
 * work. */
static void test_locked_while_written(void **state)
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
                write_and_wait(*state, pipes[1]);
        assert_int_equal(read(pipes[0], &done, 1), 1);
        assert_true(done);
        snprintf(path, sizeof path, "%s/" CORE "._0001.writing", (const char *)*state);
        snprintf(copy, sizeof copy, "%s/copy", (const char *)*state);
        assert_int_equal(truncate(path, 500), 0); /* so that there is something to repair */
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_locked_while_written, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
