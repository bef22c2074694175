/* Nodes that start one by one, as services do: which nodes may join a run, and what happens when its DFM dies
 * and starts again. */
#include "bed.h"

#define BASE                                                                                                 \
        "trigger.rate=1kHz", "trigger.events=1200", "test.keep-alive=50ms", "dfm.node-timeout=3s",           \
                "ros.count=3", "ros.fragment-size=500", "sfi.count=2", "sfi.timeout=20s",                    \
                "network.control-group=none"
/* A node that starts late is not given up. */
#define PATIENT "dfm.node-timeout=20s"

static void start(const char *nodes, const char *const *settings)
{
        char names[100], *rest = names;

        snprintf(names, sizeof names, "%s", nodes);
        for (char *n; (n = strsep(&rest, " "));)
                bed_start_with(n, settings);
}

/* Each event was built once, whichever DFM assigned it. */
static void check_whole_run(void)
{
        bed_check_accounts();
        assert_each(count_of, "dfm", triggers, 1200, events_complete, 1200, events_ended_again, 0);
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++) {
                for (size_t i = 0; bed_name(role, i); i++)
                        assert_int_equal(bed_reported(bed_name(role, i), "run"), 1);
        }
        bed_check_written_once(1200);
}

static void restart_dfm(uint64_t seed, const char *transport, int again)
{
        RUN(seed, BASE, PATIENT, bed_mode(seed % 2), transport);
        for (int i = 1; i <= again; i++) {
                bed_until(bed_events() > 300 * (unsigned)i);
                bed_pass(seed * 377000);
                bed_kill("dfm");
                bed_pass(seed % 5 * 100 * NS_PER_MS);
                bed_start("dfm");
                bed_until(count_of("dfm", triggers) > 0);
        }
        bed_all_end(0);
        check_whole_run();
        assert_true(bed_logged("dfm", "resumed run 1 of an earlier DFM"));
        assert_true(bed_logged("ros2", "restarted and resumed run 1"));
}

TEST(a_restarted_dfm_resumes_the_run)
{
        for (uint64_t seed = 0; seed < 10; seed++) {
                restart_dfm(seed, "scenario.transport=udp", 1);
                restart_dfm(seed, "scenario.transport=tcp", 1);
        }
        restart_dfm(0, "scenario.transport=udp", 3);
}

/* SIGTERM before any node has come: the run is over, and its report complete. */
TEST_EACH(a_restarted_dfm_is_stopped_at_once, ms, 3)
{
        RUN(1, BASE, PATIENT);
        bed_until(bed_events() > 500);
        bed_restart("dfm");
        bed_pass(ms * 10 * NS_PER_MS + 1);
        bed_stop_run(0);
        bed_check_complete();
        assert_true(bed_events() > 500);
        bed_check_written_once(count_of("dfm", triggers));
}

TEST(a_node_may_join_after_a_restart)
{
        BED(1, BASE, PATIENT, "dfm.start-timeout=8s");
        start("dfm ros1 ros2 ros3 sfi1", NULL);
        bed_until(bed_events() > 200);
        bed_kill("dfm");
        bed_pass(500 * NS_PER_MS);
        start("sfi2 dfm", NULL);
        bed_all_end(0);
        check_whole_run();
        assert_true(count_of("sfi2", events_complete) > 0);
}

/* No event that an SFI wrote is lost, or the report names the SFI. */
TEST_EACH(an_sfi_and_the_dfm_restart, seed, 10)
{
        bool at_once = seed % 2;

        RUN(seed, BASE);
        bed_until(bed_events() > 300);
        bed_pass(seed * 377000);
        bed_kill("sfi1");
        if (at_once)
                bed_kill("dfm");
        bed_start("sfi1");
        if (!at_once) {
                bed_pass(200 * NS_PER_MS);
                bed_kill("dfm");
        }
        bed_start("dfm");
        bed_until(bed_has_ended("dfm") && bed_has_ended("sfi1") && bed_has_ended("sfi2"));
        assert_true(bed_logged("dfm", "resumed run 1 of an earlier DFM"));
        bed_check_accounts();
        assert_int_equal(count_of("dfm", triggers), 1200);
        assert_int_equal(count_of("dfm", events_complete) + count_of("dfm", events_lost), 1200);
        assert_int_equal(bed_events(), 1200);
        assert_int_equal(at_once, count_of("dfm", events_lost) > 0);
        assert_int_equal(at_once, bed_logged("dfm", "sfi1: the events of its earlier process are not known: "
                                                    "its files may hold up to"));
}

