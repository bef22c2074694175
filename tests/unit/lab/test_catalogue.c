/* The catalogue as a table: what would be measured, and what verdicts say of made-up points. */
#include "../test.h"

#include <math.h>
#include <stdio.h>

#include "evb/base/util.h"
#include "evb/lab/catalogue.h"

static struct lab_point points[LAB_POINTS_MAX];

static void every_measurement_has_its_points(void **state)
{
        double quick_s = 0;
        size_t n = 0;

        (void)state;
        for (size_t i = 0; i < n_lab_catalogue; i++) {
                const struct lab_measurement *m = &lab_catalogue[i];
                size_t all = lab_points(m, NULL, false, points, LAB_POINTS_MAX), few;

                assert_ptr_equal(lab_find(m->id), m);
                n += all;
                for (size_t k = 0; k < all; k++) {
                        assert_true(strlen(points[k].settings) < LAB_SETTINGS_MAX - 1);
                        assert_true(points[k].seconds > 0 && points[k].seconds < 10);
                        assert_null(strstr(points[k].settings, " load="));
                }
                few = lab_points(m, NULL, true, points, LAB_POINTS_MAX);
                assert_true(few > 0 && few <= all);
                for (size_t k = 0; k < few; k++)
                        quick_s += points[k].seconds;
        }
        /* None is cut off where all are run at once. */
        assert_true(n < LAB_POINTS_MAX);
        /* All of them, quick, in under 5 minutes. */
        assert_true(quick_s < 280);
        assert_null(lab_find("Z9"));
}

static const struct lab_point *find(size_t n, const char *panel, const char *series, double x)
{
        for (size_t i = 0; i < n; i++) {
                if (strcmp(points[i].panel ?: "", panel) == 0 && strcmp(points[i].series, series) == 0 && points[i].x == x)
                        return &points[i];
        }
        fail_msg("no point %s, %s at %g", panel, series, x);
        return NULL;
}

/* 3 buffers, 5 loads, 6 sizes, 7 series: none left out, each made as its panel says. */
static void c6_is_the_whole_product(void **state)
{
        static const int buffers[] = {128, 256, 512}, loads[] = {10, 50, 90, 110, 150};
        static const double sizes[] = {256, 1024, 4096, 14336, 32768, 65536};
        size_t n = lab_points(lab_find("C6"), NULL, false, points, LAB_POINTS_MAX), few;

        (void)state;
        assert_int_equal(n, 3 * 5 * 6 * 7);
        for (size_t i = 0; i < 3 * 5 * 6; i++) {
                int buffer = buffers[i / 30], load = loads[i / 6 % 5];
                double x = sizes[i % 6], limit = lab_payload_limit(1e9, 1500, x);
                char panel[64], setting[64];
                const struct lab_point *p;

                snprintf(panel, sizeof panel, "buffer %d KiB, offered %d %%", buffer, load);
                p = find(n, panel, "push, shaped", x);
                assert_true(lab_setting(p, "network.switch-buffer", 0) == buffer);
                snprintf(setting, sizeof setting, "=%dKiB ", buffer);
                assert_non_null(strstr(p->settings, setting));
                /* In mHz. */
                assert_true(fabs(lab_setting(p, "trigger.rate", 0) * 6 * x - 1e3 * limit * load / 100) < 6 * x);
                assert_true(lab_setting(p, "scenario.duration", 0) == (buffer == 256 && load == 150 ? 3 : 1));
                assert_non_null(find(n, panel, "pull, auto", x));
        }
        few = lab_points(lab_find("C6"), NULL, true, points, LAB_POINTS_MAX);
        find(few, "buffer 256 KiB, offered 50 %", "push, shaped", 1024);
        find(few, "buffer 128 KiB, offered 150 %", "pull, 4", 65536);
        for (size_t i = 0; i < few; i++)
                assert_true(lab_setting(&points[i], "scenario.duration", 0) == 1);
}

