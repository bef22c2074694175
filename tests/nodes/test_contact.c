/* Nodes lose contact. The DFM assigns the events of a lost SFI to others; no node may report such a run as a
 * success. */
#include "bed.h"

#define BASE                                                                                                 \
        "test.keep-alive=50ms", "dfm.start-timeout=60s", "ros.count=3", "ros.fragment-size=500",             \
                "sfi.count=2", "sfi.timeout=20s"

/* Number of events that may be in another SFI's files, too. */
static uint64_t unacknowledged(const char *sfi)
{
        static const char text[] = "the DFM did not acknowledge ";
        json_t *o = bed_report(sfi), *reason;
        uint64_t n = 0;
        size_t i;

        json_array_foreach(json_object_get(o, "reasons"), i,
                           reason) if (strncmp(json_string_value(reason), text, strlen(text)) == 0) n =
                strtoull(json_string_value(reason) + strlen(text), NULL, 10);
        json_decref(o);
        return n;
}

/* All nodes stand still together for 12 times dfm.node-timeout, as on a suspended machine. Nobody was silent.
 */
TEST_EACH(a_suspension_of_all_nodes_ends_no_run, seed, 10)
{
        static const char *const nodes[] = {"sfi2", "ros3", "ros1", "dfm", "sfi1", "ros2"};

        RUN(seed, BASE, bed_mode(seed % 2), "trigger.events=1000", "trigger.rate=500Hz",
            "dfm.node-timeout=1s");
        bed_until(bed_events() > 200);
        bed_pass(seed * 377000);
        for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
                bed_freeze(nodes[i], true);
        bed_pass(12 * NS_PER_S);
        for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
                bed_freeze(nodes[(i + seed) % ARRAY_SIZE(nodes)], false);
                bed_pass(20 * NS_PER_MS);
        }
        bed_all_end(0);
        bed_check_accounts();
        assert_int_equal(bed_events(), 1000);
        assert_true(bed_logged("ros1", "this ROS was suspended for 12"));
}

/* A node that stands still while its DFM is silent has received no message from it afterwards, either. */
TEST_EACH(a_suspension_is_no_message_of_the_dfm, sfi, 2)
{
        const char *node = sfi ? "sfi1" : "ros1";

        RUN(1, BASE, "trigger.events=1000", "trigger.rate=500Hz", "dfm.node-timeout=1s");
        bed_until(bed_events() > 200);
        bed_freeze("dfm", true);
        bed_until(bed_logged(node, "no message from the DFM"));
        bed_freeze(node, true);
        bed_pass(2 * NS_PER_S);
        bed_freeze(node, false);
        bed_pass(500 * NS_PER_MS);
        assert_true(bed_logged(node, " was suspended for "));
        assert_false(bed_logged(node, " is back after "));
        bed_freeze("dfm", false);
        bed_until(bed_logged(node, "the DFM dfm is back after "));
        bed_all_end(0);
        assert_int_equal(bed_events(), 1000);
}

/* An SFI stands still until the run is over. It then learns which events went to others before it reads any
 * data, and no event is written twice; or it says how many may be. */
TEST_EACH(a_frozen_sfi_writes_no_event_again, seed, 10)
{
        RUN(seed, BASE, seed % 2 ? "scenario.transport=tcp" : "scenario.transport=udp", "trigger.events=1500",
            "trigger.rate=500Hz", "dfm.node-timeout=2s", "sfi.timeout=2s");
        bed_until(bed_events() > 200);
        bed_pass(seed * 377000);
        bed_freeze("sfi1", true);
        bed_ends("dfm", 1);
        assert_true(bed_has_reason("dfm", "sfi1 fell silent and did not return"));
        bed_check_accounts();
        bed_ends("ros1", 0);
        bed_ends("sfi2", 0);
        bed_freeze("sfi1", false);
        bed_until(bed_has_ended("sfi1"));
        assert_true(bed_events_again() <= unacknowledged("sfi1"));
        assert_int_equal(bed_events(), 1500);
}

/* All SFIs stand still for longer than the DFM waits for them, so the events that they hold count as lost.
 * What they then build counts as built. */
