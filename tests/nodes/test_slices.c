/* Frames with times, in slices of time: each frame is in its slice, whatever the boards of others do. */
#include "beam.h"
#include "protocol/trigger_packet.h"

#define SLICES                                                                                               \
        "trigger.source=clock:20ms within 4s", "ros.event-time=0:64", "ros.tick=1ms", "trigger.events=0"
#define SLICE_TICKS 20
#define TICKS_MAX 20000

/* Frames of each board by their tick: how often they are in their own slice, and in the one after it. */
static struct found {
        uint8_t own[BEAM_BOARDS + 1][TICKS_MAX], copied[BEAM_BOARDS + 1][TICKS_MAX];
        bool slices[TICKS_MAX / SLICE_TICKS + 1];
        uint64_t n_own, misplaced;
} found;

static void add_frame(uint64_t slice, uint64_t tick, uint64_t board)
{
        bool is_own = tick / SLICE_TICKS == slice, is_copied = tick / SLICE_TICKS + 1 == slice;

        if (tick >= TICKS_MAX || board > BEAM_BOARDS || !(is_own || is_copied)) {
                found.misplaced++;
                return;
        }
        found.own[board][tick] += is_own;
        found.copied[board][tick] += is_copied;
        found.n_own += is_own;
}

/* A frame begins with its tick, and ends as of `evb frontend`, or with its board alone. */
static void look(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        if (built->info.global_id < ARRAY_SIZE(found.slices))
                found.slices[built->info.global_id] = true;
        for (int i = 0; i < BEAM_BOARDS; i++) {
                const struct sfi_fragment *f = &built->fragments[i];
                const uint8_t *at = buffer + f->at;
                uint32_t length, board;
                uint64_t tick;

                if (!f->whole || f->bytes == 0 || f->at == ARENA_NONE)
                        continue;
                for (; at < buffer + f->at + f->bytes; at += sizeof length + length) {
                        memcpy(&length, at, sizeof length);
                        memcpy(&tick, at + sizeof length, sizeof tick);
                        memcpy(&board, at + sizeof length + length - (length > 12 ? 8 : 4), sizeof board);
                        add_frame(built->info.global_id, tick, board);
                }
        }
}

static void begin(void)
{
        memset(&found, 0, sizeof found);
        bed_each_event(look, NULL);
        bed_start_all();
        bed_pass(10 * NS_PER_MS);
}

static uint64_t ended_frames(void)
{
        return count_sum(ROLE_ROS, slice_frames_used) + count_sum(ROLE_ROS, slice_frames_late) +
               count_sum(ROLE_ROS, slice_frames_dropped);
}

static void check_found(void)
{
        assert_int_equal(found.misplaced, 0);
        for (int b = 1; b <= BEAM_BOARDS; b++) {
                for (int t = 0; t < TICKS_MAX; t++)
                        assert_true(found.own[b][t] <= 1 && found.copied[b][t] <= 1);
        }
}

/* Slices of 20 ms, 20 counts of 1 ms, of which the last 4 are in the next slice too. */
TEST_EACH(each_frame_is_in_its_slice, tcp, 2)
{
        uint64_t sent;

        BED(1, BEAM, SLICES, tcp ? BEAM_TCP : BEAM_UDP, "trigger.source=clock:20ms+4ms");
        begin();
        FRONTEND("frontend", "--boards", tcp ? BEAM_BOARDS_TCP : BEAM_BOARDS_UDP, "--count", "3000", "--rate",
                 "1kHz", "--event-number", "0:64", "--fault", "missed=1%", "--fault", "late=2%:30ms");
        bed_ends("frontend", 0);
        sent = beam_sent(0, "frames");
        bed_until(ended_frames() == sent);
        bed_until(count_of("dfm", events_complete) >= count_of("ros1", front_end_frames));
        bed_stop_run(0);
        bed_check_complete();
        check_found();
        for (size_t i = 0; bed_name(ROLE_ROS, i); i++) {
                const char *ros = bed_name(ROLE_ROS, i);

                assert_int_equal(count_of(ros, slice_frames_used) + count_of(ros, slice_frames_late),
                                 count_of(ros, slice_frames));
        }
        assert_int_equal(found.n_own, count_sum(ROLE_ROS, slice_frames_used));
        assert_true(found.n_own > sent - 3 * 100);
        for (int b = 1; b <= BEAM_BOARDS; b++) {
                for (int t = 0; t < TICKS_MAX; t++)
                        assert_int_equal(found.copied[b][t],
                                         t % 20 >= 16 && found.own[b][t] && found.slices[t / 20 + 1]);
        }
}