/* A trigger box continues while the DFM restarts: no trigger becomes two events, and each accepted trigger
 * ends. */
static void box_turn(void *ctx)
{
        uint32_t *sequence = ctx;
        uint64_t entries[2 + 3 * 10] = {};

        if (turns_now_ns() / NS_PER_MS % 5 != 0)
                return;
        memcpy(entries, &(uint32_t[]){0x54425645, 1 | 10 << 16, *sequence, 0}, 16);
        for (uint64_t k = 0; k < 10; k++)
                entries[2 + 3 * k] = *sequence * 10 + k;
        entries[4] = *sequence == 0 ? UINT64_C(4) << 32 : 0;
        ++*sequence;
        bed_send_datagram("dfm", 47200, entries, sizeof entries);
}

TEST_EACH(the_dfm_restarts_while_triggers_come, seed, 10)
{
        uint32_t sequence = 0;

        BED(seed, BASE, PATIENT, "trigger.source=udp:47200");
        bed_each_ms(box_turn, &sequence);
        bed_start_all();
        bed_until(bed_events() > 270);
        bed_pass(seed * 377000);
        bed_kill("dfm");
        bed_pass(seed % 5 * 100 * NS_PER_MS);
        bed_start("dfm");
        bed_until(bed_has_ended("dfm") && bed_has_ended("sfi1") && bed_has_ended("sfi2"));
        assert_true(bed_logged("dfm", "resumed run 1 of an earlier DFM"));
        bed_check_accounts();
        assert_each(count_of, "dfm", triggers, 1200, events_partial, 0);
        assert_int_equal(bed_events_again(), 0);
        assert_true(bed_events() >= count_of("dfm", events_complete));
}

/* A node that missed the end of a run does not make the next DFM resume it. */
TEST(an_ended_run_is_over)
{
        static const char *const next[] = {"run.number=auto", NULL};

        RUN(1, BASE, "trigger.events=300", "dfm.start-timeout=8s");
        bed_until(bed_events() > 100);
        bed_freeze("sfi2", true);
        bed_until(bed_has_ended("dfm"));
        bed_start_with("dfm", next);
        bed_freeze("sfi2", false);
        bed_until(bed_has_ended("sfi2"));
        bed_until(bed_logged("dfm", "waiting for"));
        assert_false(bed_logged("dfm", "of an earlier DFM"));
}

TEST(another_scenario_is_refused)
{
        static const char *const fewer[] = {"ros.count=2", NULL};

        BED(1, BASE, PATIENT, "dfm.start-timeout=8s", "trigger.events=500");
        bed_start_with("sfi2", fewer);
        start("dfm ros1 ros2 ros3 sfi1", NULL);
        bed_ends("dfm", 0);
        bed_ends("sfi1", 0);
        assert_true(bed_logged("sfi2", "its scenario differs from ours in ros.count"));
        assert_true(bed_logged("dfm", "refused sfi2: its scenario differs from ours in ros.count"));
        assert_int_equal(count_of("dfm", events_complete), 500);
        assert_int_equal(count_of("sfi1", events_complete), 500);
        assert_int_equal(count_of("sfi2", events_complete), 0);
}

TEST(another_run_is_refused)
{
        static const char *const one[] = {"run.number=1", NULL}, *const two[] = {"run.number=2", NULL};

        BED(1, BASE, PATIENT, "dfm.start-timeout=8s", "trigger.events=500");
        bed_start_with("sfi2", two);
        start("dfm ros1 ros2 ros3 sfi1", one);
        bed_ends("dfm", 0);
        assert_true(bed_logged("sfi2", "its run number is 1, ours is 2"));
        assert_true(bed_logged("dfm", "refused sfi2: it is configured for run 2, ours is run 1"));
        assert_int_equal(count_of("dfm", events_complete), 500);
}

TEST(a_waiting_node_says_for_whom)
{
        static const char *const patient[] = {"dfm.node-timeout=30s", NULL};

        BED(1, BASE, "trigger.events=10");
        start("ros1 sfi1", NULL);
        bed_until(bed_logged("ros1", "waiting for the DFM dfm at 127.0.0.1"));
        bed_start_with("dfm", patient);
        bed_until(bed_logged("dfm", "waiting for ros2, ros3, sfi2"));
        start("ros2 ros3 sfi2", NULL);
        bed_ends("dfm", 0);
        assert_int_equal(count_of("dfm", events_complete), 10);
}

