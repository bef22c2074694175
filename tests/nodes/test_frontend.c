/* The boards and the trigger box of `evb frontend` with whole nodes: the accounts of both agree, and no event
 * mixes triggers. */
#include "beam.h"

static struct beam beam;

static bool is_tcp(int i)
{
        return i % 2;
}

static const char *boards_of(bool tcp)
{
        return tcp ? BEAM_BOARDS_TCP : BEAM_BOARDS_UDP;
}

/* The run has all frames that the boards sent. */
static void check_all_frames(uint64_t n)
{
        bed_ends_complete();
        beam_check(&beam);
        beam_check_frames();
        assert_int_equal(count_of("dfm", triggers), n);
        assert_int_equal(beam.fragments, 3 * n);
        assert_int_equal(beam_sent(0, "frames"), 3 * n);
        assert_int_equal(count_of("dfm", payload_bytes), beam_sent(0, "payload_bytes"));
        for (uint64_t k = 0; k < n; k++)
                assert_int_equal(beam.frames[k], 3);
}

TEST_EACH(each_frame_is_in_its_event, tcp, 2)
{
        BED(1, BEAM, tcp ? BEAM_TCP : BEAM_UDP, "trigger.events=2000");
        beam_begin(&beam, 8, 24);
        FRONTEND("frontend", "--boards", boards_of(tcp), "--count", "2000", "--rate", "poisson:2kHz",
                 "--size", "lognormal:300,0.5", "--event-number", "8:24", "--fault", "skew=2ms");
        bed_ends("frontend", 0);
        check_all_frames(2000);
}

TEST(boards_wait_for_a_slow_builder)
{
        json_t *report;

        BED(1, BEAM, BEAM_TCP, "trigger.events=30000", "test.buffer-events=256", "trigger.rate=10kHz");
        beam_begin(&beam, 0, 32);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_TCP, "--count", "30000", "--rate", "1MHz", "--size",
                 "1KiB");
        bed_ends("frontend", 0);
        check_all_frames(30000);
        report = bed_report("frontend");
        assert_true(json_real_value(json_object_get(json_object_get(report, "held_seconds"), "boards")) > 0);
        json_decref(report);
}

/* Nothing else wakes the boards until they warn of what is missing, after 2 s. */
TEST(triggers_begin_with_the_last_connection)
{
        uint64_t from_ns;

        BED(1, BEAM, BEAM_TCP, "trigger.events=1");
        FRONTEND("frontend", "--boards", BEAM_BOARDS_TCP, "--count", "1");
        bed_pass(100 * NS_PER_MS);
        from_ns = turns_now_ns();
        beam_begin(&beam, 0, 32);
        bed_until(count_sum(ROLE_ROS, front_end_frames) == 3);
        assert_true(turns_now_ns() - from_ns < NS_PER_S);
        bed_ends("frontend", 0);
        check_all_frames(1);
}

/* By more than an event waits for a frame: all events are complete. */
TEST_EACH(triggers_wait_for_slow_boards, pull, 2)
{
        BED(1, BEAM, BEAM_TCP, "trigger.events=200", bed_mode(pull),
            pull ? "trigger.rate=max" : "trigger.rate=1kHz", "ros.wait=300ms");
        beam_begin(&beam, 8, 24);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_TCP, "--count", "200", "--rate", "100Hz",
                 "--event-number", "8:24");
        bed_ends("frontend", 0);
        check_all_frames(200);
}

TEST(missed_frames_show_as_different_counts)
{
        BED(1, BEAM, BEAM_UDP, "trigger.events=900");
        beam_begin(&beam, 0, 32);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_UDP, "--count", "1000", "--rate", "2kHz", "--fault",
                 "missed=1%");
        bed_ends("frontend", 0);
        bed_ends("dfm", 1);
        assert_true(bed_has_reason("dfm", "counted different numbers of them"));
}

/* Each ROS read what its board sent, and each frame that was used is in an event. Over TCP, ROSs take boards
 * in any order. */
