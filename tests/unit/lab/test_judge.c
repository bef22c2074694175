/* Tests verdicts on synthetic results: complete ones, and ones that lack a point or a figure. */
#include <stdio.h>

#include "judge_sample.h"

/* All figures that verdicts read. */
static const char *const figures[] = {"loss_percent",
                                      "received_mbps",
                                      "least_mbps",
                                      "sender_cpu_percent",
                                      "sender_cpu_p50_percent",
                                      "gap_p50_us",
                                      "gap_p99_us",
                                      "mbyte_per_s",
                                      "whole_events_per_second",
                                      "whole_bytes_per_second",
                                      "complete_share",
                                      "switch_packets",
                                      "source_packets",
                                      "socket_packets",
                                      "events_lost",
                                      "events_partial",
                                      "offered_share",
                                      "built_share",
                                      "port_share",
                                      "trigger_rate_hz",
                                      "echo_p99_us"};

/* The figures that each measurement needs, and its verdict on good(). */
static const struct {
        const char *id, *needs;
        enum lab_verdict verdict;
} cases[] = {
        {"A1", "loss_percent", LAB_AGREES},
        {"A2", "loss_percent", LAB_AGREES},
        {"A3", "loss_percent", LAB_AGREES},
        {"A4", "loss_percent", LAB_AGREES},
        {"A5", "received_mbps", LAB_AGREES},
        {"A6", "sender_cpu_percent sender_cpu_p50_percent", LAB_BETTER},
        {"A7", "gap_p50_us gap_p99_us", LAB_BETTER},
        {"A8", "gap_p50_us", LAB_AGREES},
        {"B1", "mbyte_per_s", LAB_BETTER},
        {"B2", "received_mbps", LAB_UNKNOWN},
        {"B3", "received_mbps", LAB_AGREES},
        {"B4", "received_mbps", LAB_AGREES},
        {"B5", "least_mbps", LAB_BETTER},
        {"B6", "least_mbps", LAB_AGREES},
        {"C1", "whole_events_per_second", LAB_BETTER},
        {"C2", "whole_bytes_per_second", LAB_BETTER},
        {"C3", "whole_events_per_second", LAB_BETTER},
        {"C4", "whole_bytes_per_second complete_share", LAB_AGREES},
        {"C5", "whole_bytes_per_second switch_packets", LAB_BETTER},
        {"C6",
         "events_lost events_partial switch_packets source_packets socket_packets offered_share built_share "
         "port_share whole_bytes_per_second",
         LAB_BETTER},
        {"C7", "whole_bytes_per_second switch_packets", LAB_BETTER},
        {"C8", "whole_bytes_per_second switch_packets", LAB_BETTER},
        {"C9", "echo_p99_us", LAB_BETTER},
        {"C10", "events_lost events_partial switch_packets source_packets socket_packets built_share",
         LAB_BETTER},
        {"C11", "trigger_rate_hz events_lost events_partial", LAB_BETTER},
};

static double bytes_per_second(const struct lab_point *p)
{
        bool push = strcmp(p->series, "push") == 0;

        if (strcmp(p->measurement->id, "C4") == 0 && push && p->x > 5000)
                return 10e6;
        if (strcmp(p->measurement->id, "C5") == 0 && p->series[0] != 'a')
                return strtod(p->series, NULL) * 0.9e6;
        return 110e6;
}

