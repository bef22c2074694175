/* How nodes end by themselves or by a signal: exit status and reasons. */
#include "boards.h"
#include "data/reasons.h"

#define BASE                                                                                                 \
        "trigger.events=0", "trigger.rate=5kHz", "test.keep-alive=50ms", "dfm.node-timeout=20s",             \
                "dfm.start-timeout=60s", "ros.count=3", "sfi.count=2"

static void signal_all(enum node_role role)
{
        for (size_t i = 0; bed_name(role, i); i++)
                bed_signal(bed_name(role, i), SIGTERM);
}

static void check_finished(void)
{
        bed_check_complete();
        bed_check_written_once(count_of("dfm", triggers));
}

/* The SFI logs the first wrong byte at once, and falls short, as does the DFM. */
TEST(another_seed_in_one_ros_is_found)
{
        static const char *const seed[] = {"run.seed=99", NULL};

        BED(1, "ros.count=3", "sfi.count=1", "trigger.events=50");
        bed_start("dfm");
        bed_start("ros1");
        bed_start_with("ros2", seed);
        bed_start("ros3");
        bed_start("sfi1");
        bed_ends("sfi1", 1);
        assert_int_equal(count_of("sfi1", fragments_corrupt), 50);
        assert_true(bed_logged("sfi1", "corrupt fragment: event 0 of ros2, byte 0 is 0x"));
        assert_true(bed_logged("sfi1", "; check that run.seed is the same on all nodes"));
        assert_true(bed_has_reason(
                "sfi1", "50 fragments of 50 events are corrupt; the first: event 0 of ros2, byte 0 is 0x"));
        bed_ends("dfm", 1);
        assert_true(bed_has_reason("dfm", "sfi1 found a fault in what it built: its own report says which"));
        for (size_t i = 0; bed_name(ROLE_ROS, i); i++)
                bed_ends(bed_name(ROLE_ROS, i), 0);
}

/* SIGTERM to all nodes at once finishes the open events; none is partial or lost. */
TEST_EACH(all_nodes_stop_at_once, seed, 20)
{
        RUN(seed, BASE, bed_mode(seed % 2));
        bed_until(count_of("dfm", events_complete) > 100);
        bed_pass(seed * 377000);
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++)
                signal_all(role);
        bed_all_end(0);
        check_finished();
}

/* They serve until the DFM ends the run. */
TEST_EACH(ross_stop_first, pull, 2)
{
        struct obstacle shown;
        uint64_t before;

        RUN(1, BASE, bed_mode(pull));
        bed_until(count_of("dfm", events_complete) > 100);
        signal_all(ROLE_ROS);
        bed_pass(2 * NS_PER_S);
        assert_true(bed_logged("ros1", "serves run 1 until it ends"));
        assert_true(obstacle_read(&bed_stats("ros1")->obstacle, &shown));
        assert_non_null(strstr(shown.text, "stopping: serves run 1 until it ends, at most"));
        before = count_of("dfm", events_complete);
        bed_until(count_of("dfm", events_complete) > before + 1000);
        assert_false(bed_has_ended("ros1"));
        signal_all(ROLE_DFM);
        signal_all(ROLE_SFI);
        bed_all_end(0);
        check_finished();
}

/* A stopped ROS serves until run.stop-timeout, or until a dead DFM counts as silent: then the run has no end.
 */
TEST_EACH(a_ros_stops_in_time, dead, 2)
{
        uint64_t from_ns;

        RUN(1, BASE, "dfm.node-timeout=3s", dead ? "run.stop-timeout=50s" : "run.stop-timeout=1500ms");
        bed_until(count_of("ros1", fragments_sent) > 100);
        if (dead)
                bed_kill("dfm");
        from_ns = turns_now_ns();
        bed_stop("ros1", dead ? 75 : 0);
        assert_int_equal(bed_has_reason("ros1", "the DFM dfm fell silent in run 1"), dead);
        assert_true(turns_now_ns() - from_ns >= 1500 * NS_PER_MS);
        assert_true(turns_now_ns() - from_ns < (dead ? 10 : 2) * NS_PER_S);
}

