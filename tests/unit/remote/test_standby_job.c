/* Tests the job of a standby node beyond tests/system/test_standby.py. */
#include "../test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "standby_job.h"

#define HOUR_NS (3600 * NS_PER_S)
#define NOW_NS (1000 * NS_PER_S)

static void drop_answer(void *ctx, json_t *answer)
{
        (void)ctx;
        json_decref(answer);
}

/* Stops a run with timeouts from a command, on a node with its own timeouts. Returns the time until it is
 * killed. */
static uint64_t stop_ns(uint64_t command_ns, uint64_t own_ns)
{
        struct scenario *own = calloc(1, sizeof *own), *command = calloc(1, sizeof *command);
        struct standby_options options = {.scenario = own};
        struct loop *loop = NULL;
        pid_t child = fork();
        uint64_t kill_ns;
        struct job j;

        if (child == 0) {
                pause();
                _exit(0);
        }
        assert_true(child > 0 && own && command);
        assert_int_equal(loop_new(&loop), 0);
        own->dfm.event_timeout_ns = own_ns;
        command->dfm.event_timeout_ns = command_ns;
        command->dfm.reassign = 100;
        job_init(&j, &options, NULL, loop, drop_answer, NULL);
        j.scenario = command;
        j.child.pid = child;
        j.child.running = true;
        job_stop(&j, NOW_NS);
        kill_ns = j.kill_ns;
        assert_int_equal(waitpid(child, NULL, 0), child);
        loop_free(loop);
        free(command);
        free(own);
        return kill_ns - NOW_NS;
}

/* No command can delay a stop for days. */
static void limits_stop_time(void **state)
{
        (void)state;
        assert_true(stop_ns(HOUR_NS, NS_PER_S) <= 2 * NS_PER_S * 60);
        /* The node's own timeouts may be longer. */
        assert_true(stop_ns(HOUR_NS, HOUR_NS) >= 2 * HOUR_NS);
        assert_true(stop_ns(HOUR_NS, HOUR_NS) <= 3 * HOUR_NS);
        assert_true(stop_ns(NS_PER_MS, HOUR_NS) < 10 * NS_PER_S);
}

int main(void)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(limits_stop_time)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