/* Figures that give the verdicts in `cases`. */
static double good(const struct lab_point *p, const char *key)
{
        const char *id = p->measurement->id;
        bool shaped = strstr(p->series, "shaped"), qos = strncmp(p->series, "QoS", 3) == 0;
        const char *load = p->panel ? strstr(p->panel, "offered ") : NULL;
        double offered = load ? strtod(load + 8, NULL) / 100 : 1.5;

        if (strcmp(key, "loss_percent") == 0)
                return id[1] == '1' || (id[1] == '3' && p->x <= 60) || (id[1] == '4' && p->x <= 200) ? 7 : 0;
        if (strcmp(key, "received_mbps") == 0)
                return strcmp(id, "B4") == 0 ? p->x * 0.95 : strstr(p->series, "9000") ? 990 : 900;
        if (strcmp(key, "least_mbps") == 0)
                return p->x * 0.95;
        if (strncmp(key, "gap_", 4) == 0)
                return id[1] == '8' || qos ? 1050 : 12;
        if (strcmp(key, "whole_bytes_per_second") == 0)
                return bytes_per_second(p);
        if (strcmp(key, "complete_share") == 0)
                return strcmp(p->series, "push") == 0 ? 0.1 : 1;
        if (strcmp(key, "switch_packets") == 0)
                return shaped || id[1] == '5' ? 0 : 100;
        if (strcmp(key, "offered_share") == 0)
                return offered;
        if (strcmp(key, "port_share") == 0)
                return 0.98 * MIN(offered, 1.0);
        if (strcmp(key, "built_share") == 0)
                return 0.995;
        if (strcmp(key, "echo_p99_us") == 0)
                return strcmp(p->series, "one class for all") == 0 ? 50000 : 300;
        return strcmp(key, "trigger_rate_hz") == 0                                       ? 1e5 / p->x
               : strstr("source_packets socket_packets events_lost events_partial", key) ? 0
               : strstr(key, "cpu")                                                      ? 50
                                                                                         : 1e5;
}

static double constant;

static double all_alike(const struct lab_point *p, const char *key)
{
        (void)p;
        (void)key;
        return constant;
}

static double (*figure)(const struct lab_point *p, const char *key) = good;

static json_t *result_of(const struct lab_point *p)
{
        json_t *r = json_pack("{s:s, s:s*, s:f, s:s}", "series", p->series, "panel", p->panel, "x", p->x,
                              "settings", p->settings);

        for (size_t k = 0; k < ARRAY_SIZE(figures); k++)
                json_object_set_new(r, figures[k], json_real(figure(p, figures[k])));
        return r;
}

/* Takes the results. */
static enum lab_verdict judge_all(const char *id, json_t *results)
{
        enum lab_verdict v = judge(id, results);

        json_decref(results);
        return v;
}

TEST(verdicts_follow_the_points)
{
        assert_int_equal(ARRAY_SIZE(cases), lab_count() - 14 - 9 - 9); /* E, D, S: elsewhere */
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(judge_all(cases[i].id, results_of(cases[i].id, false)), cases[i].verdict);
                assert_int_equal(judge_all(cases[i].id, results_of(cases[i].id, true)), cases[i].verdict);
        }
}

TEST(a_missing_point_prevents_a_verdict)
{
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                json_auto_t *all = results_of(cases[i].id, false);
                size_t n = json_array_size(all);

                for (size_t k = 0; k<n; k += n> 100 ? 41 : 1) {
                        json_auto_t *some = NULL;
                        char name[100];

                        if (lab_is_optional(&points[k]))
                                continue;
                        some = json_copy(all);

                        snprintf(name, sizeof name, "1 of %zu points is missing: %s at %g", n,
                                 points[k].series, points[k].x);
                        json_array_remove(some, k);
                        assert_int_equal(judge_as(cases[i].id, some, LAB_WHOLE), LAB_UNKNOWN);
                        assert_string_equal(strncmp(why, name, strlen(name)) == 0 ? name : why, name);
                }
        }
}