static void check_numbered(bool tcp)
{
        beam_check(&beam);
        beam_check_frames();
        assert_int_equal(count_of("dfm", events_lost), 0);
        assert_int_equal(count_sum(ROLE_ROS, front_end_used), count_sum(ROLE_ROS, front_end_frames));
        assert_int_equal(count_sum(ROLE_ROS, fragments_absent),
                         beam_sent(0, "missed") + beam_sent(0, "outage"));
        for (size_t i = 0; !tcp && i < BEAM_BOARDS; i++) {
                assert_int_equal(count_of(bed_name(ROLE_ROS, i), front_end_frames),
                                 beam_sent((unsigned)i + 1, "frames"));
                assert_int_equal(count_of(bed_name(ROLE_ROS, i), fragments_absent),
                                 beam_sent((unsigned)i + 1, "missed") + beam_sent((unsigned)i + 1, "outage"));
        }
        assert_int_equal(beam.fragments, beam_sent(0, "frames"));
}

TEST_EACH(missed_and_late_frames_cost_no_other, tcp, 2)
{
        BED(1, BEAM, tcp ? BEAM_TCP : BEAM_UDP, "trigger.events=3000", "ros.event-number=8:16",
            "sfi.timeout=16s", "sfi.credits=100");
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", boards_of(tcp), "--count", "3000", "--rate", "2kHz",
                 "--event-number", "8:16", "--fault", "missed=1%", "--fault", "late=2%:50ms");
        bed_ends("frontend", 0);
        bed_ends("dfm", 1);
        bed_check_accounts();
        assert_int_equal(count_of("dfm", events_complete) + count_of("dfm", events_partial), 3000);
        for (unsigned i = 1; i <= BEAM_BOARDS; i++)
                assert_true(beam_sent(i, "missed") > 0 && beam_sent(i, "late") > 0);
        check_numbered(tcp);
}

/* ---- With the trigger box ---- */

#define BOX "trigger.source=udp:27100", "trigger.busy-to=127.0.1.1:27101"
#define BOX_OPTIONS "--trigger-to", "127.0.0.1:27100", "--busy-from", "127.0.1.1:27101"

/* The DFM took exactly the triggers that the box sent. */
static void end_box(uint64_t n, int status)
{
        bed_ends("frontend", 0);
        bed_until(beam_ended() == n);
        beam_stop();
        bed_ends("dfm", status);
        assert_each(count_of, "dfm", triggers, n, triggers_offered, n);
        assert_int_equal(bed_reported("frontend", "triggers"), n);
        assert_int_equal(count_of("dfm", trigger_datagrams), bed_reported("frontend", "trigger_datagrams"));
        assert_int_equal(count_of("dfm", trigger_datagrams_lost) + count_of("dfm", triggers_refused), 0);
        assert_int_equal(count_of("dfm", trigger_resets), bed_reported("frontend", "resets") + 1);
        assert_true(bed_reported("frontend", "busy.datagrams") > 0);
        assert_int_equal(bed_reported("frontend", "busy.malformed"), 0);
}

/* However fast it is, because it obeys busy. The SFI builds nothing until the DFM is busy. */
TEST(a_fast_trigger_box_obeys_busy)
{
        uint64_t busy_ns;

        BED(1, BEAM, BEAM_UDP, BOX, "trigger.events=0", "sfi.credits=200");
        beam_begin(&beam, 0, 32);
        bed_until(bed_logged("dfm", "triggers begin"));
        busy_ns = count_of("dfm", busy_ns);
        bed_freeze("sfi1", true);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_UDP, BOX_OPTIONS, "--count", "20000", "--rate",
                 "poisson:50kHz");
        bed_until(count_of("dfm", busy_ns) > busy_ns);
        bed_pass(NS_PER_S);
        bed_freeze("sfi1", false);
        end_box(20000, 0);
        beam_check(&beam);
        assert_int_equal(count_of("dfm", events_complete), 20000);
        assert_true(bed_reported("frontend", "busy.changes") >= 2);
}

