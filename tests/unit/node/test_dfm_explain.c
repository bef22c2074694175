/* The one reason why a DFM's run does not move: its first cause. */
#include "../test.h"

#include "../core/dfm_driver.h"
#include "node/dfm_reasons.h"

static struct scenario scenario;

/* Two ROSs and two SFIs, which are present and grant no credit. */
static void start(struct dfm_driver *t, const struct dfm_config *c)
{
        scenario = (struct scenario){
                .n_nodes = 5,
                .nodes = {{.name = "dfm", .role = ROLE_DFM},
                          {.name = "ros1", .role = ROLE_ROS},
                          {.name = "ros2", .role = ROLE_ROS, .index = 1},
                          {.name = "sfi1", .role = ROLE_SFI, .address = "10.0.0.5"},
                          {.name = "sfi2", .role = ROLE_SFI, .index = 1, .address = "10.0.0.6"}},
        };
        scenario.ros.count = scenario.sfi.count = 2;
        scenario.dfm.keep_alive_ns = c->keep_alive_ns;
        dfm_driver_start(t, c);
        dfm_says_with(t, false);
}

#define EXPLAIN_TEST(name, ...) DFM_TEST_AS(name, dfm_standard(), start(t, &c), ##__VA_ARGS__)

static const char *why(const struct dfm_driver *t)
{
        static struct obstacle o;

        o = (struct obstacle){};
        dfm_explain(t->dfm, &scenario, t->now_ns, &o);
        return o.text;
}

static void reports(struct dfm_driver *t, enum node_role role, uint16_t index, unsigned reason, unsigned node)
{
        if (role == ROLE_ROS)
                ros_says_alive(t, index, RUN_RUNNING, 0);
        else
                sfi_says_alive(t, index, RUN_RUNNING, 0);
        t->message.alive.reason = (uint16_t)reason;
        t->message.alive.reason_node = (uint16_t)node;
        t->message.alive.reason_ms = 1200;
        assert_true(driver_say(t, role, index, MESSAGE_ALIVE,
                               role == ROLE_ROS ? t->ros_alive_next[index]++ : t->sfis[index].alive_next++));
        dfm_says_with(t, false);
}

EXPLAIN_TEST(the_first_cause_is_named)
{
        assert_string_equal(why(t), "no credit from sfi1, sfi2");
        reports(t, ROLE_ROS, 0, REASON_QUEUE_FULL, 0);
        assert_string_equal(why(t), "no credit from sfi1, sfi2: queue to 10.0.0.5 full on ros1");
        reports(t, ROLE_SFI, 0, REASON_WAITS_FOR, 0);
        assert_string_equal(why(t), "no credit from sfi1, sfi2: sfi1 waits for fragments of ros1 (queue to "
                                    "10.0.0.5 full)");
        reports(t, ROLE_SFI, 1, REASON_SLOW_OUTPUT, 0);
        assert_string_equal(why(t), "no credit from sfi1, sfi2: slow disk on sfi2");
        reports(t, ROLE_SFI, 0, REASON_DISK_FULL, 0);
        assert_string_equal(why(t), "no credit from sfi1, sfi2: disk full on sfi1");
        /* XOFF is what the DFM sees; the disk is why. */
        ros_says_switch(t, 1, false);
        dfm_says_with(t, false);
        assert_string_equal(why(t), "ros2 holds triggers back (XOFF): disk full on sfi1");
}

EXPLAIN_TEST(other_causes_are_named)
{
        reports(t, ROLE_ROS, 1, REASON_BUFFER_FULL, 0); /* an effect, not a cause */
        assert_string_equal(why(t), "no credit from sfi1, sfi2");
        reports(t, ROLE_ROS, 1, REASON_SILENT, 0);
        assert_string_equal(why(t), "no credit from sfi1, sfi2: ros2: silent front-end");
        /* Whatever the wire brings. */
        reports(t, ROLE_SFI, 1, REASON_WAITS_FOR, 65535);
        assert_string_equal(why(t), "no credit from sfi1, sfi2: sfi2 waits for fragments of ros 65536");
        reports(t, ROLE_SFI, 1, 17, 0);
        assert_string_equal(why(t), "no credit from sfi1, sfi2: sfi2: reason 17");
}

/* Before it counts as gone, and whatever follows from it. */
EXPLAIN_TEST(a_silent_node_is_named)
{
        struct obstacle o = {};

        sfi0_takes(t, 1);
        for (int i = 0; i < 12; i++) {
                dfm_pass_ns(t, 100 * NS_PER_MS);
                ros_says_alive(t, 0, RUN_RUNNING, 0);
                for (uint16_t k = 0; k < 2; k++)
                        sfi_says_alive(t, k, RUN_RUNNING, 0);
                dfm_says_with(t, false);
        }
        reports(t, ROLE_SFI, 0, REASON_WAITS_FOR, 1);
        dfm_explain(t->dfm, &scenario, t->now_ns, &o);
        assert_string_equal(o.text, "ros2 silent");
        assert_true(o.timed);
        assert_int_equal(t->now_ns - o.since_ns, 1200 * NS_PER_MS);
}

EXPLAIN_TEST(open_events_have_a_place, c.events = 2)
{
        sfi0_takes(t, 2);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        assert_string_equal(why(t), "2 events open on sfi1");
        reports(t, ROLE_SFI, 0, REASON_SLOW_OUTPUT, 0);
        assert_string_equal(why(t), "slow disk on sfi1");
        scenario.live.all = 1;
        assert_string_equal(why(t), "slow live consumer on sfi1");
        scenario.sfi.output = OUTPUT_FILE;
        assert_string_equal(why(t), "slow disk or live consumer on sfi1");
}

EXPLAIN_TEST(a_pause_of_triggers_is_named, c.trigger_rate_millihertz = 1)
{
        sfi_grants(t, 0, 4);
        dfm_says_with(t, false);
        sfi_acks(t, 0, 1);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        assert_string_equal(why(t), "no trigger");
        scenario.trigger.source_kind = TRIGGER_UDP;
        scenario.trigger.port = 4000;
        assert_string_equal(why(t), "no trigger at UDP port 4000");
}