static bool is_needed(size_t i, const char *key)
{
        const char *at = cases[i].needs;
        size_t n = strlen(key);

        for (; (at = strstr(at, key)); at += n) {
                if ((at == cases[i].needs || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
                        return true;
        }
        return false;
}

/* Neither null nor a missing value counts as 0. */
TEST(an_unknown_figure_prevents_a_verdict)
{
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                for (size_t k = 0; k < ARRAY_SIZE(figures); k++) {
                        json_t *results = results_of(cases[i].id, true);

                        change_at(results, "", "", 0, figures[k], json_null());
                        if (is_needed(i, figures[k])) {
                                assert_int_equal(judge_all(cases[i].id, results), LAB_UNKNOWN);
                                assert_non_null(strstr(why, figures[k]));
                                assert_non_null(strstr(why, "is unknown at "));
                        } else
                                assert_int_equal(judge_all(cases[i].id, results), cases[i].verdict);
                }
        }
}

TEST(one_unknown_figure_prevents_a_verdict)
{
        json_auto_t *results = results_of("C5", false);

        json_object_set_new(json_array_get(results, 9), "switch_packets", json_null());
        assert_int_equal(judge_as("C5", results, LAB_WHOLE), LAB_UNKNOWN);
        assert_string_equal(why, "switch_packets is unknown at 1 of 28 points: 40 Mbit/s at 5120");
        json_object_del(json_array_get(results, 9), "switch_packets");
        assert_int_equal(judge_as("C5", results, LAB_WHOLE), LAB_UNKNOWN);
        json_array_remove(results, 0);
        json_array_remove(results, 0);
        assert_int_equal(judge_as("C5", results, LAB_WHOLE), LAB_UNKNOWN);
        assert_string_equal(why, "2 of 28 points are missing: 20 Mbit/s at 1024, 40 Mbit/s at 1024; "
                                 "switch_packets is unknown at 1 of 28 points: 40 Mbit/s at 5120");
}

/* A throughput of zero never agrees; zero loss is the published outcome of A2 and A4. */
TEST(zero_throughput_differs)
{
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                bool loss = strcmp(cases[i].id, "A2") == 0 || strcmp(cases[i].id, "A4") == 0;
                enum lab_verdict v = loss                             ? LAB_AGREES
                                     : strcmp(cases[i].id, "B2") == 0 ? LAB_UNKNOWN
                                                                      : LAB_DIFFERS;

                figure = all_alike;
                constant = 0;
                assert_int_equal(judge_all(cases[i].id, results_of(cases[i].id, false)), v);
                /* judge_all() checks that no zero has a sign. */
                constant = -1e-9;
                (void)judge_all(cases[i].id, results_of(cases[i].id, true));
                figure = good;
        }
}

/* The caller chooses the sweep, or the results' settings imply it. */
TEST(a_quick_sweep_is_not_a_full_one)
{
        json_auto_t *quick = results_of("C5", true), *whole = results_of("C5", false);

        assert_int_equal(judge("C5", quick), LAB_BETTER);
        assert_int_equal(judge_as("C5", quick, LAB_QUICK), LAB_BETTER);
        assert_int_equal(judge_as("C5", quick, LAB_WHOLE), LAB_UNKNOWN);
        assert_non_null(strstr(
                why, "16 of 28 points are missing: 20 Mbit/s at 2048, 40 Mbit/s at 2048, 50 Mbit/s at 2048, "
                     "auto at 2048, and 12 more"));
        assert_int_equal(judge_as("C5", whole, LAB_QUICK), LAB_BETTER);
        /* A full sweep that was interrupted after the points that a quick one has too. */
        while (json_array_size(whole) > 4)
                json_array_remove(whole, 4);
        assert_int_equal(judge("C5", whole), LAB_UNKNOWN);
        assert_non_null(strstr(why, "24 of 28 points"));
}

/* This holds even if the newest result lacks a figure. */
TEST(the_newest_result_counts)
{
        json_t *results = results_of("A2", true), *old = json_deep_copy(json_array_get(results, 1));

        json_object_set_new(old, "loss_percent", json_null());
        json_array_insert(results, 0, old);
        assert_int_equal(judge("A2", results), LAB_AGREES);
        json_array_append_new(results, json_deep_copy(old));
        assert_int_equal(judge_all("A2", results), LAB_UNKNOWN);
        json_decref(old);
        assert_int_equal(judge_all("A2", json_array()), LAB_UNKNOWN);
}

/* It counts as missing, with its reason, unless the file has a valid result of the point, older or newer. */
TEST(a_disturbed_point_prevents_a_verdict)
{
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                json_t *results = results_of(cases[i].id, true), *first = json_array_get(results, 0);
                json_t *valid = json_deep_copy(first);

                json_object_set_new(first, "disturbed", json_string("a timer was 99 ms late"));
                assert_int_equal(judge(cases[i].id, results), LAB_UNKNOWN);
                assert_non_null(strstr(why, " points is disturbed: "));
                assert_non_null(strstr(why, " (a timer was 99 ms late)"));
                json_array_append_new(results, json_deep_copy(valid));
                assert_int_equal(judge(cases[i].id, results), cases[i].verdict);
                json_array_remove(results, json_array_size(results) - 1);
                json_array_insert_new(results, 0, valid);
                assert_int_equal(judge(cases[i].id, results), cases[i].verdict);
                /* An undisturbed result says so with null. */
                change_at(results, "", "", 0, "disturbed", json_null());
                assert_int_equal(judge_all(cases[i].id, results), cases[i].verdict);
        }
}

