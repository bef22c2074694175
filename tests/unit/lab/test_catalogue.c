/* The catalogue as a table: what would be measured, and what verdicts say of made-up points. */
#include "../test.h"

#include <stdio.h>

#include "evb/base/util.h"
#include "evb/lab/catalogue.h"

static struct lab_point points[LAB_POINTS_MAX];

static void every_measurement_has_its_points(void **state)
{
        double quick_s = 0;

        (void)state;
        for (size_t i = 0; i < n_lab_catalogue; i++) {
                const struct lab_measurement *m = &lab_catalogue[i];
                size_t all = lab_points(m, NULL, false, points, LAB_POINTS_MAX), few;

                assert_ptr_equal(lab_find(m->id), m);
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
        /* All of them, quick, in under 5 minutes. */
        assert_true(quick_s < 280);
        assert_null(lab_find("Z9"));
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
        char why[400] = "";
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

/* One packet lost, or a port not filled, or a pull that is better: each is enough for C6 to differ. */
static json_t *c6(double lost, double share, double push, double pull)
{
        return json_pack("[{s:s, s:f, s:f, s:f, s:f}, {s:s, s:f, s:f}]", "series", "push, shaped", "x", 1024.0, "switch_packets", lost, "port_share", share,
                         "whole_bytes_per_second", push, "series", "pull, 4", "x", 1024.0, "whole_bytes_per_second", pull);
}

static void c6_is_strict(void **state)
{
        (void)state;
        assert_int_equal(judge("C6", c6(0, 0.97, 112e6, 111e6)), LAB_BETTER);
        assert_int_equal(judge("C6", c6(1, 0.97, 112e6, 111e6)), LAB_DIFFERS);
        assert_int_equal(judge("C6", c6(0, 0.95, 112e6, 111e6)), LAB_DIFFERS);
        assert_int_equal(judge("C6", c6(0, 0.97, 105e6, 111e6)), LAB_DIFFERS);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_measurement_has_its_points), cmocka_unit_test(the_last_setting_wins), cmocka_unit_test(small_fragments_cost_more),
                cmocka_unit_test(verdicts_follow_the_points),       cmocka_unit_test(c6_is_strict), cmocka_unit_test(c4_asks_for_a_collapse),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
