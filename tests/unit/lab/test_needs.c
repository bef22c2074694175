/* Tests that `evb lab list` names the nodes and features without which points are skipped. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "lab/catalogue.h"
#include "lab/needs.h"

static struct lab_point points[LAB_POINTS_MAX];

static struct lab_needs needs_of(const struct lab_measurement *m)
{
        struct lab_needs needs;

        assert_int_equal(lab_needs_find(m, &needs), 0);
        return needs;
}

/* How many points of a measurement a scenario with so many nodes can make, if its links are as each needs. */
static size_t possible(const struct lab_measurement *m, unsigned ross, unsigned sfis)
{
        struct scenario *s = calloc(1, sizeof *s);
        struct lab_bed bed = {.scenario = s};
        size_t n, n_possible = 0;

        assert_non_null(s);
        s->ros.count = ross;
        s->sfi.count = sfis;
        s->network.mtu_bytes = 1500;
        n = lab_points(m, &bed, false, points, LAB_POINTS_MAX);
        for (size_t i = 0; i < n; i++) {
                char lack[160] = "";

                n_possible += lab_can_make(&points[i], lack, sizeof lack) || strstr(lack, "network.");
        }
        free(s);
        return n_possible;
}

TEST(the_named_nodes_are_enough_and_not_too_many)
{
        for (size_t i = 0; i < lab_count(); i++) {
                const struct lab_measurement *m = lab_at(i);
                struct lab_needs needs = needs_of(m);
                size_t all = lab_points(m, NULL, false, points, LAB_POINTS_MAX);

                if (!needs.testbed) {
                        assert_int_equal(needs.ros.most + needs.sfi.most, 0);
                        continue;
                }
                assert_int_equal(possible(m, needs.ros.most, needs.sfi.most), all);
                assert_true(possible(m, needs.ros.most - 1, needs.sfi.most) < all);
                assert_true(possible(m, needs.ros.most, needs.sfi.most - 1) < all);
                assert_true(possible(m, needs.ros.least, needs.sfi.least) > 0);
                assert_int_equal(possible(m, needs.ros.least - 1, needs.sfi.most), 0);
        }
}

TEST(nodes_and_features_are_named)
{
        static const struct {
                const char *id, *text;
        } cases[] = {
                {"A1", "1 DFM, 1 ROS, 3 SFIs"},
                {"A7", "1 DFM, 1 ROS, 1 SFI; packet capture, shaping"},
                {"B1", "this machine"},
                {"B3", "1 DFM, 1 ROS, 1 SFI; MTU 1500, 9000"},
                {"C6", "1 DFM, 6 ROSs, 1 SFI; shaping, port buffer 128, 256, 512 KiB"},
                {"C7", "1 DFM, 6 to 8 ROSs, 3 to 4 SFIs; shaping"},
                {"C10",
                 "1 DFM, 2 to 24 ROSs, 1 SFI; TCP congestion control bbr (optional), shaping, link rate "
                 "1, 10 Gbit/s, port buffer 32, 64, 128, 256, 512, 1024 KiB"},
                {"C11", "this machine; shaping, a stand-in farm"},
                {"D4", "this machine; two processors"},
                {"S1", "the simulator (--sim)"},
                {"D8", "this machine; TUN devices"},
                {"D9", "this machine; 15.1 GB in /var/tmp"},
                {"E8", "this machine; 2.0 GB in /var/tmp"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct lab_needs needs = needs_of(lab_find(cases[i].id));
                char text[512];
                struct strbuf b = strbuf_init(text, sizeof text);

                lab_needs_write(&needs, &b);
                assert_string_equal(text, cases[i].text);
        }
}

/* What a table cannot take would be missing without a word. */
TEST(no_table_is_full)
{
        for (size_t i = 0; i < lab_count(); i++) {
                struct lab_needs needs = needs_of(lab_at(i));

                assert_true(needs.n_features < LAB_FEATURES_MAX);
                for (size_t k = 0; k < needs.n_features; k++)
                        assert_true(strlen(needs.features[k]) < LAB_FEATURE_TEXT_MAX - 1);
        }
}