/* Missed and late frames, and a board that restarts: only a reset brings that one back. */
TEST_EACH(a_whole_beam, reset, 2)
{
        uint64_t used = 0;

        BED(1, BEAM, BEAM_UDP, BOX, "trigger.events=0", "ros.event-number=8:16", "sfi.timeout=8s");
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_UDP, BOX_OPTIONS, "--count", "4000", "--rate", "1kHz",
                 "--event-number", "8:16", "--fault", "missed=1%", "--fault", "late=2%:50ms", "--fault",
                 "restart=2:1s:500ms", "--fault", "skew=2ms", reset ? "--fault" : NULL, "reset=2500ms:9s");
        end_box(4000, 1);
        beam_check(&beam);
        beam_check_frames();
        for (unsigned i = 1; i <= BEAM_BOARDS; i++) {
                const char *ros = bed_name(ROLE_ROS, i - 1);
                uint64_t refused = count_of(ros, front_end_late) + count_of(ros, front_end_duplicate) +
                                   count_of(ros, front_end_impossible) + count_of(ros, front_end_left_over);
                /* The board that restarted at trigger 1000 has no valid frame until the reset. */
                uint64_t most = i == 2 ? (reset ? 2500 : 4000) - 1000 - beam_sent(i, "outage") + 50 : 0;

                assert_int_equal(refused + count_of(ros, front_end_used), beam_sent(i, "frames"));
                assert_int_equal(count_of(ros, front_end_dropped), 0);
                assert_true(refused <= most && refused + 150 >= most);
                assert_int_equal(count_of(ros, front_end_restarts), beam_sent(i, "restarts"));
                used += count_of(ros, front_end_used);
        }
        assert_int_equal(beam.fragments, used);
}

/* ---- Frames that make the triggers ---- */

#define FRAMES "ros.event-number=8:16", "trigger.source=frames", "trigger.events=0"

static uint64_t ended_frames(void)
{
        /* Numbers before the first one of a run, or after a reset, are not taken; their frames are left over.
         */
        return 3 * count_of("dfm", triggers_not_taken) + count_sum(ROLE_ROS, front_end_used) +
               count_sum(ROLE_ROS, front_end_late) + count_sum(ROLE_ROS, front_end_duplicate) +
               count_sum(ROLE_ROS, front_end_impossible) + count_sum(ROLE_ROS, front_end_dropped);
}

static void end_frames(int status)
{
        uint64_t sent;

        bed_ends("frontend", 0);
        sent = beam_sent(0, "frames");
        bed_until(ended_frames() >= sent);
        beam_stop();
        bed_ends("dfm", status);
        assert_int_equal(count_of("dfm", triggers_refused) + count_of("dfm", triggers_implausible), 0);
        assert_int_equal(count_of("dfm", numbers_announced), count_of("dfm", triggers_offered) +
                                                                     count_of("dfm", numbers_confirmed) +
                                                                     count_of("dfm", numbers_late));
        beam_check(&beam);
}

/* Each number that a board sends is one event, with all frames that have it. */
TEST_EACH(each_number_is_an_event, i, 4)
{
        bool tcp = is_tcp(i);

        BED(1, BEAM, FRAMES, tcp ? BEAM_TCP : BEAM_UDP, bed_mode(i / 2), "sfi.timeout=10s");
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", boards_of(tcp), "--event-number", "8:16", "--count", "3000",
                 "--rate", "2kHz", "--fault", "missed=1%", "--fault", "late=2%:50ms");
        end_frames(1);
        assert_each(count_of, "dfm", triggers, 3000, triggers_offered, 3000);
        assert_int_equal(count_of("dfm", events_complete) + count_of("dfm", events_partial), 3000);
        assert_true(count_of("dfm", events_complete) < 3000);
        assert_true(count_of("dfm", events_complete) + beam_sent(0, "missed") >= 3000);
        check_numbered(tcp);
}

/* They wait for credits. */
TEST(fast_boards_lose_nothing)
{
        BED(1, BEAM, FRAMES, BEAM_TCP, "sfi.credits=20", "test.buffer-events=300");
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_TCP, "--event-number", "8:16", "--count", "10000",
                 "--rate", "100kHz");
        end_frames(0);
        assert_each(count_of, "dfm", events_complete, 10000, triggers, 10000);
}

/* They count from 0 again: earlier events end, and the run continues. */
TEST(all_boards_are_reset)
{
        BED(1, BEAM, FRAMES, BEAM_TCP, "sfi.timeout=8s");
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_TCP, "--event-number", "8:16", "--count", "8000",
                 "--rate", "1kHz", "--size", "64", "--fault", "reset=4s:1s");
        end_frames(1);
        assert_int_equal(count_of("dfm", trigger_resets), 1);
        assert_int_equal(bed_reported("frontend", "resets"), 1);
        assert_true(count_of("dfm", events_complete) > 4000 && count_of("dfm", events_lost) == 0);
        for (size_t i = 0; i < BEAM_BOARDS; i++) {
                assert_int_equal(count_of(bed_name(ROLE_ROS, i), front_end_restarts), 1);
                assert_true(count_of(bed_name(ROLE_ROS, i), front_end_used) > 4000);
        }
}