static enum lab_verdict judge_changed(const char *id, const char *series, const char *panel, const char *key,
                                      double value)
{
        json_t *results = results_of(id, false);

        change_at(results, series, panel, 0, key, json_real(value));
        return judge_all(id, results);
}

TEST(verdicts_can_differ)
{
        static const char port[] = "1 Gbit/s, buffer 256 KiB", fast[] = "10 Gbit/s, buffer 256 KiB";

        assert_int_equal(judge_changed("A1", "", "", "loss_percent", 0.1), LAB_DIFFERS);
        assert_int_equal(judge_changed("A3", "", "", "loss_percent", 3), LAB_DIFFERS);
        assert_int_equal(judge_changed("C1", "pull", "", "whole_events_per_second", 6e3), LAB_AGREES);
        assert_int_equal(judge_changed("C1", "push", "", "whole_events_per_second", 6e3), LAB_DIFFERS);
        assert_int_equal(judge_changed("C5", "auto", "", "switch_packets", 1), LAB_AGREES);
        /* Push must collapse: neither match pull nor complete its events. */
        assert_int_equal(judge_changed("C4", "push", "", "whole_bytes_per_second", 105e6), LAB_DIFFERS);
        assert_int_equal(judge_changed("C4", "push", "", "complete_share", 0.95), LAB_DIFFERS);
        assert_int_equal(judge_changed("C8", "TCP, shaped", "", "whole_bytes_per_second", 100e6),
                         LAB_DIFFERS);
        assert_int_equal(judge_changed("B3", "MTU 9000", "", "received_mbps", 979), LAB_DIFFERS);
        assert_int_equal(judge_changed("B6", "", "", "least_mbps", 80), LAB_DIFFERS);
        assert_int_equal(judge_changed("A6", "QoS at 1000 Mbit/s", "", "sender_cpu_percent", 76), LAB_AGREES);
        assert_int_equal(judge_changed("A5", "QoS at 1000 Mbit/s", "", "received_mbps", 760), LAB_DIFFERS);
        /* One lost packet in either system. */
        assert_int_equal(judge_changed("C7", "shaped", "8x4", "switch_packets", 1), LAB_DIFFERS);
        assert_int_equal(judge_changed("C7", "shaped", "6x3", "switch_packets", 1), LAB_DIFFERS);
        assert_int_equal(judge_changed("C10", "shaped push", port, "built_share", 0.91), LAB_BETTER);
        assert_int_equal(judge_changed("C10", "shaped push", port, "built_share", 0.89), LAB_DIFFERS);
        assert_int_equal(judge_changed("C10", "shaped push", fast, "built_share", 0.6), LAB_BETTER);
        assert_int_equal(judge_changed("C10", "shaped push", fast, "built_share", 0.4), LAB_DIFFERS);
        assert_int_equal(judge_changed("C10", "shaped push", port, "socket_packets", 1), LAB_DIFFERS);
}

/* A loss, an unfilled port, a better pull or a load not built counts; drops of unshaped push do not. */
TEST(c6_is_strict)
{
        static const char over[] = "buffer 256 KiB, offered 150 %", shaped[] = "push, shaped",
                          spare[] = "buffer 256 KiB, offered 50 %";

        assert_int_equal(judge_changed("C6", shaped, over, "switch_packets", 1), LAB_DIFFERS);
        assert_int_equal(judge_changed("C6", shaped, spare, "source_packets", 1), LAB_DIFFERS);
        assert_int_equal(judge_changed("C6", shaped, over, "port_share", 0.95), LAB_DIFFERS);
        assert_int_equal(judge_changed("C6", "pull, 4", over, "whole_bytes_per_second", 120e6), LAB_DIFFERS);
        /* The start may take 30 ms of 1 s. */
        assert_int_equal(judge_changed("C6", shaped, spare, "built_share", 0.95), LAB_DIFFERS);
        assert_int_equal(judge_changed("C6", shaped, spare, "built_share", 0.97), LAB_BETTER);
        assert_int_equal(judge_changed("C6", "", over, "port_share", 0.8), LAB_DIFFERS);
        assert_int_equal(judge_changed("C6", "pull, 4", spare, "whole_bytes_per_second", 120e6), LAB_BETTER);
        assert_int_equal(judge_changed("C6", "push", over, "switch_packets", 1000), LAB_BETTER);
}