/* It says so at once, not only through partial events. */
TEST(a_run_begins_without_a_node)
{
        BED(1, BASE, PATIENT, "trigger.events=100", "dfm.start-timeout=8s");
        start("dfm ros1 ros2 sfi1 sfi2", NULL);
        bed_ends("dfm", 1);
        assert_true(bed_logged("dfm",
                               "run 1: triggers begin without all nodes after dfm.start-timeout; still "
                               "waiting for ros3"));
        for (int i = 0; i < 4; i++)
                bed_ends(((const char *const[]){"ros1", "ros2", "sfi1", "sfi2"})[i], 0);
        bed_start_all();
        bed_all_end(0);
        assert_int_equal(count_of("dfm", events_complete), 100);
        assert_true(bed_logged("dfm", "run 2: all nodes are present"));
}

/* A DFM restarted with another run.number abandons the run; nodes log so, and join the new run. */
TEST(another_number_abandons_the_run)
{
        static const char *const other[] = {"run.number=5", "trigger.events=100", NULL};
        static const char abandoned[] =
                "refused by the DFM dfm: run 1, to which this node belongs, has ended or was abandoned";

        RUN(1, BASE, PATIENT, "trigger.events=0");
        bed_until(bed_events() > 300);
        bed_kill("dfm");
        bed_start_with("dfm", other);
        for (enum node_role role = ROLE_ROS; role <= ROLE_SFI; role++) {
                for (size_t i = 0; bed_name(role, i); i++) {
                        bed_ends(bed_name(role, i), 75);
                        /* As it happens, and as a reason at the end. */
                        assert_int_equal(bed_times_logged(bed_name(role, i), abandoned), 2);
                        assert_true(bed_has_reason(bed_name(role, i), abandoned));
                }
        }
        start("ros1 ros2 ros3 sfi1 sfi2", NULL);
        bed_all_end(0);
        assert_int_equal(bed_reported("dfm", "run"), 5);
}

/* run.number = auto never repeats a number on a machine. */
TEST(numbers_never_repeat)
{
        BED(1, BASE, PATIENT, "trigger.events=10");
        for (uint64_t number = 1; number <= 2; number++) {
                bed_start_all();
                bed_all_end(0);
                for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++) {
                        for (size_t i = 0; bed_name(role, i); i++)
                                assert_int_equal(bed_reported(bed_name(role, i), "run"), number);
                }
        }
        assert_int_equal(bed_events_again(), 10);
}

/* ---- Front-ends ---- */

#define FRONT_END_PORT 26950
#define FRAMES "ros.source=udp:26950"
#define NUMBERED FRAMES, "ros.event-number=6:32:be", "ros.wait=8s", "dfm.node-timeout=30s"

/* Frames with these numbers. */
static void send_frames(const char *ros, uint32_t from, uint32_t until)
{
        for (uint32_t k = from; k < until; k++) {
                uint8_t frame[4 + 110] = {110, 0, 0, 0, 'f', 'r', 'a', 'm', 'e', ' '};
                uint32_t number = htonl(k);

                memcpy(frame + 10, &number, 4);
                bed_send_datagram(ros, FRONT_END_PORT, frame, sizeof frame);
        }
        bed_pass(NS_PER_MS);
}

static void send_frames_to_all(uint32_t from, uint32_t until)
{
        for (; from < until; from += 100) {
                for (size_t i = 0; bed_name(ROLE_ROS, i); i++)
                        send_frames(bed_name(ROLE_ROS, i), from, MIN(from + 100, until));
        }
}

static void check_frames(uint64_t n)
{
        for (size_t i = 0; bed_name(ROLE_ROS, i); i++) {
                const char *ros = bed_name(ROLE_ROS, i);

                assert_int_equal(count_of(ros, front_end_frames), n);
                assert_int_equal(
                        n, count_of(ros, front_end_used) + count_of(ros, front_end_late) +
                                   count_of(ros, front_end_duplicate) + count_of(ros, front_end_impossible) +
                                   count_of(ros, front_end_dropped) + count_of(ros, front_end_left_over));
        }
}