/* Frames of other boards without one of the leader are left over. */
TEST(only_the_leader_makes_events)
{
        BED(1, BEAM, FRAMES, BEAM_UDP, "sfi.timeout=2s", "trigger.source=frames:ros2");
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_UDP, "--event-number", "8:16", "--count", "2000",
                 "--rate", "2kHz", "--fault", "restart=1:200ms:200ms");
        bed_ends("frontend", 0);
        bed_until(beam_ended() == 2000);
        beam_stop();
        beam_check(&beam);
        assert_int_equal(count_of("dfm", triggers), 2000);
        assert_each(count_of, "ros2", front_end_frames, 2000, front_end_used, 2000);
        assert_int_equal(count_of("dfm", numbers_confirmed) + count_of("dfm", triggers_not_taken), 0);
}

/* Frames that come in a pause wait. A stop ends the pause. */
TEST_EACH(frames_of_a_pause_become_events_at_a_stop, i, 4)
{
        uint64_t before;

        BED(1 + i, BEAM, FRAMES, i % 2 ? BEAM_TCP : BEAM_UDP, bed_mode(i / 2), CONTROL);
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", boards_of(i % 2), "--event-number", "8:16", "--count", "700",
                 "--rate", "500Hz");
        bed_until(count_of("dfm", events_complete) > 100);
        assert_int_equal(bed_ctl("pause", NULL), 0);
        before = count_of("dfm", triggers);
        bed_ends("frontend", 0);
        bed_until(count_sum(ROLE_ROS, front_end_frames) == 3 * 700);
        assert_int_equal(count_of("dfm", triggers), before);
        bed_stop("dfm", 0);
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++) {
                if (!bed_has_ended(bed_scenario()->nodes[k].name))
                        bed_signal(bed_scenario()->nodes[k].name, SIGTERM);
        }
        check_all_frames(700);
}

/* A new DFM gets no credits at first, so the numbers of frames wait. SFIs and ROSs that stop serve until
 * their events are built. */
TEST_EACH(all_nodes_stop_while_frames_wait, i, 8)
{
        uint64_t before;

        BED(1 + i, BEAM, FRAMES, i % 2 ? BEAM_TCP : BEAM_UDP, bed_mode(i / 2 % 2));
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", boards_of(i % 2), "--event-number", "8:16", "--rate", "500Hz");
        bed_until(count_of("dfm", events_complete) > 100);
        bed_kill("dfm");
        bed_pass(NS_PER_S);
        bed_start("dfm");
        bed_until(count_of("dfm", numbers_announced) > (i / 4) * 500);
        before = count_of("ros1", front_end_frames);
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++)
                bed_signal(bed_scenario()->nodes[k].name, SIGTERM);
        bed_signal("frontend", SIGINT);
        bed_ends("frontend", 0);
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++)
                bed_ends(bed_scenario()->nodes[k].name, 0);
        assert_true(count_of("dfm", triggers) >= before);
        assert_int_equal(count_of("dfm", triggers), count_of("dfm", events_complete));
}

/* ---- Runs of the same nodes while boards send ---- */

static uint64_t number_of(const char *node, size_t run, const char *field)
{
        json_t *o = bed_report_of_run(node, run);
        uint64_t n = (uint64_t)json_integer_value(json_object_get(o, field));

        json_decref(o);
        return n;
}

/* Each number from the first to the last one of a run is a complete event in it, and each frame was read in
 * one of the runs. */
static void check_runs(void)
{
        uint64_t frames = 0;

        for (size_t run = 0; run < 2; run++) {
                uint64_t triggers = number_of("dfm", run, "triggers");

                assert_int_equal(number_of("dfm", run, "events_complete"), triggers);
                assert_int_equal(number_of("dfm", run, "trigger_numbers_missing"), 0);
                for (size_t k = 0; k < BEAM_BOARDS; k++) {
                        assert_int_equal(number_of(bed_name(ROLE_ROS, k), run, "front_end_used"), triggers);
                        frames += number_of(bed_name(ROLE_ROS, k), run, "front_end_frames");
                }
        }
        assert_int_equal(frames, beam_sent(0, "frames"));
}

/* Boards that continue to send have frames before, between and after the runs. If the frames are counted,
 * those of the second run may be of different triggers: here, a board is later than another one. */