static void the_last_setting_wins(void **state)
{
        struct lab_point p = {.settings = "rate=5 xrate=7 rate=9e6 sfi.count=3"};

        (void)state;
        assert_true(lab_setting(&p, "rate", 1) == 9e6);
        assert_true(lab_setting(&p, "sfi.count", 1) == 3);
        assert_true(lab_setting(&p, "count", 4) == 4);
}

/* What a port of 1 Gbit/s passes of fragments: less of small ones, and never more than 1448 of 1514 bytes. */
static void small_fragments_cost_more(void **state)
{
        double before = 0;

        (void)state;
        for (double bytes = 64; bytes < 1e6; bytes *= 2) {
                double limit = lab_payload_limit(1e9, 1500, bytes);

                assert_true(limit > before && limit < 125e6 * 1448 / 1514);
                before = limit;
        }
        assert_true(before > 116e6);
}

static json_t *point(const char *series, double x, const char *key, double value)
{
        return json_pack("{s:s, s:f, s:f}", "series", series, "x", x, key, value);
}

static enum lab_verdict judge(const char *id, json_t *results)
{
        const struct lab_measurement *m = lab_find(id);
        char why[600] = "";
        enum lab_verdict v = m->judge(m, results, why, sizeof why);

        assert_true(strlen(why) > 10);
        json_decref(results);
        return v;
}

static void verdicts_follow_the_points(void **state)
{
        (void)state;
        assert_int_equal(judge("A1", json_pack("[o, o]", point("best effort", 10, "loss_percent", 7), point("best effort", 1472, "loss_percent", 2))), LAB_AGREES);
        assert_int_equal(judge("A1", json_pack("[o, o]", point("best effort", 10, "loss_percent", 7), point("best effort", 1472, "loss_percent", 0))), LAB_DIFFERS);
        assert_int_equal(judge("A3", json_pack("[o, o]", point("50 Mbit/s", 40, "loss_percent", 7), point("50 Mbit/s", 100, "loss_percent", 0))), LAB_AGREES);
        assert_int_equal(judge("A3", json_pack("[o, o]", point("50 Mbit/s", 40, "loss_percent", 7), point("50 Mbit/s", 100, "loss_percent", 3))), LAB_DIFFERS);
        assert_int_equal(judge("C1", json_pack("[o, o]", point("push", 1e5, "whole_events_per_second", 7e4), point("pull", 1e5, "whole_events_per_second", 6e4))), LAB_BETTER);
        assert_int_equal(judge("C1", json_pack("[o, o]", point("push", 1e5, "whole_events_per_second", 9e3), point("pull", 1e5, "whole_events_per_second", 6e3))), LAB_DIFFERS);
}

static json_t *c4(double push, double share)
{
        return json_pack("[{s:s, s:f, s:f, s:f}, {s:s, s:f, s:f, s:f}]", "series", "push", "x", 5120.0, "whole_bytes_per_second", push, "complete_share", share, "series",
                         "pull", "x", 5120.0, "whole_bytes_per_second", 100e6, "complete_share", 1.0);
}

/* A push that keeps up with pull, or whose events are whole, has not collapsed. */
static void c4_asks_for_a_collapse(void **state)
{
        (void)state;
        assert_int_equal(judge("C4", c4(10e6, 0.1)), LAB_AGREES);
        assert_int_equal(judge("C4", c4(90e6, 0.1)), LAB_DIFFERS);
        assert_int_equal(judge("C4", c4(10e6, 0.95)), LAB_DIFFERS);
}

static json_t *c6_point(const char *panel, const char *series, double offered, double share, double bytes_per_second, double lost)
{
        return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "panel", panel, "series", series, "x", 1024.0, "offered_share", offered, "port_share", share,
                         "built_share", share / MIN(offered, 1.0), "whole_bytes_per_second", bytes_per_second, "switch_packets", lost);
}

/* Overloaded, and a panel with room. */
static json_t *c6(double lost, double share, double push, double pull, double spare)
{
        return json_pack("[o, o, o, o]", c6_point("1", "push, shaped", 1.5, share, push, lost), c6_point("1", "pull, 4", 1.5, 0.9, pull, 7),
                         c6_point("2", "push, shaped", 0.5, spare, spare * 112e6, 0), c6_point("2", "pull, 4", 0.5, 0.5, 56e6, 0));
}

