/* When the event loop polls and when it sleeps, under a clock that only the test's own calls move. */
#include "../test.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "sys/loop.h"

#define LOOK_NS NS_PER_US
#define POLL_NS (50 * NS_PER_US)

static uint64_t now_ns;
static unsigned looks, sleeps;
/* What happens next, and when. */
static void (*event)(void);
static uint64_t event_ns;
static bool interrupted;
static uint64_t held_ns; /* how long the process is stopped in its next sleep, which a signal then ends */

static struct loop *loop;
static struct loop_io io;
static unsigned ready;

int __real_epoll_wait(int fd, struct epoll_event *events, int n, int timeout_ms);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
        *ret = (struct timespec){(time_t)(now_ns / NS_PER_S), (long)(now_ns % NS_PER_S)};
        return 0;
}

static void pass_to(uint64_t t_ns)
{
        if (event && event_ns <= t_ns) {
                now_ns = event_ns;
                event();
                event = NULL;
        }
        now_ns = MAX(now_ns, t_ns);
}

int __wrap_epoll_wait(int fd, struct epoll_event *events, int n, int timeout_ms)
{
        assert_int_equal(timeout_ms, 0);
        looks++;
        pass_to(now_ns + LOOK_NS);
        if (interrupted) {
                interrupted = false;
                errno = EINTR;
                return -1;
        }
        return __real_epoll_wait(fd, events, n, 0);
}

int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
                        const sigset_t *mask)
{
        uint64_t wait_ns = timeout ? (uint64_t)timeout->tv_sec * NS_PER_S + (uint64_t)timeout->tv_nsec : 0;
        int k;

        assert_true(timeout || event); /* or it would sleep for ever */
        sleeps += !timeout || wait_ns > 0;
        k = __real_epoll_wait(fd, events, n, 0);
        if (k != 0 || (timeout && wait_ns == 0))
                return k;
        if (held_ns > 0) {
                pass_to(now_ns + held_ns);
                held_ns = 0;
                errno = EINTR;
                return -1;
        }
        pass_to(event && (!timeout || event_ns <= now_ns + wait_ns) ? event_ns : now_ns + wait_ns);
        return __real_epoll_wait(fd, events, n, 0);
}

static void write_now(void)
{
        uint64_t one = 1;

        assert_int_equal(write(io.fd, &one, sizeof one), sizeof one);
}

static void stop_now(void)
{
        raise(SIGTERM);
}

static void after(uint64_t ns, void (*what)(void))
{
        event_ns = now_ns + ns;
        event = what;
}

static void consume(void *ctx, uint32_t events)
{
        uint64_t n;

        assert_int_equal(read(io.fd, &n, sizeof n), sizeof n);
        ready++;
}

/* A loop that has just returned from an event. */
static int set_up(void **state)
{
        now_ns = NS_PER_S;
        assert_int_equal(loop_new(&loop), 0);
        io = (struct loop_io){
                .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .events = EPOLLIN, .ready = consume};
        assert_int_equal(loop_add(loop, &io), 0);
        loop_set_poll(loop, POLL_NS);
        after(NS_PER_MS, write_now);
        assert_int_equal(loop_wait(loop, NEVER_NS), 0);
        assert_int_equal(ready, 1);
        looks = sleeps = ready = 0;
        return 0;
}

static int tear_down(void **state)
{
        loop = loop_free(loop);
        close(io.fd);
        looks = sleeps = ready = 0;
        event = NULL;
        return 0;
}

/* The caller's work does not shorten the time of polling. */
TEST_WITH(it_polls_after_work_and_then_sleeps, set_up, tear_down)
{
        uint64_t begin_ns;

        for (unsigned i = 1; i <= 3; i++) {
                now_ns += NS_PER_MS; /* the work */
                after(POLL_NS - 5 * NS_PER_US, write_now);
                assert_int_equal(loop_wait(loop, NEVER_NS), 0);
                assert_int_equal(ready, i);
                assert_int_equal(sleeps, 0);
        }
        looks = 0;
        begin_ns = now_ns;
        after(NS_PER_S, write_now);
        assert_int_equal(loop_wait(loop, NEVER_NS), 0);
        assert_int_equal(looks, POLL_NS / LOOK_NS);
        assert_int_equal(sleeps, 1);
        assert_int_equal(ready, 4);
        assert_int_equal(loop_now_ns(loop), begin_ns + NS_PER_S);
}