/* In a pause, slices wait for room in the ROSs. A stop ends the pause. */
TEST(slices_without_room_become_events_at_a_stop)
{
        uint64_t before;

        BED(1, BEAM, SLICES, BEAM_UDP, CONTROL, "trigger.source=clock:20ms", "ros.wait=1s",
            "test.buffer-events=16");
        begin();
        FRONTEND("frontend", "--boards", BEAM_BOARDS_UDP, "--count", "2000", "--rate", "1kHz",
                 "--event-number", "0:64");
        bed_until(count_of("dfm", events_complete) > 10);
        assert_int_equal(bed_ctl("pause", NULL), 0);
        before = count_of("dfm", triggers);
        bed_ends("frontend", 0);
        bed_until(count_sum(ROLE_ROS, slice_frames) == 3 * 2000);
        bed_pass(3 * NS_PER_S);
        assert_int_equal(count_of("dfm", triggers), before);
        bed_stop("dfm", 0);
        bed_check_complete();
        check_found();
        assert_int_equal(found.n_own, 3 * 2000);
        assert_int_equal(count_sum(ROLE_ROS, slice_frames_used), 3 * 2000);
}

#define SLICES_BEAM SLICES, "trigger.rate=max", "sfi.timeout=30s", "dfm.node-timeout=5s"

/* The third board may be missing, and has a place of its own. */
#define NODES(third)                                                                                         \
        "[node dfm]\nrole=dfm\n[node ros1]\nrole=ros\n[node ros2]\nrole=ros\n"                               \
        "[node ros3]\nrole=ros\n" third "[node sfi1]\nrole=sfi\n"
#define OPTIONAL "required=no\nwait=300ms\n"

/* A dead board costs its fragment: the slices close with those of the others, and hold every frame of
 * theirs. */
TEST_EACH(a_dead_board_costs_its_fragment, i, 3)
{
        bool tcp = i == 1, required = i == 2;
        uint64_t used;

        if (required)
                BED(1, SLICES_BEAM, BEAM_UDP, NODES(""));
        else
                BED(1, SLICES_BEAM, tcp ? BEAM_TCP : BEAM_UDP,
                    tcp ? NODES(OPTIONAL "source=tcp:127.0.1.1:27003\n") : NODES(OPTIONAL));
        begin();
        FRONTEND("frontend", "--boards",
                 tcp ? "tcp:127.0.1.1:27000,tcp:127.0.1.1:27000,tcp:127.0.1.1:27003" : BEAM_BOARDS_UDP,
                 "--count", "5000", "--rate", "1kHz", "--event-number", "0:64", "--fault", "dead=3");
        bed_ends("frontend", 0);
        bed_until(ended_frames() == 10000);
        bed_until((required ? count_of("dfm", events_partial) : count_of("dfm", events_complete)) >= 250);
        bed_stop("dfm", required);
        bed_check_accounts();
        assert_true(bed_logged("dfm",
                               "ros3 gets nothing from its front-end; events go on without its fragments"));
        assert_int_equal(required ? count_of("dfm", events_partial) : count_of("dfm", events_complete),
                         count_of("dfm", triggers));
        assert_int_equal(required ? count_of("dfm", fragments_lost) : count_of("dfm", fragments_optional),
                         count_of("dfm", triggers));
        assert_int_equal(count_of("ros3", slice_frames) + count_of("ros3", front_end_frames), 0);
        check_found();
        used = count_of("ros1", slice_frames_used) + count_of("ros2", slice_frames_used);
        assert_int_equal(found.n_own, used);
        assert_int_equal(beam_sent(0, "frames"), 10000);
}

/* ---- Boards of the test, which send a frame for each tick of their common clock ---- */