/* One packet lost, or a port not filled, or a pull that is better, or room not used: each is enough for C6 to differ. */
static void c6_is_strict(void **state)
{
        (void)state;
        assert_int_equal(judge("C6", c6(0, 0.97, 112e6, 111e6, 0.5)), LAB_BETTER);
        assert_int_equal(judge("C6", c6(1, 0.97, 112e6, 111e6, 0.5)), LAB_DIFFERS);
        assert_int_equal(judge("C6", c6(0, 0.95, 112e6, 111e6, 0.5)), LAB_DIFFERS);
        assert_int_equal(judge("C6", c6(0, 0.97, 105e6, 111e6, 0.5)), LAB_DIFFERS);
        assert_int_equal(judge("C6", c6(0, 0.97, 112e6, 111e6, 0.4)), LAB_DIFFERS);
}

/* A pull of another panel is none to be compared with; and what was not measured is not judged. */
static void c6_compares_within_a_panel(void **state)
{
        json_t *apart = c6(0, 0.97, 112e6, 111e6, 0.5);

        (void)state;
        json_object_set_new(json_array_get(apart, 1), "panel", json_string("3"));
        assert_int_equal(judge("C6", apart), LAB_UNKNOWN);
        assert_int_equal(judge("C6", json_pack("[o, o]", c6_point("1", "push", 1.5, 0.9, 100e6, 3), c6_point("1", "pull, 4", 1.5, 0.9, 100e6, 3))), LAB_UNKNOWN);
}

static void c6_tells_where(void **state)
{
        const struct lab_measurement *m = lab_find("C6");
        json_t *results = c6(0, 0.97, 112e6, 111e6, 0.5);
        char why[600] = "";

        (void)state;
        json_array_append_new(results, c6_point("3", "push, shaped", 1.1, 0.98, 113e6, 0));
        assert_int_equal(m->judge(m, results, why, sizeof why), LAB_BETTER);
        assert_non_null(strstr(why, "0 events and 0 packets lost at 3 combinations"));
        assert_non_null(strstr(why, "97.0 % of the port's payload limit where overloaded (1024 bytes; 1)"));
        assert_non_null(strstr(why, "100.9 % of the best pull there (1024 bytes; 1)"));
        assert_non_null(strstr(why, "100.0 % of what is offered elsewhere (1024 bytes; 2)"));
        json_decref(results);
}

/* One packet lost in any of its systems; each has its own throughput. */
static void c7_is_of_both_systems(void **state)
{
        const struct lab_measurement *m = lab_find("C7");
        char why[600] = "";
        json_t *results = json_pack("[{s:s, s:s, s:f, s:f, s:f}, {s:s, s:s, s:f, s:f, s:f}]", "panel", "6x3", "series", "shaped", "x", 1.0, "switch_packets", 0.0,
                                    "whole_bytes_per_second", 300e6, "panel", "8x4", "series", "shaped", "x", 1.0, "switch_packets", 0.0, "whole_bytes_per_second", 400e6);

        (void)state;
        assert_int_equal(m->judge(m, results, why, sizeof why), LAB_BETTER);
        assert_non_null(strstr(why, "300 MB/s shaped with 6x3, 400 with 8x4"));
        json_object_set_new(json_array_get(results, 1), "switch_packets", json_real(1));
        assert_int_equal(m->judge(m, results, why, sizeof why), LAB_DIFFERS);
        json_decref(results);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_measurement_has_its_points), cmocka_unit_test(the_last_setting_wins), cmocka_unit_test(small_fragments_cost_more),
                cmocka_unit_test(verdicts_follow_the_points),       cmocka_unit_test(c6_is_strict), cmocka_unit_test(c6_is_the_whole_product), cmocka_unit_test(c6_compares_within_a_panel),
                cmocka_unit_test(c6_tells_where), cmocka_unit_test(c7_is_of_both_systems), cmocka_unit_test(c4_asks_for_a_collapse),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