/* The counts of the ROSs differ if one misses a datagram. */
TEST_EACH(a_lost_frame_fails_the_run, lost, 2)
{
        RUN(1, BASE, PATIENT, FRAMES, "trigger.events=100");
        bed_pass(10 * NS_PER_MS);
        send_frames("ros1", 0, 102);
        send_frames("ros2", 0, 50);
        send_frames("ros2", 50 + (unsigned)lost, 102);
        send_frames("ros3", 0, 102);
        bed_ends("dfm", lost);
        assert_int_equal(count_of("dfm", events_complete), 100);
        assert_int_equal(lost, bed_has_reason("dfm", "counted different numbers of them"));
}

/* A ROS restarted during a run would count from 0, so it says that it cannot take part. */
TEST(a_ros_that_counts_frames_cannot_return)
{
        RUN(1, BASE, FRAMES, "trigger.events=200", "trigger.rate=20Hz", "sfi.timeout=500ms",
            "dfm.node-timeout=500ms", "dfm.start-timeout=60s");
        bed_pass(10 * NS_PER_MS);
        send_frames_to_all(0, 200);
        bed_until(bed_events() > 10);
        bed_restart("ros2");
        bed_ends("ros2", 1);
        assert_true(bed_logged("ros2",
                               "run 1 has begun, and this node must count its front-end's frames from the "
                               "beginning"));
        bed_ends("dfm", 1);
        assert_true(bed_logged("dfm", "refused ros2: run 1 has begun"));
        assert_true(count_of("dfm", events_partial) > 0);
}

/* Only what it held is lost. The boards of ros1 and ros3 are ahead of the trigger. */
TEST(a_ros_with_numbered_frames_returns)
{
        RUN(1, BASE, NUMBERED, "trigger.events=3000", "trigger.rate=500Hz");
        bed_pass(10 * NS_PER_MS);
        for (uint32_t k = 0; k < 3000; k += 100) {
                send_frames("ros1", k, k + 100);
                send_frames("ros3", k, k + 100);
        }
        send_frames("ros2", 0, 200);
        bed_until(bed_events() > 50);
        bed_restart("ros2");
        bed_pass(200 * NS_PER_MS);
        for (uint32_t k = 200; k < 3000; k += 100)
                send_frames("ros2", k, k + 100);
        bed_ends("dfm", 1);
        bed_ends("ros2", 0);
        bed_check_accounts();
        assert_int_equal(count_of("dfm", triggers), 3000);
        assert_int_equal(count_of("dfm", events_complete) + count_of("dfm", events_partial), 3000);
        /* Some of the 200 frames were lost with the process. The new one got all others. */
        assert_true(count_of("dfm", events_partial) <= 200 && count_of("dfm", events_complete) > 200);
        assert_each(count_of, "ros2", front_end_frames, 2800, front_end_used, 2800);
        assert_false(bed_logged("dfm", "refused"));
}

#define FRAMES_TRIGGER BASE, NUMBERED, "trigger.source=frames", "trigger.events=0"

/* Its frames and those of others make the events: only what it held is lost. */
TEST(a_ros_restarts_while_frames_make_events)
{
        RUN(1, FRAMES_TRIGGER);
        bed_pass(10 * NS_PER_MS);
        send_frames_to_all(0, 1000);
        bed_until(bed_events() > 50);
        bed_restart("ros2");
        bed_until(bed_logged("ros2", "joined run 1"));
        bed_pass(200 * NS_PER_MS);
        send_frames_to_all(1000, 3000);
        bed_pass(10 * NS_PER_S);
        bed_signal("dfm", SIGTERM);
        bed_until(bed_has_ended("dfm") && bed_has_ended("ros2"));
        bed_check_accounts();
        assert_int_equal(count_of("dfm", triggers), 3000);
        assert_int_equal(count_of("dfm", events_complete) + count_of("dfm", events_partial), 3000);
        assert_true(count_of("dfm", events_complete) >= 2000);
        assert_each(count_of, "ros2", front_end_frames, 2000, front_end_used, 2000);
}

/* Frames that a dead ROS had read are unaccounted for, although all events are complete. The next DFM reports
 * this. */
TEST(the_dfm_restarts_after_a_ros_died)
{
        RUN(1, FRAMES_TRIGGER, "dfm.start-timeout=4s");
        bed_pass(10 * NS_PER_MS);
        send_frames_to_all(0, 200);
        bed_until(bed_events() == 200);
        bed_pass(NS_PER_S);
        bed_kill("ros2");
        bed_pass(5 * NS_PER_S);
        bed_restart("dfm");
        bed_until(bed_logged("dfm", "resumed run 1 of an earlier DFM"));
        bed_pass(10 * NS_PER_S);
        bed_stop("dfm", 1);
        assert_each(count_of, "dfm", events_complete, 200, events_assigned, 200);
        assert_true(bed_has_reason("dfm", "ros2 did not report the end of the run"));
}