static struct ticks {
        bool quiet, over; /* quiet: the third board */
        uint64_t ahead;   /* by which the clock of the second board is */
        uint64_t tick;
        uint64_t sent;
        uint64_t drift_ppm; /* of the second board */
} ticks;

static void send_tick(int board, uint64_t tick)
{
        uint8_t frame[16] = {12};

        memcpy(frame + 4, &tick, 8);
        frame[12] = (uint8_t)board;
        bed_send_datagram(bed_name(ROLE_ROS, (size_t)board - 1), 27000, frame, sizeof frame);
}

static void turn(void *ctx)
{
        for (int b = 1; !ticks.over && b <= BEAM_BOARDS; b++) {
                if (b == 3 && ticks.quiet)
                        continue;
                send_tick(b, ticks.tick + (b == 2 ? ticks.ahead : 0));
                ticks.sent++;
        }
        ticks.tick++;
}

/* Counts of 1 us; a frame each 10 ms. */
static void turn_drifting(void *ctx)
{
        ticks.tick += 1000;
        for (int b = 1; !ticks.over && b <= BEAM_BOARDS && ticks.tick % 10000 == 0; b++) {
                send_tick(b,
                          ticks.tick + (b == 2 ? ticks.ahead + ticks.tick * ticks.drift_ppm / 1000000 : 0));
                ticks.sent++;
        }
}

static void begin_ticks(void)
{
        begin();
        ticks = (struct ticks){.tick = 1000};
        bed_each_ms(turn, NULL);
}

/* It costs its fragments after a while; when it sends again, they are in the slices again. */
TEST(a_board_falls_silent_and_returns)
{
        uint64_t used, late;

        BED(1, SLICES_BEAM, BEAM_UDP, NODES(OPTIONAL));
        begin_ticks();
        bed_until(count_of("dfm", events_complete) > 30);
        ticks.quiet = true;
        bed_until(count_of("dfm", fragments_optional) > 30);
        used = count_of("ros3", slice_frames_used);
        ticks.quiet = false;
        bed_until(count_of("ros3", slice_frames_used) > used + 1000);
        ticks.over = true;
        bed_until(ended_frames() == ticks.sent);
        bed_stop("dfm", 0);
        bed_check_complete();
        assert_true(bed_logged("dfm", "ros3 gets nothing from its front-end"));
        assert_true(bed_logged("dfm", "the front-end of ros3 is back"));
        assert_true(count_of("dfm", fragments_optional) > 30 &&
                    count_of("dfm", fragments_optional) < count_of("dfm", triggers));
        check_found();
        /* A slice of the board may have reached the SFI after its event was built, when the board sent again.
         * The ROS did not know that it had been. */
        used = count_sum(ROLE_ROS, slice_frames_used);
        late = count_of("sfi1", fragments_late);
        assert_true(found.n_own <= used && found.n_own + SLICE_TICKS * late >= used);
}

/* It is lost: it is counted and logged, and the run falls short. */
TEST(a_frame_of_a_closed_slice_is_late)
{
        BED(1, SLICES_BEAM, BEAM_UDP, NODES(""));
        begin_ticks();
        bed_until(count_of("dfm", events_complete) > 30);
        ticks.over = true;
        send_tick(1, 1000);
        bed_until(count_sum(ROLE_ROS, slice_frames_used) == ticks.sent);
        bed_until(count_of("ros1", slice_frames_late) == 1);
        bed_signal("dfm", SIGTERM);
        bed_ends("ros1", 1);
        bed_until(bed_has_ended("dfm"));
        assert_int_equal(count_of("dfm", events_complete), count_of("dfm", triggers));
        assert_true(bed_logged("ros1", "came after its slice of time 50 was closed"));
        assert_true(bed_has_reason("ros1", "frames with times were lost"));
}

