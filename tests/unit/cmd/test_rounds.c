/* Tests the figures of the machine, and the median of rounds. */
#include "../test.h"

#include <math.h>

#include "cmd/bench/bench.h"

TEST(unknown_figures_are_null)
{
        static const char *const keys[] = {"watched_seconds",  "stolen_share", "others_share",
                                           "waiting_share",    "wait_mean_us", "timer_late_p99_us",
                                           "timer_late_max_us"};
        const struct machine_view v = {1, 0.5, NAN, 2, 3, 4, 5};
        json_auto_t *figures = json_object();

        bench_record_machine(figures, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                assert_true(json_is_null(json_object_get(figures, keys[i])));
        bench_record_machine(figures, &v);
        assert_true(json_real_value(json_object_get(figures, "stolen_share")) == 0.5);
        assert_true(json_is_null(json_object_get(figures, "others_share")));
}

static json_t *sample(double y, int lost)
{
        return json_pack("{s:f, s:i, s:i, s:f}", "datagrams_per_second", y, "lost_percent", lost, "corrupt",
                         lost, "seconds", y / 2);
}

static const double ys[][3] = {{1, 2, 3}, {3, 1, 2}, {2, 3, 1}, {2, 2, 1}, {2, 2, 2}, {2, 1, 2}};

TEST_EACH(the_median_counts_with_all_losses, i, ARRAY_SIZE(ys))
{
        json_t *some[] = {sample(ys[i][0], 0), sample(ys[i][1], 7), sample(ys[i][2], 1)};
        json_t *median = bench_median_round(some, 3, "datagrams_per_second");

        assert_true(json_number_value(json_object_get(median, "datagrams_per_second")) == 2);
        assert_true(json_number_value(json_object_get(median, "seconds")) == 1);
        assert_int_equal(json_integer_value(json_object_get(median, "lost_percent")), 7);
        assert_int_equal(json_integer_value(json_object_get(median, "corrupt")), 7);
        assert_int_equal(json_integer_value(json_object_get(median, "samples")), 3);
        /* The results themselves stay as they are. */
        assert_null(json_object_get(some[0], "samples"));
        assert_int_equal(json_integer_value(json_object_get(some[0], "lost_percent")), 0);
        json_decref(median);
        for (size_t k = 0; k < 3; k++)
                json_decref(some[k]);
}
