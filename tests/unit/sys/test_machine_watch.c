/* Tests the reading of processor times, and a watch over a process that works and one that is held up. */
#include "../test.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sys/loop.h"
#include "sys/machine_watch.h"
#include "sys/thread.h"

/* Some tenths of a second; the clocks of /proc have ticks of 10 ms. */
#define WORK_NS (400 * NS_PER_MS)

static const char stat_text[] = "cpu  100 20 30 4000 500 6 7 88 0 0\n"
                                "cpu0 10 2 3 400 50 1 2 8 0 0\n"
                                "cpu1 90 18 27 3600 450 5 5 80 0 0\n"
                                "intr 123 4 5 6\n"
                                "ctxt 99\n";

static bool use_all(void *ctx, unsigned processor)
{
        return true;
}

static bool use_one(void *ctx, unsigned processor)
{
        return processor == *(unsigned *)ctx;
}

TEST(processor_times_are_summed)
{
        static struct processors all;
        struct machine_times t;
        unsigned one = 1, none = 7;

        assert_int_equal(processors_parse(&all, stat_text), 0);
        assert_int_equal(machine_times_sum(&t, &all, 10 * NS_PER_MS, use_all, NULL), 0);
        assert_fields(&t, processors, 2, idle_ns, 4500 * 10 * NS_PER_MS, stolen_ns, 88 * 10 * NS_PER_MS);
        /* Processors that this process may not use do not count. */
        assert_int_equal(machine_times_sum(&t, &all, 10 * NS_PER_MS, use_one, &one), 0);
        assert_fields(&t, processors, 1, idle_ns, 4050 * 10 * NS_PER_MS, stolen_ns, 80 * 10 * NS_PER_MS);
        assert_int_equal(machine_times_sum(&t, &all, 10, use_one, &none), -EBADMSG);
}

TEST(other_texts_are_rejected)
{
        struct thread_times used = {1, 2, 3};

        assert_int_equal(thread_times_add(&used, ""), -EBADMSG);
        assert_int_equal(thread_times_add(&used, "17 4"), -EBADMSG);
        assert_int_equal(thread_times_add(&used, "x 17 2"), -EBADMSG);
        assert_int_equal(used.used_ns, 1);
        assert_int_equal(thread_times_add(&used, "100 200 3\n"), 0);
        assert_int_equal(thread_times_add(&used, "18446744073709551000 5 1\n"), 0);
        assert_fields(&used, waited_ns, 207, turns, 7);
}

/* Two processors for one second: 0.4 s of them idle, 0.1 s stolen, 0.9 s ours; 0.6 s remain for others. */
TEST(shares_are_parts_of_all_processors)
{
        struct machine_times begin = {7 * NS_PER_S, NS_PER_S, 2},
                             end = {7 * NS_PER_S + 400 * NS_PER_MS, NS_PER_S + 100 * NS_PER_MS, 2};
        struct thread_times ours = {900 * NS_PER_MS, 3 * NS_PER_S, 1000};
        struct machine_view v;

        machine_view_shares(&v, &begin, &end, &ours, NS_PER_S);
        assert_float_equal(v.stolen_share, 0.05, 1e-9);
        assert_float_equal(v.others_share, 0.3, 1e-9);
        assert_float_equal(v.waiting_share, 1.5, 1e-9);
        assert_float_equal(v.wait_mean_us, 3000, 1e-9);
        /* A clock that is a tick ahead makes no negative share, nor does one that goes back. */
        ours.used_ns = 1600 * NS_PER_MS;
        end.stolen_ns = 0;
        machine_view_shares(&v, &begin, &end, &ours, NS_PER_S);
        assert_true(v.others_share == 0 && v.stolen_share == 0);
}

static pid_t start_work(void)
{
        pid_t pid = fork();

        if (pid == 0) {
                /* As root, on a busy machine, too. */
                (void)priority_raise();
                for (;;)
                        ;
        }
        assert_true(pid > 0);
        return pid;
}

