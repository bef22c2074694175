/* Meters a child that works and one that sleeps. */
#include "../test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run/child.h"

enum { BUSY, IDLE, GROUPS };

static void work(void)
{
        for (volatile unsigned i = 0;; i++)
                ;
}

static void sleep_on(void)
{
        for (;;)
                pause();
}

/* Starts a child; it is active when this returns. */
static pid_t begin(void (*run)(void))
{
        int ready[2];
        pid_t child;
        char c;

        assert_return_code(pipe(ready), 0);
        child = fork();
        if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)!write(ready[1], "", 1);
                run();
        }
        assert_true(child > 0);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        close(ready[1]);
        return child;
}

static void end(pid_t child)
{
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
}

static void wait_ms(long ms)
{
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Waits until the child has used so much processor time in total. */
static void wait_used(pid_t child, uint64_t until_ms)
{
        struct timespec used = {};
        clockid_t clock;

        assert_int_equal(clock_getcpuclockid(child, &clock), 0);
        while ((uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000 < until_ms) {
                wait_ms(10);
                clock_gettime(clock, &used);
        }
}

/* In each interval, the busy child has run for some ticks, however loaded the machine is. */
TEST(busy_process_has_larger_share)
{
        pid_t busy = begin(work), idle = begin(sleep_on);
        const struct histogram *b, *i;
        struct cpu_meter *m;

        assert_int_equal(cpu_meter_new(&m, 2, GROUPS), 0);
        assert_int_equal(cpu_meter_add(m, busy, BUSY), 0);
        assert_int_equal(cpu_meter_add(m, idle, IDLE), 0);
        b = cpu_meter_shares(m, BUSY), i = cpu_meter_shares(m, IDLE);
        assert_int_equal(b->count, 0);
        for (uint64_t n = 1; n <= 5; n++) {
                wait_used(busy, 30 * n);
                cpu_meter_sample(m);
        }
        /* The idle child may still have been active in the first interval. */
        assert_true(histogram_quantile(b, 0.5) > histogram_quantile(i, 0.5));
        assert_true(b->sum > i->sum);
        assert_int_equal(b->count, 5);
        assert_int_equal(i->count, 5);
        /* One thread uses one processor; a late tick adds less than another whole one. */
        assert_true(histogram_quantile(b, 0.5) < 2 * CPU_METER_WHOLE);
        end(busy);
        end(idle);
        cpu_meter_free(m);
}

TEST(removed_process_is_not_counted)
{
        pid_t child = begin(work), other = begin(sleep_on);
        struct cpu_meter *m;

        assert_int_equal(cpu_meter_new(&m, 2, 1), 0);
        assert_int_equal(cpu_meter_add(m, child, 0), 0);
        assert_int_equal(cpu_meter_add(m, other, 0), 0);
        wait_ms(1);
        cpu_meter_sample(m);
        assert_int_equal(cpu_meter_shares(m, 0)->count, 2);
        cpu_meter_remove(m, child);
        wait_ms(1);
        cpu_meter_sample(m);
        assert_int_equal(cpu_meter_shares(m, 0)->count, 3);
        end(child);
        end(other);
        /* This holds even without cpu_meter_remove(). */
        wait_ms(1);
        cpu_meter_sample(m);
        assert_int_equal(cpu_meter_shares(m, 0)->count, 3);
        assert_true(cpu_meter_add(m, child, 0) < 0);
        cpu_meter_free(m);
        assert_null(cpu_meter_free(NULL));
}

/* Lets the child run until it has used this processor time in total, then stops it. */
static void let_work(pid_t child, uint64_t until_ms)
{
        kill(child, SIGCONT);
        wait_used(child, until_ms);
        kill(child, SIGSTOP);
        assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
}

/* Returns the shares counted in an interval in which the child is stopped. */
static uint64_t share_while_stopped(struct cpu_meter *m)
{
        uint64_t before = cpu_meter_shares(m, 0)->sum;

        wait_ms(50);
        cpu_meter_sample(m);
        return cpu_meter_shares(m, 0)->sum - before;
}

/* Work before an interval does not count in it, whether a restart or a sample begins it. Only a last tick may
 * be late. */
TEST(intervals_are_separate)
{
        pid_t child = begin(work);
        struct cpu_meter *m;

        assert_int_equal(cpu_meter_new(&m, 1, 1), 0);
        assert_int_equal(cpu_meter_add(m, child, 0), 0);
        let_work(child, 200);
        cpu_meter_restart(m);
        assert_true(share_while_stopped(m) < CPU_METER_WHOLE / 2);
        let_work(child, 400);
        cpu_meter_sample(m);
        assert_true(share_while_stopped(m) < CPU_METER_WHOLE / 2);
        assert_int_equal(cpu_meter_shares(m, 0)->count, 3);
        end(child);
        cpu_meter_free(m);
}

static double of(const json_t *o, const char *name)
{
        return json_number_value(json_object_get(o, name));
}

TEST(describes_shares)
{
        struct histogram h;
        const json_t *edges, *below;
        json_t *o;

        histogram_init(&h);
        o = cpu_meter_describe(&h);
        assert_true(json_is_null(o));
        json_decref(o);
        /* A quarter of the intervals at 25 %, the rest at 80 %. */
        histogram_add(&h, CPU_METER_WHOLE / 4, 25);
        histogram_add(&h, CPU_METER_WHOLE * 8 / 10, 75);
        o = cpu_meter_describe(&h);
        assert_true(of(o, "p10") >= 25 && of(o, "p10") < 26 && of(o, "p50") >= 80 && of(o, "p50") < 83 &&
                    of(o, "p99") == of(o, "p90"));
        edges = json_object_get(o, "edges"), below = json_object_get(o, "below");
        assert_true(json_array_size(edges) > 5 && json_array_size(edges) == json_array_size(below));
        for (size_t i = 0; i < json_array_size(edges); i++) {
                double edge = json_number_value(json_array_get(edges, i)),
                       share = json_number_value(json_array_get(below, i));

                assert_true(edge < 25   ? share == 0
                            : edge < 80 ? share > 0.24 && share < 0.26
                                        : edge < 83 || share == 1);
        }
        json_decref(o);
}