/* The points whose figures may change a verdict are known, and losses are not among them. */
TEST(a_verdict_rests_on_few_points)
{
        static const char over[] = "buffer 256 KiB, offered 150 %", shaped[] = "push, shaped";
        struct lab_point decisive[LAB_POINTS_MAX / 16];
        json_t *results = results_of("C6", true);
        size_t n;

        change_at(results, shaped, over, 0, "switch_packets", json_integer(3));
        assert_int_equal(lab_judge_decisive(lab_find("C6"), results, LAB_QUICK, decisive, 8), 0);
        change_at(results, "pull, 4", over, 0, "whole_bytes_per_second", json_real(120e6));
        n = lab_judge_decisive(lab_find("C6"), results, LAB_QUICK, decisive, ARRAY_SIZE(decisive));
        assert_int_equal(n, 4);
        for (size_t i = 0; i < n; i++) {
                assert_string_equal(decisive[i].panel, over);
                assert_true(!strcmp(decisive[i].series, shaped) || !strcmp(decisive[i].series, "pull, 4"));
        }
        json_decref(results);
        results = results_of("A5", true);
        json_object_set_new(json_array_get(results, 3), "received_mbps", json_real(1e3));
        json_object_set_new(json_array_get(results, 4), "received_mbps", json_real(1e4));
        assert_int_equal(lab_judge_decisive(lab_find("A5"), results, LAB_QUICK, decisive, 8), 2);
        assert_true(decisive[0].x == 1000 && decisive[1].x == 10000);
        json_decref(results);
}

TEST(c6_and_c7_name_the_worst_points)
{
        json_t *results = results_of("C6", false);

        change_at(results, "push, shaped", "buffer 512 KiB, offered 110 %", 0, "port_share", json_real(0.97));
        assert_int_equal(judge_all("C6", results), LAB_BETTER);
        assert_non_null(strstr(why, "loses 0 events and 0 packets at 90 combinations"));
        assert_non_null(strstr(why, "; under overload it builds at least 97.0 % of the port's payload limit "
                                    "(256 bytes; buffer 512 KiB, offered 110 %)"));
        results = results_of("C7", false);
        change_at(results, "shaped", "8x4", 0, "whole_bytes_per_second", json_real(400e6));
        assert_int_equal(judge_all("C7", results), LAB_BETTER);
        assert_non_null(strstr(why, "builds at most 110 MB/s with 6x3, 400 MB/s with 8x4"));
}

TEST(c10_says_where_to_shape)
{
        json_t *results = results_of("C10", false);

        /* Unshaped push loses packets from 12 sources on with 256 KiB, and nowhere with more. */
        for (size_t i = 0; i < json_array_size(results); i++) {
                json_t *r = json_array_get(results, i);
                const char *panel = json_string_value(json_object_get(r, "panel"));
                double x = json_number_value(json_object_get(r, "x"));
                bool is_large = strstr(panel, " 512 ") || strstr(panel, " 1024 ") || strstr(panel, "10 G");

                if (is_large || (strstr(panel, " 256 ") && x < 12))
                        json_object_set_new(r, "switch_packets", json_integer(0));
        }
        assert_int_equal(judge_as("C10", results, LAB_WHOLE), LAB_BETTER);
        assert_non_null(strstr(why, "1 Gbit/s: 32 KiB: shape from 2 sources, "));
        assert_non_null(strstr(why,
                               ", 256 KiB: shape from 12 sources, 512 KiB: no shaping needed, 1024 KiB: no "
                               "shaping needed; 10 Gbit/s: this machine cannot fill such a port"));
        /* Where the kernel lacks a congestion control, its series is not needed. */
        for (size_t i = json_array_size(results); i-- > 0;) {
                const json_t *r = json_array_get(results, i);

                if (strcmp(json_string_value(json_object_get(r, "series")), "TCP push, bbr") == 0)
                        json_array_remove(results, i);
        }
        assert_int_equal(judge_as("C10", results, LAB_WHOLE), LAB_BETTER);
        change_at(results, "shaped push", "1 Gbit/s, buffer 32 KiB", 0, "switch_packets", json_integer(1));
        assert_int_equal(judge_all("C10", results), LAB_DIFFERS);
        assert_non_null(strstr(why, "shaped push loses 0 events and 6 packets"));
}