/* A single frame whose time leaps ahead does not count as a frame from after the end of the run. */
TEST(a_frame_that_leaps_ahead_is_dropped)
{
        BED(1, SLICES_BEAM, BEAM_UDP, NODES(""));
        begin_ticks();
        bed_until(count_of("dfm", events_complete) > 30);
        send_tick(1, ticks.tick + 30000);
        bed_until(count_of("dfm", events_complete) > 60);
        bed_signal("dfm", SIGTERM);
        bed_ends("ros1", 1);
        bed_until(bed_has_ended("dfm"));
        assert_int_equal(count_of("dfm", events_complete), count_of("dfm", triggers));
        assert_each(count_of, "ros1", slice_frames_dropped, 1, slice_frames_late, 0);
        assert_true(bed_logged("ros1", "the time of a frame is 30.00"));
        assert_true(bed_has_reason("ros1", "ahead of those that its board had come to at the end: 1"));
        assert_true(bed_has_reason("dfm", "ros1"));
}

/* A clock that is ahead of the others, by 100 s or 10 s. */
TEST_EACH(a_clock_that_is_ahead_is_named, i, 2)
{
        const char *text =
                i ? "the times of the frames of ros2 are 10.0" : "the times of the frames of ros2 are 100.0";

        BED(1, SLICES_BEAM, BEAM_UDP, "ros.wait=1s", NODES(""));
        begin_ticks();
        ticks.ahead = i ? 10000 : 100000;
        bed_until(bed_logged("dfm", text));
        bed_until(count_of("dfm", events_partial) > 30);
        bed_stop("dfm", 1);
        assert_true(bed_has_reason("dfm", text));
        assert_true(bed_has_reason("dfm", "ahead of those of ros1: the clocks of their boards differ"));
        assert_int_equal(count_of("dfm", events_partial), count_of("dfm", triggers));
        if (i == 0)
                assert_int_equal(count_of("ros2", slice_frames_used), 0);
}

/* Three boards, of which the second one gains 48 us in a second: its clock is measured, and so is how far it
 * is ahead. Status and metrics have both. */
TEST(the_drift_of_a_clock_is_measured)
{
        BED(1, SLICES_BEAM, BEAM_UDP, NODES(""), "ros.tick=1us", "trigger.source=clock:20ms within 1s");
        begin();
        ticks = (struct ticks){.tick = 1000, .drift_ppm = 48, .ahead = 250000};
        bed_each_ms(turn_drifting, NULL);
        bed_pass(100 * NS_PER_S);
        bed_until(count_of("ros2", board_clock_known) == 1);
        assert_in_range(count_of("ros2", board_drift_ppb), 43000, 53000);
        assert_in_range(count_of("ros1", board_drift_ppb) + 5000, 0, 10000);
        assert_in_range((count_of("ros2", board_ahead_ns) - count_of("ros1", board_ahead_ns)) / NS_PER_US,
                        250000 + 48 * 100 - 500, 250000 + 48 * 100 + 500);
        assert_true(bed_logged("ros2", "the clock of its board gains +48."));
        ticks.over = true;
        bed_stop("dfm", 0);
}

/* Whether each frame is in the slice in which it was sent, although the clock of its board drifts. The drift
 * is known after half a minute. */
static void look_at_drift(void *ctx, const struct sfi_built *built, const uint8_t *buffer)
{
        for (int i = 0; i < BEAM_BOARDS; i++) {
                const struct sfi_fragment *f = &built->fragments[i];

                if (!f->whole || f->bytes == 0 || f->at == ARENA_NONE || built->info.global_id < 60 * 50)
                        continue;
                for (uint32_t at = 0; at < f->bytes; at += 16) {
                        uint64_t tick, sent;

                        memcpy(&tick, buffer + f->at + at + 4, sizeof tick);
                        sent = i == 1 ? tick * 1000000 / (1000000 + ticks.drift_ppm) : tick;
                        found.n_own++;
                        /* Within 1.5 ms of 20 ms. */
                        found.misplaced += sent + 1500 < built->info.global_id * 20000 ||
                                           sent >= (built->info.global_id + 1) * 20000 + 1500;
                        /* By the board's clock, it is that of another slice. */
                        found.own[i + 1][0] +=
                                tick / 20000 != built->info.global_id && found.own[i + 1][0] < 99;
                }
        }
}

