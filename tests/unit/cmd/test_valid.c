/* Tests the bounds of a valid point, and how often a disturbed one is made again. */
#include "../test.h"

#include <math.h>
#include <stdio.h>

#include "base/util.h"
#include "cmd/bench/bench.h"

/* A view just below all bounds. */
static const struct machine_view calm = {
        .seconds = 1,
        .stolen_share = VALID_STOLEN_SHARE_MAX,
        .others_share = VALID_OTHERS_SHARE_MAX,
        .waiting_share = VALID_WAITING_SHARE_EQUAL_MAX,
        .wait_mean_us = VALID_WAIT_MEAN_US,
        .late_p99_us = VALID_LATE_P99_US,
        .late_max_us = VALID_LATE_MAX_US,
};

static char reason[300];

static bool is_disturbed_at(const struct machine_view *v, bool raised)
{
        json_t *figures = json_object();
        const char *text;

        bench_valid_describe(figures, v, raised);
        text = bench_valid_reason(figures);
        snprintf(reason, sizeof reason, "%s", text ?: "");
        json_decref(figures);
        return text != NULL;
}

static bool is_disturbed(const struct machine_view *v)
{
        return is_disturbed_at(v, true);
}

TEST(each_bound_counts)
{
        struct machine_view v = calm;

        assert_false(is_disturbed(&calm));
        v.stolen_share = VALID_STOLEN_SHARE_MAX + 0.011;
        assert_true(is_disturbed(&v));
        assert_string_equal(reason, "the hypervisor took 3.1 % of the processor time, more than 2 %");
        v.late_max_us = VALID_LATE_MAX_US * 2;
        assert_true(is_disturbed(&v));
        assert_string_equal(
                reason, "the hypervisor took 3.1 % of the processor time, more than 2 %; a timer was 80.0 "
                        "ms late, more than 40 ms");
        v.stolen_share = 0;
        assert_true(is_disturbed(&v));
        assert_string_equal(reason, "a timer was 80.0 ms late, more than 40 ms");
        v = calm;
        v.late_p99_us = 18000;
        assert_true(is_disturbed(&v));
        assert_string_equal(reason, "1 % of the timers were 18.0 ms late or more, more than 15 ms");
}

/* Others disturb only if they run while the point's processes wait, and wait for them. */
TEST(only_contested_time_counts)
{
        struct machine_view v = calm;

        v.others_share = 0.9;
        assert_false(is_disturbed(&v));
        v = calm;
        v.waiting_share = 3;
        v.wait_mean_us = 9000;
        assert_false(is_disturbed(&v));
        v.others_share = 0.45;
        assert_true(is_disturbed(&v));
        assert_string_equal(reason,
                            "other processes used 45 % of the processors while the point's waited long for "
                            "their turns");
        /* Many short waits are those for each other, unless others have the same priority. */
        v.wait_mean_us = 300;
        assert_false(is_disturbed_at(&v, true));
        assert_true(is_disturbed_at(&v, false));
        assert_string_equal(reason,
                            "other processes used 45 % of the processors while the point's waited at equal "
                            "priority");
        v.waiting_share = 0.2;
        assert_false(is_disturbed_at(&v, false));
}