/* One that comes while it polls, and one after that. The time of polling begins again after each. */
TEST_WITH(deadlines_count, set_up, tear_down)
{
        uint64_t deadline_ns = now_ns + POLL_NS / 2;

        assert_int_equal(loop_wait(loop, deadline_ns), 0);
        assert_in_range(loop_now_ns(loop), deadline_ns, deadline_ns + LOOK_NS);
        deadline_ns = now_ns + POLL_NS - 5 * NS_PER_US;
        assert_int_equal(loop_wait(loop, deadline_ns), 0);
        assert_in_range(loop_now_ns(loop), deadline_ns, deadline_ns + LOOK_NS);
        assert_int_equal(sleeps, 0);
        deadline_ns = now_ns + NS_PER_S;
        assert_int_equal(loop_wait(loop, deadline_ns), 0);
        assert_int_equal(loop_now_ns(loop), deadline_ns);
        assert_int_equal(sleeps, 1);
        after(POLL_NS / 2, write_now);
        assert_int_equal(loop_wait(loop, NEVER_NS), 0);
        assert_int_equal(ready, 1);
        assert_int_equal(sleeps, 1);
}

TEST_WITH(a_deadline_in_the_past_does_not_poll, set_up, tear_down)
{
        assert_int_equal(loop_wait(loop, 0), 0);
        assert_int_equal(looks + sleeps, 0);
}

TEST_WITH(a_signal_ends_the_polling, set_up, tear_down)
{
        uint64_t stopped_ns = now_ns + POLL_NS / 2;

        assert_int_equal(loop_catch_signals(loop), 0);
        after(POLL_NS / 2, stop_now);
        assert_int_equal(loop_wait(loop, NEVER_NS), 0);
        assert_int_equal(loop_signals(loop), 1);
        assert_in_range(loop_now_ns(loop), stopped_ns, stopped_ns + LOOK_NS);
        assert_int_equal(sleeps, 0);
}

/* By a debugger, for example. */
TEST_WITH(an_interruption_is_no_error, set_up, tear_down)
{
        interrupted = true;
        assert_int_equal(loop_wait(loop, NEVER_NS), 0);
        assert_int_equal(looks, 1);
}

/* Data arrived before the deadline, while the process was stopped. */
TEST_WITH(what_arrived_in_time_is_seen_before_the_deadline, set_up, tear_down)
{
        loop_set_poll(loop, 0);
        after(NS_PER_MS, write_now);
        held_ns = NS_PER_S;
        assert_int_equal(loop_wait(loop, now_ns + 100 * NS_PER_MS), 0);
        assert_int_equal(ready, 1);
}

TEST_WITH(without_polling_it_sleeps_at_once, set_up, tear_down)
{
        loop_set_poll(loop, 0);
        after(LOOK_NS, write_now);
        assert_int_equal(loop_wait(loop, NEVER_NS), 0);
        assert_int_equal(looks, 0);
        assert_int_equal(sleeps, 1);
}

/* ---- Signals ---- */

static unsigned count_after(int number)
{
        assert_int_equal(raise(number), 0);
        assert_int_equal(loop_wait(loop, now_ns), 0);
        return loop_signals(loop);
}

TEST(signals_at_once_are_one_request)
{
        signal(SIGHUP, SIG_DFL); /* nohup ignores it */
        signals_hold_early();
        assert_int_equal(raise(SIGHUP), 0);
        assert_int_equal(loop_new(&loop), 0);
        assert_int_equal(loop_catch_signals(loop), 0);
        assert_int_equal(loop_wait(loop, now_ns), 0);
        assert_int_equal(loop_hangups(loop), 1);
        assert_int_equal(loop_stops(loop), 1);
        assert_int_equal(loop_signals(loop), 0);
        assert_int_equal(count_after(SIGTERM), 1);
        /* As `timeout --signal=INT` sends them, and as a logout does. */
        assert_int_equal(count_after(SIGINT), 1);
        now_ns += NS_PER_S - 1;
        assert_int_equal(count_after(SIGINT), 1);
        assert_int_equal(loop_stops(loop), 1);
        now_ns += 1;
        assert_int_equal(count_after(SIGINT), 2);
        assert_int_equal(loop_stops(loop), 2);
        loop = loop_free(loop);
}