TEST_EACH(events_of_frozen_sfis_are_in_the_account, seed, 10)
{
        uint64_t again;

        RUN(seed, BASE, bed_mode(seed % 2), "trigger.events=1500", "trigger.rate=500Hz",
            "dfm.node-timeout=1s", "sfi.timeout=1s");
        bed_until(bed_events() > 200);
        bed_pass(seed * 377000);
        bed_freeze("sfi1", true);
        bed_pass(seed % 3 * 300 * NS_PER_MS);
        bed_freeze("sfi2", true);
        bed_until(count_of("dfm", events_lost) > 0);
        bed_freeze("sfi1", false);
        bed_freeze("sfi2", false);
        bed_until(bed_has_ended("dfm"));
        bed_check_accounts();
        again = count_of("dfm", events_ended_again);
        assert_int_equal(count_of("dfm", events_complete) + count_of("dfm", events_partial), bed_events());
        assert_int_equal(again, bed_events_again());
}

/* The DFM that lost them is replaced before the SFIs return, or just after. */
TEST_EACH(events_that_a_dead_dfm_lost_are_in_the_account, seed, 20)
{
        RUN(seed, BASE, bed_mode(seed % 2), "trigger.events=1500", "trigger.rate=500Hz",
            "dfm.node-timeout=1s", "sfi.timeout=1s");
        bed_until(bed_events() > 200);
        bed_pass(seed * 377000);
        bed_freeze("sfi1", true);
        bed_pass(seed % 3 * 300 * NS_PER_MS);
        bed_freeze("sfi2", true);
        bed_until(count_of("dfm", events_lost) > 0);
        if (seed % 4 < 2)
                bed_kill("dfm");
        bed_freeze("sfi1", false);
        bed_pass(seed % 5 * 7 * NS_PER_MS);
        bed_freeze("sfi2", false);
        bed_pass(seed % 7 * 11 * NS_PER_MS);
        if (seed % 4 >= 2)
                bed_kill("dfm");
        bed_start("dfm");
        bed_until(bed_has_ended("dfm"));
        bed_check_accounts();
        assert_int_equal(count_of("dfm", events_complete) + count_of("dfm", events_partial), bed_events());
        assert_int_equal(count_of("dfm", events_ended_again), bed_events_again());
}

/* An SFI is killed with events that others get, and starts again, as a unit does. Its files may hold them
 * too. */
TEST_EACH(a_killed_sfi_with_open_events_fails_the_run, seed, 10)
{
        /* The SFI starts again before the DFM notices, or later. */
        bool noticed = seed % 2;

        RUN(seed, BASE, "trigger.events=1500", noticed ? "trigger.rate=200Hz" : "trigger.rate=500Hz",
            noticed ? "dfm.node-timeout=5s" : "dfm.node-timeout=20s");
        bed_until(bed_events() > 130);
        /* It gets events, and cannot finish them before it is killed. */
        bed_freeze("sfi1", true);
        bed_until(bed_events() > 200 + seed);
        bed_kill("sfi1");
        if (noticed)
                bed_until(bed_logged("dfm", "no message from sfi1"));
        bed_start("sfi1");
        bed_ends("dfm", 1);
        bed_ends("sfi1", 0);
        bed_ends("sfi2", 0);
        bed_check_complete();
        assert_int_equal(count_of("dfm", triggers), 1500);
        assert_true(bed_has_reason("dfm", "sfi1 was restarted with open events"));
        assert_int_equal(noticed, bed_logged("dfm", "no message from sfi1"));
}

/* It receives its DFM, but the DFM does not receive it, until the end of the run. */
TEST_EACH(an_sfi_that_the_dfm_does_not_receive_says_so, pull, 2)
{
        RUN(1, BASE, bed_mode(pull), "scenario.duration=8s", "trigger.events=0", "trigger.rate=300Hz",
            "test.keep-alive=100ms", "dfm.node-timeout=2s", "sfi.timeout=4s");
        bed_until(bed_events() > 100);
        bed_cut("sfi1", "dfm");
        bed_ends("dfm", 1);
        bed_ends("sfi1", 1);
        bed_check_accounts();
        /* Otherwise, this shows nothing. */
        assert_true(bed_events_again() > 0);
        assert_true(unacknowledged("sfi1") >= bed_events_again());
        assert_int_equal(bed_events() + bed_events_again(),
                         count_sum(ROLE_SFI, events_complete) + count_sum(ROLE_SFI, events_partial));
}

#define JUMBO                                                                                                \
        "scenario.duration=4s", "trigger.events=0", "trigger.rate=200Hz", "test.keep-alive=50ms",            \
                "ros.count=2", "ros.fragment-size=8000", "sfi.count=2", "sfi.timeout=20s"