TEST_EACH(boards_send_between_two_runs, i, 3)
{
        bool counts = i == 1, silent = i == 2;

        BED(1 + i, BEAM, BEAM_UDP, CONTROL, "test.keep-alive=50ms", "trigger.events=0", "run.start=auto",
            i > 0 ? "ros.event-number=count" : "ros.event-number=8:16",
            i > 0 ? "trigger.source=internal" : "trigger.source=frames");
        beam_begin(&beam, 8, 16);
        for (int run = 0; run < 2; run++) {
                if (run == 0 || silent)
                        FRONTEND("frontend", "--boards", BEAM_BOARDS_UDP, "--event-number", "8:16", "--rate",
                                 "poisson:200Hz", "--fault", "skew=20ms");
                bed_until(count_of("dfm", events_complete) > 100);
                if (silent) {
                        bed_signal("frontend", SIGINT);
                        bed_ends("frontend", 0);
                        bed_pass(NS_PER_S);
                }
                assert_int_equal(bed_ctl(run == 0 ? "next-run" : "stop", "100s"), run == 1 && counts);
        }
        if (!silent)
                bed_signal("frontend", SIGINT);
        bed_ends("frontend", 0);
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++)
                bed_signal(bed_scenario()->nodes[k].name, SIGTERM);
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++)
                bed_ends(bed_scenario()->nodes[k].name, counts && k <= BEAM_BOARDS);
        assert_int_equal(beam.mixed > 0, counts);
        if (i == 0)
                check_runs();
}

/* The frames of a single board need not agree with any others. */
TEST(a_lone_board_sends_between_two_runs)
{
        RUN(1, BEAM_UDP, CONTROL, "test.keep-alive=50ms", "trigger.events=0", "run.start=auto",
            "ros.event-number=count",
            "[node dfm]\nrole=dfm\n[node ros1]\nrole=ros\n[node ros2]\nrole=ros\nsource=pattern\n"
            "[node sfi1]\nrole=sfi\n");
        FRONTEND("frontend", "--boards", "udp:127.0.0.10:27000", "--rate", "200Hz");
        for (int run = 0; run < 2; run++) {
                bed_until(count_of("dfm", events_complete) > 100);
                assert_int_equal(bed_ctl(run == 0 ? "next-run" : "stop", "100s"), 0);
        }
        bed_signal("frontend", SIGINT);
        bed_ends("frontend", 0);
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++)
                bed_signal(bed_scenario()->nodes[k].name, SIGTERM);
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++)
                bed_ends(bed_scenario()->nodes[k].name, 0);
}

/* Once frames of other boards come. Over UDP, no connection is missing. */
TEST(a_silent_leader_is_named)
{
        BED(1, BEAM, FRAMES, BEAM_UDP, "trigger.source=frames:ros2", "dfm.node-timeout=1s");
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_UDP, "--event-number", "8:16", "--rate", "500Hz",
                 "--fault", "dead=2");
        bed_until(bed_logged("dfm", "ros2 gets nothing from its front-end; it makes the triggers"));
        bed_signal("frontend", SIGINT);
        bed_ends("frontend", 0);
        beam_stop();
        assert_int_equal(count_of("dfm", triggers), 0);
}

/* A run is stopped while its DFM resumes it, or soon after that: frames that came while no DFM ran are in
 * events. */
TEST_EACH(a_stop_soon_after_a_restart_takes_what_came, i, 10)
{
        uint64_t came = UINT64_MAX;

        BED(1 + i, BEAM, FRAMES, BEAM_TCP, bed_mode(i % 2), "sfi.timeout=10s");
        beam_begin(&beam, 8, 16);
        FRONTEND("frontend", "--boards", BEAM_BOARDS_TCP, "--event-number", "8:16", "--rate", "500Hz");
        bed_until(count_of("dfm", events_complete) > 100);
        bed_kill("dfm");
        bed_pass(NS_PER_S);
        bed_start("dfm");
        bed_pass(NS_PER_MS + (uint64_t)i * 20 * NS_PER_MS);
        for (size_t k = 0; k < BEAM_BOARDS; k++)
                came = MIN(came, count_of(bed_name(ROLE_ROS, k), front_end_frames));
        bed_stop("dfm", 0);
        bed_check_accounts();
        beam_check(&beam);
        assert_true(count_of("dfm", events_complete) >= came);
        assert_each(count_of, "dfm", events_complete, count_of("dfm", triggers), triggers_not_taken, 0);
}