/* An SFI is slow, so they return before the run ends, but their frames from before the stop are in no event.
 */
TEST_EACH(a_stop_while_leading_ross_are_silent_fails_the_run, i, 8)
{
        static const uint64_t return_after_ms[] = {0, 20, 500, 3000};
        size_t ross = i % 2 ? 3 : 1;

        RUN(1 + i, BASE, FRAMES, "ros.event-number=6:32:be", "ros.wait=500ms", "dfm.node-timeout=1s",
            "trigger.events=0", ross == 1 ? "trigger.source=frames:ros1" : "trigger.source=frames");
        bed_pass(10 * NS_PER_MS);
        send_frames_to_all(0, 100);
        bed_until(bed_events() == 100);
        for (size_t k = 0; k < ross; k++)
                bed_freeze(bed_name(ROLE_ROS, k), true);
        bed_pass(1500 * NS_PER_MS);
        send_frames_to_all(100, 200);
        bed_freeze("sfi1", true);
        bed_signal("dfm", SIGTERM);
        bed_pass(return_after_ms[i / 2] * NS_PER_MS);
        for (size_t k = 0; k < ross; k++)
                bed_freeze(bed_name(ROLE_ROS, k), false);
        bed_pass(300 * NS_PER_MS);
        bed_freeze("sfi1", false);
        bed_ends("dfm", 1);
        bed_check_accounts();
        assert_each(count_of, "dfm", triggers, 100, events_complete, 100);
        assert_int_equal(bed_has_reason("dfm", "did not report which frames came before the stop"),
                         i / 2 < 3);
        assert_int_equal(bed_has_reason("dfm", "did not report the end of the run"), i / 2 == 3);
}

/* Its frames may be missing, unless no other ROS makes triggers of the others' frames. */
TEST_EACH(an_optional_ros_may_be_silent_at_the_stop, leads_alone, 2)
{
        static const char nodes[] = "[node dfm]\nrole=dfm\n[node sfi1]\nrole=sfi\n[node sfi2]\nrole=sfi\n"
                                    "[node ros1]\nrole=ros\nrequired=no\n[node ros2]\nrole=ros\n"
                                    "required=no\n[node ros3]\nrole=ros\nrequired=no\n";

        RUN(1, BASE, FRAMES, "ros.event-number=6:32:be", "ros.wait=500ms", "dfm.node-timeout=1s",
            "trigger.events=0", leads_alone ? "trigger.source=frames:ros2" : "trigger.source=frames", nodes);
        bed_pass(10 * NS_PER_MS);
        send_frames_to_all(0, 100);
        bed_until(bed_events() == 100);
        bed_kill("ros2");
        bed_pass(1500 * NS_PER_MS);
        send_frames("ros1", 100, 200);
        send_frames("ros3", 100, 200);
        bed_pass(NS_PER_S);
        bed_stop("dfm", leads_alone);
        bed_check_accounts();
        assert_int_equal(count_of("dfm", triggers), leads_alone ? 100 : 200);
        assert_int_equal(count_of("dfm", events_complete), count_of("dfm", triggers));
        assert_int_equal(bed_has_reason("dfm", "ros2 did not report which frames came before the stop"),
                         leads_alone);
}

/* The run continues after the accepted numbers. Triggers that the previous DFM had accepted but not assigned
 * are lost. */
TEST_EACH(the_dfm_restarts_while_frames_make_events, seed, 5)
{
        RUN(seed, FRAMES_TRIGGER);
        bed_pass(10 * NS_PER_MS);
        send_frames_to_all(0, 1100);
        bed_until(bed_events() >= 850);
        bed_kill("dfm");
        bed_pass(seed * 100 * NS_PER_MS);
        bed_start("dfm");
        bed_until(bed_logged("dfm", "resumed run 1 of an earlier DFM"));
        send_frames_to_all(1100, 3000);
        bed_pass(10 * NS_PER_S);
        bed_signal("dfm", SIGTERM);
        for (size_t i = 0; bed_name(ROLE_ROS, i); i++)
                bed_until(bed_has_ended(bed_name(ROLE_ROS, i)));
        bed_until(bed_has_ended("dfm"));
        bed_check_accounts();
        assert_true(bed_events() >= 2700);
        check_frames(3000);
}