/* All devices carry 9000 bytes, but the port of one SFI carries 1500. */
TEST_EACH(packets_are_as_large_as_each_path_carries, pull, 2)
{
        BED(1, bed_mode(pull), JUMBO);
        sockets_set_mtu(9000);
        bed_start_all();
        bed_cut_packets_above("sfi2", 1500);
        bed_ends_complete();
        for (const char *const *ros = (const char *const[]){"ros1", "ros2", NULL}; *ros; ros++) {
                assert_int_equal(bed_times_logged(*ros, "packets of 9000 bytes pass to sfi1"), 1);
                assert_false(bed_logged(*ros, "packets of 9000 bytes pass to sfi2"));
        }
        /* Those to sfi1 are one per fragment, soon, and those to sfi2 six. */
        assert_in_range(count_sum(ROLE_ROS, packets_sent), 7 * count_of("dfm", triggers),
                        9 * count_of("dfm", triggers));
}

TEST(packets_have_the_size_that_the_scenario_sets)
{
        BED(1, JUMBO, "network.mtu=1500");
        sockets_set_mtu(9000);
        bed_start_all();
        bed_ends_complete();
        assert_int_equal(count_sum(ROLE_ROS, packets_sent), 2 * 6 * count_of("dfm", triggers));
}

/* A switch port is set to a smaller MTU in the run, and perhaps back. */
TEST_EACH(a_path_that_carries_less_loses_no_event, how, 4)
{
        BED(1, bed_mode(how % 2), JUMBO, "sfi.timeout=10s");
        sockets_set_mtu(9000);
        bed_start_all();
        bed_until(bed_events() > 100);
        assert_true(bed_logged("ros1", "packets of 9000 bytes pass to sfi2"));
        bed_cut_packets_above("sfi2", 1500);
        bed_until(bed_logged("ros1", "did not bring to sfi2") && bed_logged("ros2", "did not bring to sfi2"));
        if (how >= 2) {
                sockets_mend();
                sockets_set_mtu(9000);
        }
        bed_ends_complete();
        assert_int_equal(bed_times_logged("ros1", "packets of 9000 bytes pass to sfi2") > 1, how >= 2);
        assert_int_equal(bed_logged("ros1", "packets of 9000 bytes no longer pass to sfi2"), how < 2);
}

/* A path carries large probes, but not large data: the ROS uses large packets ever more rarely. */
TEST_EACH(a_path_that_carries_only_probes_is_used_rarely, pull, 2)
{
        BED(1, bed_mode(pull), JUMBO, "scenario.duration=60s", "sfi.timeout=10s");
        sockets_set_mtu(9000);
        bed_start_all();
        bed_until(bed_events() > 100);
        bed_cut_data_above("sfi2", 1500);
        bed_ends_complete();
        assert_in_range(bed_times_logged("ros1", "did not bring to sfi2"), 3, 12);
        assert_false(bed_logged("ros1", "no longer pass"));
}

/* A router reports that the path carries less. The kernel then divides large packets, so that they arrive.
 * With few retries, nothing would show that a path no longer carries large packets. An SFI with network.mtu
 * of its own does not answer large probes. */
TEST_EACH(packets_stay_short, k, 3)
{
        static const char *const few_retries[] = {"sfi.retries=1", NULL}, *const mtu[] = {"network.mtu=1500",
                                                                                          NULL};

        BED(1, JUMBO);
        sockets_set_mtu(9000);
        bed_start("dfm");
        bed_start("ros2");
        bed_start_with("ros1", k == 1 ? few_retries : NULL);
        bed_start_with("sfi1", k == 2 ? mtu : NULL);
        bed_start_with("sfi2", k == 2 ? mtu : NULL);
        if (k == 0) {
                bed_until(bed_logged("ros1", "joined run"));
                sockets_set_mtu(1500);
        }
        bed_ends_complete();
        assert_false(bed_logged("ros1", "packets of 9000 bytes pass"));
        assert_int_equal(count_of("ros1", packets_sent), 6 * count_of("dfm", triggers));
        assert_int_equal(count_sum(ROLE_ROS, packets_malformed), 0);
}

/* A ROS that receives no Clear holds triggers back until the end: the run fell short, and names it. */
TEST(a_ros_without_multicast_is_named)
{
        /* 100 events fit above the level of XOFF: 2.5 s of triggers. */
        RUN(1, BASE, "scenario.duration=22s", "trigger.events=0", "trigger.rate=40Hz",
            "ros.fragment-size=8000", "ros.buffer-size=4MiB", "test.keep-alive=100ms", "dfm.node-timeout=8s",
            "sfi.timeout=8s");
        bed_until(bed_events() > 10);
        bed_cut_groups("ros2");
        bed_ends("dfm", 1);
        bed_check_complete();
        assert_true(bed_has_reason("dfm", "ros2 held triggers back (XOFF) for the last "));
}
