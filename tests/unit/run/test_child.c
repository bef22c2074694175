/* A report longer than a pipe arrives whole, however late the launcher reads it. */
#include "../test.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run/child.h"

#define PIPE_BYTES 65536
#define REPORT_BYTES 300000
#define TIMEOUT_NS (UINT64_C(60) * NS_PER_S)

static bool ended;

static void child_ended(void *ctx, struct child *c)
{
        (void)ctx, (void)c;
        ended = true;
}

/* Waits until the child cannot write more without a reader. */
static void wait_for_full_pipe(const struct child *c)
{
        static const struct timespec pause = {.tv_nsec = 1000000};
        uint64_t end_ns = clock_now_ns() + TIMEOUT_NS;
        int n = 0;

        while (ioctl(c->report_io.fd, FIONREAD, &n) == 0 && n < PIPE_BYTES) {
                assert_true(clock_now_ns() < end_ns);
                nanosleep(&pause, NULL);
        }
}

/* The child plays a node: it writes a report, and its status says whether that succeeded. */
TEST(long_reports_are_whole)
{
        static const struct scenario_node node = {.name = "sfi1", .role = ROLE_SFI};
        char program[] = "/tmp/evb-test-child-XXXXXX", script[128];
        struct child_command command = {.program = program, .config = "none", .namespace = -1};
        struct child c = {.node = &node, .ended = child_ended};
        int fd = mkstemp(program), n;
        uint64_t end_ns = clock_now_ns() + TIMEOUT_NS;
        struct loop *loop;

        n = snprintf(script, sizeof script, "#!/bin/sh\nprintf %%0%dd 0 2>/dev/null\n", REPORT_BYTES);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, script, (size_t)n), n);
        assert_return_code(fchmod(fd, S_IRWXU), 0);
        close(fd);
        assert_int_equal(loop_new(&loop), 0);
        c.loop = loop;
        assert_int_equal(child_start(&c, &command), 0);
        wait_for_full_pipe(&c);
        while (!ended) {
                assert_true(clock_now_ns() < end_ns);
                assert_int_equal(loop_wait(c.loop, end_ns), 0);
        }
        assert_fields(&c, status, 0, report_bytes, REPORT_BYTES);
        child_fini(&c);
        loop_free(loop);
        unlink(program);
}