static void stop_work(pid_t pid)
{
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static uint64_t used_ns_of(pid_t pid)
{
        struct timespec used;
        clockid_t clock;

        assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
        assert_int_equal(clock_gettime(clock, &used), 0);
        return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

/* Two watches see the same work, however much of it there is beside what else runs: one counts it as ours. */
TEST(work_counts_where_it_belongs)
{
        struct machine_watch *ours = NULL, *others = NULL;
        struct machine_view of_ours, of_others;
        double processors, used_s;
        cpu_set_t set;
        uint64_t used_ns;
        pid_t pid;

        assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
        processors = CPU_COUNT(&set);
        assert_int_equal(machine_watch_new(&ours), 0);
        assert_int_equal(machine_watch_new(&others), 0);
        pid = start_work();
        machine_watch_add(ours, pid);
        /* What happens between two looks counts as others', never as ours. */
        machine_watch_turn(others, clock_now_ns(), true);
        machine_watch_turn(ours, clock_now_ns(), true);
        used_ns = used_ns_of(pid);
        while (used_ns_of(pid) - used_ns < WORK_NS)
                usleep(20000);
        used_s = (double)(used_ns_of(pid) - used_ns) / NS_PER_S;
        machine_watch_turn(ours, clock_now_ns(), true);
        machine_watch_turn(others, clock_now_ns(), true);
        stop_work(pid);
        machine_watch_view(ours, &of_ours);
        machine_watch_view(others, &of_others);
        machine_watch_free(ours);
        machine_watch_free(others);
        assert_true(of_ours.seconds >= used_s && of_others.seconds >= of_ours.seconds);
        assert_true(of_others.others_share >= 0 && of_others.others_share <= 1);
        assert_true(of_ours.waiting_share >= 0 && of_others.waiting_share == 0);
        assert_true(of_ours.stolen_share >= 0 && of_ours.stolen_share <= 1);
        /* The clocks of /proc have ticks. */
        assert_true((of_others.others_share * of_others.seconds - of_ours.others_share * of_ours.seconds) *
                            processors >=
                    used_s / 2);
}

/* A process that does not fit must not pass for a disturbance. */
TEST_EACH(with_too_many_processes_others_are_unknown, more, 2)
{
        struct machine_watch *w = NULL;
        struct machine_view v;

        assert_int_equal(machine_watch_new(&w), 0);
        for (unsigned i = 0; i < 255 + more; i++)
                machine_watch_add(w, getpid());
        machine_watch_turn(w, clock_now_ns(), true);
        usleep(200000);
        machine_watch_turn(w, clock_now_ns(), true);
        machine_watch_view(w, &v);
        machine_watch_free(w);
        assert_true(v.seconds > 0.1 && v.stolen_share >= 0);
        assert_int_equal(isnan(v.others_share) != 0, more);
        assert_int_equal(isnan(v.waiting_share) != 0, more);
}

/* Real-time work delays the probe of its processor; ordinary work does not. */
TEST(real_time_work_makes_timers_late)
{
        struct sched_param priority = {.sched_priority = 50};
        struct machine_watch *w = NULL;
        struct machine_view v;
        pid_t pid;

        assert_int_equal(machine_watch_new(&w), 0);
        machine_watch_turn(w, clock_now_ns(), true);
        pid = fork();
        if (pid == 0) {
                uint64_t begin_ns;

                if (sched_setscheduler(0, SCHED_FIFO, &priority) < 0)
                        _exit(77);
                begin_ns = clock_now_ns();
                while (clock_now_ns() - begin_ns < 50 * NS_PER_MS)
                        ;
                _exit(0);
        } else {
                int status;

                assert_int_equal(waitpid(pid, &status, 0), pid);
                /* The probe may get its processor later than this test. */
                for (int i = 0; i < 1000; i++) {
                        usleep(10000);
                        machine_watch_turn(w, clock_now_ns(), true);
                        machine_watch_view(w, &v);
                        if (WEXITSTATUS(status) == 77 || v.late_max_us >= 40000)
                                break;
                }
                machine_watch_free(w);
                if (WEXITSTATUS(status) == 77) {
                        assert_true(isnan(v.late_max_us));
                        skip();
                }
        }
        assert_true(v.late_max_us >= 40000 && v.late_p99_us <= v.late_max_us);
}

TEST(nothing_is_known_without_a_watch)
{
        struct machine_watch *w = NULL;
        struct machine_view v;

        machine_watch_view(NULL, &v);
        assert_true(v.seconds == 0 && isnan(v.stolen_share) && isnan(v.others_share) && isnan(v.late_max_us));
        machine_watch_turn(NULL, 1, true);
        machine_watch_add(NULL, 1);
        assert_null(machine_watch_free(NULL));
        /* A watch that was never active. */
        assert_int_equal(machine_watch_new(&w), 0);
        machine_watch_turn(w, clock_now_ns(), false);
        machine_watch_view(w, &v);
        assert_true(v.seconds == 0 && isnan(v.waiting_share) && isnan(v.late_p99_us));
        machine_watch_free(w);
}