/* In 100 s, the clock of the second board gains 30 ms, one and a half slices. */
TEST(the_drift_of_a_clock_is_followed)
{
        BED(1, SLICES_BEAM, BEAM_UDP, NODES("event-time=0:64 follow\n"), "ros.tick=1us",
            "ros.event-time=0:64 follow", "trigger.source=clock:20ms within 1s");
        begin();
        bed_each_event(look_at_drift, NULL);
        ticks = (struct ticks){.tick = 1000, .drift_ppm = 300};
        bed_each_ms(turn_drifting, NULL);
        bed_pass(100 * NS_PER_S);
        ticks.over = true;
        bed_stop("dfm", 0);
        bed_check_complete();
        assert_int_equal(found.misplaced, 0);
        assert_true(found.n_own > 3 * 3700);
        assert_true(found.own[1][0] == 0 && found.own[2][0] == 99 && found.own[3][0] == 0);
        assert_int_equal(count_sum(ROLE_ROS, slice_frames_late), 0);
}

/* ---- A board that keeps its frames for a while, whatever makes the triggers ---- */

#define TICKS_KEPT 2000
#define TICKS_SENT 4000

static void send_trigger(uint32_t tick)
{
        uint8_t datagram[TRIGGER_PACKET_HEADER_BYTES + TRIGGER_ENTRY_BYTES] = "EVBT\1\0\1";

        memcpy(datagram + 8, &tick, sizeof tick);
        memcpy(datagram + TRIGGER_PACKET_HEADER_BYTES, &tick, sizeof tick);
        bed_send_datagram("dfm", 47200, datagram, sizeof datagram);
}

/* The third board begins to keep its frames at an eighth of the run. It sends them a little faster than
 * usual. */
static void turn_keeping(void *ctx)
{
        const bool *boxed = ctx;
        uint64_t tick = ticks.tick;

        if (tick < TICKS_SENT) {
                if (*boxed)
                        send_trigger((uint32_t)tick);
                send_tick(1, tick);
                send_tick(2, tick);
                ticks.tick++;
        }
        if (tick >= TICKS_SENT / 8 && tick < TICKS_SENT / 8 + TICKS_KEPT)
                return;
        for (int i = 0; i < 20 && ticks.sent < ticks.tick; i++)
                send_tick(3, ticks.sent++);
}

/* In pull, no SFI requests fragments of a ROS that is left out, so the ROS does not receive these triggers.
 * But they were taken, so the frames that come after their events are late. */
TEST_EACH(frames_that_a_board_kept_are_late, i, 4)
{
        static const char *const sources[] = {"trigger.source=clock:20ms within 200ms",
                                              "trigger.source=internal", "trigger.source=frames:ros1",
                                              "trigger.source=udp:47200"};
        bool slices = i == 0, internal = i == 1, boxed = i == 3;

        BED(1, "sfi.timeout=30s", "dfm.node-timeout=5s", BEAM_UDP, NODES(OPTIONAL), bed_mode(1), sources[i],
            slices ? "ros.event-time=0:64" : "ros.event-number=0:64", slices ? "ros.tick=1ms" : "ros.wait=8s",
            internal ? "trigger.events=4000" : "trigger.events=0",
            internal ? "trigger.rate=1kHz" : "trigger.rate=max");
        begin();
        if (!internal)
                bed_pass(NS_PER_S);
        ticks = (struct ticks){};
        bed_each_ms(turn_keeping, &boxed);
        bed_until(ticks.sent == TICKS_SENT);
        if (!internal) {
                bed_pass(5 * NS_PER_S);
                bed_signal("dfm", SIGTERM);
        }
        bed_ends("dfm", 0);
        bed_until(bed_has_ended("ros3"));
        if (slices)
                assert_each(count_of, "ros3", slice_frames, TICKS_SENT, slice_frames_left_over, 0,
                            slice_frames_dropped, 0);
        else
                assert_int_equal(count_of("ros3", front_end_frames), TICKS_SENT);
        assert_each(count_of, "ros3", front_end_left_over, 0, front_end_impossible, 0, front_end_dropped, 0,
                    front_end_duplicate, 0);
        assert_true((slices ? count_of("ros3", slice_frames_late) : count_of("ros3", front_end_late)) >
                    TICKS_KEPT / 2);
}
