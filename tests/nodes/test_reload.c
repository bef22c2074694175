/* Nodes that read their scenario again (SIGHUP), and what may change while they run. */
#include "bed.h"

#define BASE                                                                                                 \
        "trigger.events=0", "test.keep-alive=50ms", "dfm.node-timeout=60s", "dfm.start-timeout=60s",         \
                "sfi.timeout=30s"
#define NODES(ros1)                                                                                          \
        "[node dfm]\nrole=dfm\naddress=127.0.0.1\n[node ros1]\nrole=ros\naddress=127.0.0.10\n" ros1          \
        "[node ros2]\nrole=ros\naddress=127.0.0.11\n[node sfi1]\nrole=sfi\naddress=127.0.0.100\n"

/* Events that end in 10 s. */
static uint64_t events_in_10_s(void)
{
        uint64_t before = count_of("dfm", events_complete);

        bed_pass(10 * NS_PER_S);
        return count_of("dfm", events_complete) - before;
}

static bool is_near(uint64_t n, uint64_t expected)
{
        return n + expected / 10 >= expected && n <= expected + expected / 10;
}

static void end(void)
{
        bed_stop_run(0);
        bed_check_complete();
}

/* Ten times up and down; no event is lost. */
TEST(the_rate_of_triggers_follows)
{
        BED(1, BASE, NODES(""));
        for (int i = 0; i < 4; i++)
                bed_start_with(i == 0   ? "dfm"
                               : i == 1 ? "ros1"
                               : i == 2 ? "ros2"
                                        : "sfi1",
                               (const char *const[]){"trigger.rate=100Hz", NULL});
        bed_until(count_of("dfm", events_complete) > 0);
        assert_true(is_near(events_in_10_s(), 1000));
        RELOAD("dfm", "trigger.rate=1kHz");
        assert_true(bed_logged("dfm", "reloaded: trigger.rate 100Hz -> 1kHz\n"));
        assert_true(is_near(events_in_10_s(), 10000));
        RELOAD("dfm", "trigger.rate=100Hz", "trigger.kind=poisson");
        assert_true(bed_logged("dfm", "reloaded: trigger.rate 1kHz -> 100Hz"));
        assert_true(bed_logged("dfm", "reloaded: trigger.kind periodic -> poisson"));
        assert_false(bed_logged("dfm", "nothing differs"));
        assert_true(is_near(events_in_10_s(), 1000));
        RELOAD("ros1", "trigger.rate=100Hz");
        RELOAD("sfi1", "trigger.rate=100Hz");
        assert_true(bed_logged("ros1", "reloaded: nothing differs"));
        assert_true(bed_logged("sfi1", "reloaded: nothing differs"));
        end();
}

/* Triggers come at its rate. */
TEST(a_reload_comes_before_the_run)
{
        BED(1, BASE, NODES(""));
        bed_start_with("dfm", (const char *const[]){"trigger.rate=1Hz", NULL});
        bed_pass(NS_PER_S);
        RELOAD("dfm", "trigger.rate=500Hz");
        assert_true(bed_logged("dfm", "reloaded: trigger.rate 1Hz -> 500Hz"));
        bed_start("ros1");
        bed_start("ros2");
        bed_start("sfi1");
        bed_until(count_of("dfm", events_complete) > 0);
        assert_true(is_near(events_in_10_s(), 5000));
        end();
}

/* In both directions: events that only wait for a frozen ROS show how many there are. */
TEST(the_credits_of_an_sfi_change)
{
        BED(1, BASE, NODES("required=no\n"), "trigger.rate=max", "sfi.timeout=1s", "dfm.node-timeout=1h");
        for (size_t i = 0; i < 4; i++)
                bed_start_with((const char *const[]){"dfm", "ros1", "ros2", "sfi1"}[i],
                               (const char *const[]){"sfi.credits=4", NULL});
        bed_until(count_of("dfm", events_complete) > 100);
        bed_freeze("ros1", true);
        bed_pass(2 * NS_PER_S);
        assert_true(is_near(events_in_10_s(), 40));
        RELOAD("sfi1", "sfi.credits=40", "sfi.retries=3", "sfi.slow-disk=drop", "sfi.outstanding=9");
        assert_true(bed_logged("sfi1", "reloaded: sfi.credits 4 -> 40\n"));
        assert_true(bed_logged("sfi1", "reloaded: sfi.retries auto -> 3\n"));
        assert_true(bed_logged("sfi1", "reloaded: sfi.slow-disk wait -> drop\n"));
        assert_true(bed_logged("sfi1",
                               "reloaded: sfi.outstanding auto -> 9, without effect: scenario.mode is push"));
        bed_pass(2 * NS_PER_S);
        assert_true(is_near(events_in_10_s(), 400));
        RELOAD("sfi1", "sfi.credits=2");
        assert_true(bed_logged("sfi1", "reloaded: sfi.credits 40 -> 2\n"));
        bed_pass(2 * NS_PER_S);
        assert_true(is_near(events_in_10_s(), 20));
        bed_freeze("ros1", false);
        end();
}

TEST(triggers_from_outside_have_no_rate)
{
        RUN(1, BASE, NODES(""), "trigger.source=udp:26879");
        bed_until(bed_logged("dfm", "triggers begin"));
        RELOAD("dfm", "trigger.rate=1kHz");
        assert_true(
                bed_logged("dfm", "1kHz, without effect: triggers come from trigger.source = udp:26879\n"));
        bed_pass(NS_PER_S);
        assert_int_equal(count_of("dfm", triggers), 0);
}