/* It is logged once after 2 s, and so is its connection; without one, the ROS falls short. */
TEST_EACH(a_missing_front_end_is_named, comes, 2)
{
        struct boards boards;

        BED(1, "ros.count=1", "sfi.count=1", "ros.source=" BOARDS_SOURCE);
        bed_start("ros1");
        bed_pass(1900 * NS_PER_MS);
        assert_false(bed_logged("ros1", "no connection to front-end"));
        bed_until(bed_logged("ros1", "no connection to front-end 127.0.1.1:9000 for 2."));
        assert_true(bed_logged("ros1", " s (Connection refused)"));
        if (comes) {
                /* A connection is enough: it sends nothing. */
                boards_begin(&boards, 0, NULL);
                bed_until(bed_logged("ros1", "connected to front-end 127.0.1.1:9000 after "));
        }
        bed_stop("ros1", !comes);
        assert_int_equal(!comes,
                         bed_has_reason("ros1", "could not connect to front-end 127.0.1.1:9000: Connection "
                                                "refused"));
}

/* ---- Lost events ---- */

/* The sum of the numbers in "lost events: 3 that ... (sfi1, sfi2), 4 of ...". */
static uint64_t caused(const char *node, const char *what)
{
        json_t *o = bed_report(node), *reason;
        uint64_t sum = 0;
        size_t i;

        json_array_foreach(json_object_get(o, "reasons"), i, reason)
        {
                const char *at = json_string_value(reason);

                if (strncmp(at, DFM_REASON_LOST, strlen(DFM_REASON_LOST)) != 0)
                        continue;
                if (!strstr(at, what))
                        fail_msg("%s: not \"%s\"", at, what);
                for (at += strlen(DFM_REASON_LOST); at; at = strstr(at, ", ") ? strstr(at, ", ") + 2 : NULL)
                        sum += strtoull(at, NULL, 10);
        }
        json_decref(o);
        return sum;
}

/* Every event that is lost when a run stops has a cause. */
TEST_EACH(each_lost_event_has_a_cause, i, 10)
{
        enum { GONE, NO_SFI, NO_ROS, OPEN, OVERDUE, CAUSES };
        static const char *const texts[] = {
                [GONE] = "of an SFI that left, fell silent or restarted (sfi1)",
                [NO_SFI] = "that no SFI took",
                [NO_ROS] = "without a fragment, or not written (sfi1)",
                [OPEN] = "still open when this DFM ended (sfi1)",
                [OVERDUE] = "not reported in time (sfi1)",
        };
        unsigned cause = i % CAUSES;
        uint64_t lost;

        RUN(i, BASE, cause == GONE ? "sfi.count=2" : "sfi.count=1", "sfi.credits=1000", bed_mode(i / CAUSES),
            cause == OVERDUE ? "dfm.node-timeout=20s" : "dfm.node-timeout=1s",
            cause == OVERDUE ? "sfi.timeout=100ms" : "sfi.timeout=2s",
            cause == OPEN ? "run.stop-timeout=300ms" : "run.stop-timeout=20s");
        bed_until(count_of("dfm", events_complete) > 100);
        for (size_t r = 0; cause == NO_ROS && bed_name(ROLE_ROS, r); r++)
                bed_kill(bed_name(ROLE_ROS, r));
        /* The DFM detects the end of sfi2 just before that of sfi1, which gets the events of sfi2 in between.
         */
        if (cause == GONE) {
                bed_kill("sfi2");
                bed_pass(900 * NS_PER_MS);
        }
        if (cause == GONE || cause == NO_SFI)
                bed_kill("sfi1");
        if (cause == OPEN || cause == OVERDUE)
                bed_freeze("sfi1", true);
        bed_pass(20 * NS_PER_MS);
        bed_stop("dfm", 1);
        lost = count_of("dfm", events_lost);
        assert_true(lost > 0);
        assert_int_equal(count_of("dfm", triggers),
                         count_of("dfm", events_complete) + count_of("dfm", events_partial) + lost);
        assert_int_equal(caused("dfm", texts[cause]), lost);
}
