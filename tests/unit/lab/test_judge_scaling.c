/* Tests the verdicts of S1 to S9 on synthetic results, and those of simulated results of other measurements.
 */
#include <stdio.h>

#include "judge_sample.h"

static const char *const ids[] = {"S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9"};

static bool is_shaped(const struct lab_point *p)
{
        return strncmp(p->series, "push, shaped", 12) == 0;
}

/* Shaped push fits up to 75 nodes, and loses nothing then; late timers of 100 us cost half of the rate. */
static json_t *result_of(const struct lab_point *p)
{
        bool fits = is_shaped(p) && (p->x <= 75 || strchr("289", p->measurement->id[1]));
        bool built = p->measurement->id[1] == '7'   ? p->x < 100
                     : p->measurement->id[1] == '9' ? p->x >= 4
                                                    : true;

        return json_pack("{s:s, s:f, s:s, s:s*, s:b, s:f, s:f, s:i, s:i, s:i, s:i, s:f, s:f}", "series",
                         p->series, "x", p->x, "settings", p->settings, "panel", p->panel, "simulated", 1,
                         "steady_share", built ? 0.99 : 0.5, "event_rate_hz", p->x, "plan_fits", (int)fits,
                         "switch_packets",
                         strcmp(p->series, "push") == 0 || (is_shaped(p) && !fits) ? 100 : 0, "events_lost",
                         0, "events_partial", 0, "latency_p99_us", strcmp(p->series, "push") == 0 ? 1e5 : 2e3,
                         "port_most_bytes", strcmp(p->series, "push") == 0 ? 3e6 : 2e5);
}

/* Takes the results. */
static enum lab_verdict judge_all(const char *id, json_t *results, enum lab_extent extent)
{
        enum lab_verdict v = judge_as(id, results, extent);

        json_decref(results);
        return v;
}

TEST(verdicts_follow_the_points)
{
        for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
                for (int quick = 0; quick < 2; quick++) {
                        enum lab_verdict v =
                                judge_all(ids[i], results_of(ids[i], quick), quick ? LAB_QUICK : LAB_WHOLE);

                        if (v != LAB_BETTER)
                                fail_msg("%s: %s", ids[i], why);
                        assert_true(strlen(why) > 10 && strlen(why) < sizeof why - 1);
                }
        }
}

TEST(a_missing_point_prevents_a_verdict)
{
        for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
                json_t *results = results_of(ids[i], false);

                json_array_remove(results, json_array_size(results) / 2);
                assert_int_equal(judge_all(ids[i], results, LAB_WHOLE), LAB_UNKNOWN);
                assert_non_null(strstr(why, "points is missing"));
        }
}

/* Changes the figure of each shaped point whose bursts fit. */
static json_t *changed(const char *id, const char *key, double value)
{
        json_t *results = results_of(id, false), *r;
        size_t i;

        json_array_foreach(results, i, r)
        {
                if (json_integer_value(json_object_get(r, "plan_fits")) > 0)
                        json_object_set_new(r, key, json_real(value));
        }
        return results;
}

TEST(a_broken_promise_differs)
{
        static const struct {
                const char *id, *key;
                double value;
        } breaks[] = {
                {"S1", "switch_packets", 1},   {"S2", "events_partial", 1},    {"S4", "steady_share", 0.9},
                {"S6", "events_lost", 1},      {"S3", "port_most_bytes", 4e6}, {"S7", "steady_share", 0.9},
                {"S8", "latency_p99_us", 5e5}, {"S9", "steady_share", 0.9},
        };

        for (size_t i = 0; i < ARRAY_SIZE(breaks); i++) {
                if (judge_all(breaks[i].id, changed(breaks[i].id, breaks[i].key, breaks[i].value),
                              LAB_WHOLE) != LAB_DIFFERS)
                        fail_msg("%s with another %s: %s", breaks[i].id, breaks[i].key, why);
        }
}

/* What the model leaves out is missing in no verdict on simulated results, but in that on a lab's. */
TEST(simulated_results_need_what_the_model_covers)
{
        json_t *results = json_array();
        size_t n = lab_points(lab_find("C10"), NULL, true, points, LAB_POINTS_MAX), i;
        json_t *r;

        for (i = 0; i < n; i++) {
                if (strncmp(points[i].series, "TCP", 3) == 0)
                        continue;
                r = result_of(&points[i]);
                json_object_set_new(r, "built_share", json_real(0.99));
                json_object_set_new(r, "source_packets", json_integer(0));
                json_object_set_new(r, "socket_packets", json_integer(0));
                json_object_set_new(r, "switch_packets", json_integer(0));
                json_array_append_new(results, r);
        }
        if (judge_all("C10", json_incref(results), LAB_QUICK) != LAB_BETTER)
                fail_msg("%s", why);
        json_array_foreach(results, i, r)
        {
                json_object_del(r, "simulated");
        }
        assert_int_equal(judge_all("C10", results, LAB_QUICK), LAB_UNKNOWN);
        assert_non_null(strstr(why, "TCP push, cubic"));
}
