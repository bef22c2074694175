/* Tests the catalogue and the points that its measurements expand to. */
#include "../test.h"

#include <math.h>
#include <stdio.h>

#include "base/util.h"
#include "lab/catalogue.h"
#include "lab/event_figures.h"
#include "lab/settings.h"

static struct lab_point points[LAB_POINTS_MAX];

TEST(every_measurement_has_points)
{
        double quick_s = 0;
        size_t n = 0;

        for (size_t i = 0; i < lab_count(); i++) {
                const struct lab_measurement *m = lab_at(i);
                size_t all = lab_points(m, NULL, false, points, LAB_POINTS_MAX), few;

                assert_ptr_equal(lab_find(m->id), m);
                assert_int_equal(all, lab_points_count(m, false));
                n += all;
                for (size_t k = 0; k < all; k++) {
                        assert_true(strlen(points[k].settings) < LAB_SETTINGS_MAX - 1);
                        assert_true(points[k].seconds > 0);
                        /* D9 is about a minute. */
                        assert_true(points[k].seconds < (strcmp(m->id, "D9") == 0 ? 130 : 10));
                        assert_null(strstr(points[k].settings, " load="));
                }
                few = lab_points(m, NULL, true, points, LAB_POINTS_MAX);
                assert_true(few > 0 && few <= all);
                assert_int_equal(few, lab_points_count(m, true));
                for (size_t k = 0; k < few && !m->virtual_only; k++)
                        quick_s += points[k].seconds;
        }
        /* A run of all measurements fits into one array. */
        assert_true(n < LAB_POINTS_MAX);
        /* A --quick run of all measurements takes less than 7 minutes. */
        assert_true(quick_s < 400);
        assert_null(lab_find("Z9"));
}

static const struct lab_point *find(size_t n, const char *panel, const char *series, double x)
{
        for (size_t i = 0; i < n; i++) {
                if (strcmp(points[i].panel ?: "", panel) == 0 && strcmp(points[i].series, series) == 0 &&
                    points[i].x == x)
                        return &points[i];
        }
        fail_msg("no point %s, %s at %g", panel, series, x);
        return NULL;
}

/* C6 combines 3 buffers, 5 loads, 6 sizes and 7 series. */
TEST(c6_has_every_combination)
{
        static const int buffers[] = {128, 256, 512}, loads[] = {10, 50, 90, 110, 150};
        static const double sizes[] = {256, 1024, 4096, 14336, 32768, 65536};
        size_t n = lab_points(lab_find("C6"), NULL, false, points, LAB_POINTS_MAX), few;

        assert_int_equal(n, 3 * 5 * 6 * 7);
        for (size_t i = 0; i < 3 * 5 * 6; i++) {
                int buffer = buffers[i / 30], load = loads[i / 6 % 5];
                double x = sizes[i % 6], limit = lab_payload_limit(1e9, 1500, x);
                char panel[64], setting[64];
                const struct lab_point *p;

                snprintf(panel, sizeof panel, "buffer %d KiB, offered %d %%", buffer, load);
                p = find(n, panel, "push, shaped", x);
                assert_true(setting_of(p, "network.switch-buffer", 0) == buffer);
                snprintf(setting, sizeof setting, "=%dKiB ", buffer);
                assert_non_null(strstr(p->settings, setting));
                /* In mHz. */
                assert_true(fabs(setting_of(p, "trigger.rate", 0) * 6 * x - 1e3 * limit * load / 100) <
                            6 * x);
                assert_true(setting_of(p, "scenario.duration", 0) == (buffer == 256 && load == 150 ? 3 : 1));
                assert_non_null(find(n, panel, "pull, auto", x));
        }
        few = lab_points(lab_find("C6"), NULL, true, points, LAB_POINTS_MAX);
        find(few, "buffer 256 KiB, offered 50 %", "push, shaped", 1024);
        find(few, "buffer 128 KiB, offered 150 %", "pull, 4", 65536);
        for (size_t i = 0; i < few; i++)
                assert_true(setting_of(&points[i], "scenario.duration", 0) == 1);
}

TEST(the_last_setting_wins)
{
        struct lab_point p = {.settings = "rate=5 xrate=7 rate=9e6 sfi.count=3"};

        assert_true(setting_of(&p, "rate", 1) == 9e6);
        assert_true(setting_of(&p, "sfi.count", 1) == 3);
        assert_true(setting_of(&p, "count", 4) == 4);
}

/* Payload is at most 1448 of the 1514 bytes of each frame. */
TEST(small_fragments_lower_the_limit)
{
        double before = 0;

        for (double bytes = 64; bytes < 1e6; bytes *= 2) {
                double limit = lab_payload_limit(1e9, 1500, bytes);

                assert_true(limit >= before && limit < 125e6 * 1448 / 1514);
                before = limit;
        }
        assert_true(before > 118e6);
}

TEST(missing_nodes_are_named)
{
        static const struct {
                const char *id, *lack;
        } lacks[] = {
                {"C5", "needs 6 ROSs, the scenario has 3"},
                {"A1", "needs 3 SFIs, the scenario has 1"},
                {"B3", "needs network.mtu = 9000, the scenario has 1500"},
                {"C1", ""},
                {"D1", "measures this machine; leave out --config"},
                {"E1", "measures this machine; leave out --config"},
        };
        _cleanup_free_ struct scenario *s = calloc(1, sizeof *s);
        struct lab_bed bed = {.scenario = s};
        char lack[160];

        assert_non_null(s);
        s->ros.count = 3;
        s->sfi.count = 1;
        s->network.mtu_bytes = 1500;
        for (size_t i = 0; i < ARRAY_SIZE(lacks); i++) {
                size_t n = lab_points(lab_find(lacks[i].id), &bed, false, points, LAB_POINTS_MAX);

                /* The last series has the most needs. */
                lack[0] = '\0';
                assert_int_equal(lab_can_make(&points[n - 1], lack, sizeof lack), !lacks[i].lack[0]);
                assert_string_equal(lack, lacks[i].lack);
        }
        s->ros.count = 6;
        s->network.switch_buffer_bytes = 256 << 10;
        lab_points(lab_find("C6"), &bed, false, points, LAB_POINTS_MAX);
        assert_false(lab_can_make(&points[0], lack, sizeof lack));
        assert_string_equal(lack, "needs network.switch-buffer = 128KiB, the scenario has 256 KiB");
}

/* The kernel has reno in any case, whether or not it lists it. */
TEST(a_missing_congestion_control_is_named)
{
        const struct lab_measurement *m = lab_find("C10");
        struct lab_point p = {.measurement = m, .settings = "network.tcp-congestion=reno ros.count=4"};
        char lack[200] = "";

        assert_true(lab_can_make(&p, lack, sizeof lack));
        snprintf(p.settings, sizeof p.settings, "ros.count=4 network.tcp-congestion=nosuchone");
        assert_false(lab_can_make(&p, lack, sizeof lack));
        assert_string_equal(lack, "needs the TCP congestion control nosuchone, which the kernel lacks");
}