TEST(packets_that_the_testbed_lost_disturb)
{
        static const struct {
                json_int_t lost;
                double late_max_us;
                const char *reason;
        } cases[] = {
                {0, 0, NULL},
                {1, 0, "the testbed itself lost 1 packet, which real links and ports would have carried"},
                {7, 80000,
                 "a timer was 80.0 ms late, more than 40 ms; the testbed itself lost 7 packets, which real "
                 "links and ports would have carried"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct machine_view v = calm;
                json_auto_t *figures = json_pack("{s:I}", "testbed_lost_packets", cases[i].lost);

                v.late_max_us = cases[i].late_max_us;
                bench_valid_describe(figures, &v, true);
                if (cases[i].reason)
                        assert_string_equal(bench_valid_reason(figures), cases[i].reason);
                else
                        assert_null(bench_valid_reason(figures));
                /* Whether or not the machine was watched. */
                bench_valid_describe(figures, NULL, true);
                assert_true((bench_valid_reason(figures) != NULL) == (cases[i].lost > 0));
        }
}

TEST(unknown_figures_are_null_and_no_reason)
{
        static const char *const keys[] = {"stolen_share", "others_share",      "waiting_share",
                                           "wait_mean_us", "timer_late_p99_us", "timer_late_max_us",
                                           "disturbed"};
        const struct machine_view unknown = {1, NAN, NAN, NAN, NAN, NAN, NAN};
        struct machine_view v = unknown;
        json_t *figures = json_pack("{s:n}", "testbed_lost_packets");

        /* Standby nodes are not watched, and have no testbed. */
        bench_valid_describe(figures, NULL, true);
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                assert_true(json_is_null(json_object_get(figures, keys[i])));
        json_decref(figures);
        assert_false(is_disturbed(&unknown));
        /* One known share alone does not show that others took time from the point. */
        v.others_share = 1;
        assert_false(is_disturbed(&v));
        v = unknown;
        v.stolen_share = 0.5;
        assert_true(is_disturbed(&v));
        v = unknown;
        v.seconds = 0;
        assert_true(is_disturbed(&v));
        assert_string_equal(reason, "the lab itself was not scheduled in time to watch the machine");
}

TEST(old_results_are_valid)
{
        json_auto_t *old = json_pack("{s:s}", "series", "push"),
                    *strange = json_pack("{s:b}", "disturbed", 1);

        assert_null(bench_valid_reason(old));
        assert_null(bench_valid_reason(strange));
        assert_null(bench_valid_reason(NULL));
}

/* The injected disturbance: the first `disturbed` attempts have it, attempt number `fails` has no result. */
static unsigned attempts, disturbed, fails, stop_after;

static json_t *attempt(const void *ctx)
{
        struct machine_view v = calm;
        json_t *figures;

        assert_int_equal(*(const int *)ctx, 7);
        attempts++;
        if (attempts == fails)
                return NULL;
        if (attempts <= disturbed)
                v.stolen_share = 0.5;
        figures = json_pack("{s:i}", "attempt", attempts);
        bench_valid_describe(figures, &v, true);
        return figures;
}

static bool stop(void)
{
        return stop_after > 0 && attempts >= stop_after;
}

static json_t *make(unsigned n_disturbed, unsigned failing, unsigned stopping)
{
        static const int ctx = 7;

        attempts = 0;
        disturbed = n_disturbed;
        fails = failing;
        stop_after = stopping;
        return bench_valid_make(attempt, &ctx, stop, VALID_REPEATS_MAX);
}

static void expect(json_t *figures, unsigned number, unsigned repeats, bool is_valid)
{
        assert_int_equal(json_integer_value(json_object_get(figures, "attempt")), number);
        assert_int_equal(json_integer_value(json_object_get(figures, "repeats")), repeats);
        assert_int_equal(bench_valid_reason(figures) == NULL, is_valid);
        assert_int_equal(attempts, number);
        json_decref(figures);
}

TEST(a_disturbed_point_is_made_again)
{
        assert_int_equal(VALID_REPEATS_MAX, 3);
        expect(make(0, 0, 0), 1, 0, true);
        expect(make(1, 0, 0), 2, 1, true);
        expect(make(3, 0, 0), 4, 3, true);
        /* The last one is kept, and marked. */
        expect(make(9, 0, 0), 4, 3, false);
        expect(make(9, 0, 2), 2, 1, false);
        assert_null(make(0, 1, 0));
        assert_null(make(9, 3, 0));
        assert_int_equal(attempts, 3);
}

static json_t *sample(double y, int lost)
{
        return json_pack("{s:f, s:i, s:i, s:f}", "built_share", y, "switch_packets", lost, "corrupt", lost,
                         "port_share", y / 2);
}

TEST(the_median_counts_with_all_losses)
{
        static const double ys[][3] = {{1, 2, 3}, {3, 1, 2}, {2, 3, 1}, {2, 2, 1}, {2, 2, 2}, {2, 1, 2}};

        for (size_t i = 0; i < ARRAY_SIZE(ys); i++) {
                json_t *some[] = {sample(ys[i][0], 0), sample(ys[i][1], 7), sample(ys[i][2], 1)};
                json_t *median = bench_valid_median(some, 3, "built_share");

                assert_true(json_number_value(json_object_get(median, "built_share")) == 2);
                assert_true(json_number_value(json_object_get(median, "port_share")) == 1);
                assert_int_equal(json_integer_value(json_object_get(median, "switch_packets")), 7);
                assert_int_equal(json_integer_value(json_object_get(median, "corrupt")), 7);
                assert_int_equal(json_integer_value(json_object_get(median, "samples")), 3);
                /* The results themselves stay as they are. */
                assert_null(json_object_get(some[0], "samples"));
                assert_int_equal(json_integer_value(json_object_get(some[0], "switch_packets")), 0);
                json_decref(median);
                for (size_t k = 0; k < 3; k++)
                        json_decref(some[k]);
        }
}
