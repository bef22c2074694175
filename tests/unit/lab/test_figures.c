/* Tests the figures of event building, computed from synthetic reports. */
#include "../test.h"

#include <math.h>

#include "lab/catalogue.h"
#include "lab/event_figures.h"

#define LINK_BPS UINT64_C(1000000000)
#define FRAGMENT_BYTES 5000
#define SOURCES 6

/* 2 s of triggers at 1 kHz. */
static struct scenario scenario = {
        .scenario = {.duration_ns = UINT64_C(2000000000)},
        .trigger = {.rate_millihertz = 1000000},
        .ros = {.count = SOURCES, .fragment_size_bytes = FRAGMENT_BYTES},
        .sfi = {.count = 1},
        .network = {.link_rate_bps = LINK_BPS, .mtu_bytes = 1500},
};

/* The figures of a run with `complete` events, the last one `building_s` seconds after the first trigger. */
static json_t *figures(const struct scenario *s, double triggers, double complete, double building_s)
{
        double bytes = complete * SOURCES * FRAGMENT_BYTES;
        json_t *report = json_pack("{s:f, s:f, s:f, s:f}", "triggers", triggers, "events_complete", complete,
                                   "payload_bytes", bytes, "building_seconds", building_s);
        json_t *o = json_object();

        figures_add_building(o, report, s);
        json_decref(report);
        return o;
}

static void assert_figure(const json_t *o, const char *name, double wanted)
{
        double have = json_number_value(json_object_get(o, name));

        assert_true(json_is_real(json_object_get(o, name)));
        if (fabs(have - wanted) > 1e-9 * fabs(wanted))
                fail_msg("%s is %.9g, wanted %.9g", name, have, wanted);
}

/* 10 events in the first 10 ms of 2 s, and none afterwards, are 5 events/s. */
TEST(an_early_stop_lowers_the_rate)
{
        json_t *o = figures(&scenario, 100, 10, 0.01);

        assert_figure(o, "whole_events_per_second", 5);
        assert_figure(o, "whole_bytes_per_second", 5.0 * SOURCES * FRAGMENT_BYTES);
        json_decref(o);
        o = figures(&scenario, 100, 1, 0);
        assert_figure(o, "whole_events_per_second", 0.5);
        json_decref(o);
}

/* Events that complete after the last trigger extend the time. */
TEST(a_long_drain_lowers_the_rate)
{
        json_auto_t *o = figures(&scenario, 2000, 2000, 4);

        assert_figure(o, "whole_events_per_second", 500);
}

/* Five triggers at 2 Hz, from 0 s to 2 s, represent 2.5 s of load. */
TEST(both_end_triggers_count_one_period)
{
        struct scenario slow = scenario;
        json_auto_t *o;

        slow.trigger.rate_millihertz = 2000;
        o = figures(&slow, 5, 5, 2);
        assert_figure(o, "whole_events_per_second", 2);
        assert_figure(o, "built_share", 1);
}

TEST(shares_refer_to_port_and_offered_load)
{
        double limit = lab_payload_limit(LINK_BPS, 1500, FRAGMENT_BYTES),
               offered = 1000.0 * SOURCES * FRAGMENT_BYTES;
        struct scenario fast = scenario;
        json_t *o = figures(&scenario, 2000, 1000, 1);

        assert_figure(o, "offered_share", offered / limit);
        assert_figure(o, "port_share", 0.5 * offered / limit);
        assert_figure(o, "built_share", 0.5);
        json_decref(o);
        /* Ten times the load exceeds the port's capacity. */
        fast.trigger.rate_millihertz *= 10;
        o = figures(&fast, 20000, 1000, 1);
        assert_true(json_number_value(json_object_get(o, "offered_share")) > 2);
        assert_figure(o, "built_share", 500.0 * SOURCES * FRAGMENT_BYTES / limit);
        json_decref(o);
        /* Two builders have two ports. */
        fast.sfi.count = 2;
        o = figures(&fast, 20000, 1000, 1);
        assert_figure(o, "port_share", 500.0 * SOURCES * FRAGMENT_BYTES / (2 * limit));
        json_decref(o);
}

/* docs/protocol.md states how much a full datagram carries. */
TEST(the_limit_follows_from_full_datagrams)
{
        const double per_byte = LINK_BPS / 8.0 / 1514;

        assert_float_equal(lab_payload_limit(LINK_BPS, 1500, 14 << 10), 1440 * per_byte, 1);
        assert_float_equal(lab_payload_limit(LINK_BPS, 1500, 256), 1408 * per_byte, 1);
}

TEST(unlimited_links_and_rates_give_null)
{
        struct scenario bare = scenario, most = scenario;
        json_t *o;

        bare.network.link_rate_bps = SCENARIO_UNLIMITED;
        o = figures(&bare, 2000, 2000, 2);
        assert_true(json_is_null(json_object_get(o, "port_share")) &&
                    json_is_null(json_object_get(o, "built_share")) &&
                    json_is_null(json_object_get(o, "offered_share")));
        assert_figure(o, "whole_events_per_second", 1000);
        json_decref(o);
        most.trigger.rate_millihertz = SCENARIO_MAX;
        o = figures(&most, 2000, 2000, 2);
        assert_true(json_is_null(json_object_get(o, "offered_share")));
        assert_figure(o, "built_share", json_number_value(json_object_get(o, "port_share")));
        json_decref(o);
}

TEST(a_missing_value_gives_null)
{
        static const char *const of[] = {"events_complete", "payload_bytes"};
        static const char *const figures_of[2][3] = {{"whole_events_per_second", "complete_share", NULL},
                                                     {"whole_bytes_per_second", "port_share", "built_share"}};
        json_t *o;

        for (size_t i = 0; i < 2; i++) {
                json_t *report =
                        json_pack("{s:i, s:i, s:i}", "triggers", 9, "events_complete", 9, "payload_bytes", 9);

                json_object_set_new(report, of[i], json_null());
                o = json_object();
                figures_add_building(o, report, &scenario);
                for (size_t k = 0; k < 3 && figures_of[i][k]; k++)
                        assert_true(json_is_null(json_object_get(o, figures_of[i][k])));
                json_decref(o);
                json_decref(report);
        }
        o = figures(&scenario, 0, 0, 0);
        assert_true(json_is_null(json_object_get(o, "complete_share")));
        json_decref(o);
        o = figures(&scenario, 100, 25, 1);
        assert_figure(o, "complete_share", 0.25);
        json_decref(o);
}
