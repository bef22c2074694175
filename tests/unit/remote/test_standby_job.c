/* Tests the job of a standby node beyond tests/system/test_standby.py. */
#include "../test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "remote/standby_flows.h"
#include "remote/standby_job.h"

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
TEST(limits_stop_time)
{
        assert_true(stop_ns(HOUR_NS, NS_PER_S) <= 2 * NS_PER_S * 60);
        /* The node's own timeouts may be longer. */
        assert_true(stop_ns(HOUR_NS, HOUR_NS) >= 2 * HOUR_NS);
        assert_true(stop_ns(HOUR_NS, HOUR_NS) <= 3 * HOUR_NS);
        assert_true(stop_ns(NS_PER_MS, HOUR_NS) < 10 * NS_PER_S);
}

static bool counts_forks;
static unsigned forks;

pid_t __real_fork(void);
pid_t __wrap_fork(void);

pid_t __wrap_fork(void)
{
        if (!counts_forks)
                return __real_fork();
        forks++;
        errno = EAGAIN;
        return -1;
}

/* A command with one endpoint of this node, or with another of an unknown role behind it. */
static int begin_flows(struct error *e, bool with_invalid)
{
        static const char one[] = "{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s}";
        struct scenario *s = calloc(1, sizeof *s);
        struct standby_flows *f = calloc(1, sizeof *f);
        json_t *endpoints = json_array(), *command;
        int r;

        assert_true(s && f);
        s->n_nodes = 2;
        strcpy(s->nodes[0].address, "127.0.0.1");
        strcpy(s->nodes[1].address, "127.0.0.2");
        for (int role = 0; role <= (with_invalid ? 99 : 0); role += 99)
                json_array_append_new(endpoints,
                                      json_pack(one, "role", role, "kind", 0, "flow", 0, "which", 0, "port",
                                                7000, "message_bytes", 100, "buffer_bytes", 0,
                                                "messages_per_s", 10, "receiver_packets_per_s", 0, "from",
                                                "127.0.0.1", "to", "127.0.0.2", "at", "127.0.0.1"));
        command = json_pack("{s:o}", "endpoints", endpoints);
        forks = 0;
        counts_forks = true;
        r = standby_flows_begin(f, s, &s->nodes[0], command, e);
        counts_forks = false;
        json_decref(command);
        free(f);
        free(s);
        return r;
}

TEST(no_endpoint_starts_beside_an_invalid_one)
{
        struct error e = {};

        assert_int_equal(begin_flows(&e, false), -EAGAIN);
        assert_int_equal(forks, 1);
        assert_int_equal(begin_flows(&e, true), -EINVAL);
        assert_non_null(strstr(e.message, "endpoint 1"));
        assert_int_equal(forks, 0);
}
