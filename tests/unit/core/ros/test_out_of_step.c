/* Boards whose numbers do not follow the triggers, as they restarted. */
#include "numbered_driver.h"

#include "base/random.h"

/* The board counts from 0 again, at many places of the run: none of its frames is taken for another
 * trigger's. Within a few numbers of a wrap of its counter this could not be seen. */
TEST(frames_of_a_restarted_board_match_nothing)
{
        static const unsigned widths[] = {16, 24, 32};
        struct random random;

        random_init(&random, 11);
        for (int k = 0; k < 300; k++) {
                unsigned bits = widths[k % 3];
                struct ros_config c = numbered(bits);
                uint32_t at = 1000 + (uint32_t)random_below(&random, 63000), frames = 0;
                struct ros_driver t;

                ros_driver_init(&t, &c);
                for (uint32_t i = 0; i < 200; i++) {
                        trigger(&t, at + i, at + i);
                        if (i < 30) { /* then it restarts, and misses some triggers */
                                frame_comes(&t, at + i);
                                frames++;
                                assert_int_equal(ros_queued(t.ros, 0).jobs, i + 1);
                        } else if (i >= 40) {
                                frame_comes(&t, i - 40);
                                frames++;
                        }
                        if (i >= 50)
                                ros_gets_keep_alive(&t, RUN_RUNNING, at + i - 50, 7);
                }
                assert_int_equal(ros_counts(t.ros)->fragments_sent + ros_queued(t.ros, 0).jobs, 30);
                assert_int_equal(ros_counts(t.ros)->restarts, 1);
                assert_true(ros_is_out_of_step(t.ros));
                ros_driver_fini(&t);
        }
}

/* The events that it missed still wait for their frames, and its numbers fit them. */
NUMBERED_TEST_EACH(a_restarted_board_does_not_fill_open_events, gap, 2, 16)
{
        triggers_and_frames(t, 10);
        triggers(t, 10, 600);
        frames_come(t, gap ? 27 : 0, 100);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 10);
        assert_true(ros_is_out_of_step(t->ros));
}

/* A wrong first number, or frames of an earlier count, come before the first trigger: the board begins again,
 * and all frames since then are those of triggers. */
TEST(a_board_begins_again_before_the_first_trigger)
{
        for (unsigned before = 1; before < 40; before += 19) {
                for (unsigned bits = 16; bits <= 32; bits += 8) {
                        struct ros_config c = numbered(bits);
                        struct ros_driver t;

                        ros_driver_init(&t, &c);
                        frames_come(&t, 5030, before);
                        frames_come(&t, 0, 40);
                        triggers(&t, 0, 40);
                        assert_int_equal(ros_queued(t.ros, 0).jobs, 40);
                        assert_false(ros_is_out_of_step(t.ros));
                        ros_driver_fini(&t);
                }
        }
}

/* The frames that the new count overrules are from before the run, too. */
NUMBERED_TEST_EACH(a_board_that_begins_again_is_forgiven_all_frames, k, 2, 32)
{
        static const uint64_t overruled[] = {50, 3000};

        frames_come(t, 5030, 2);
        frame_comes(t, 5031);
        frames_come(t, overruled[k], 2);
        frames_come(t, 0, 40);
        triggers(t, 0, 40);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 40);
        assert_counts(ros_counts(t->ros), duplicate, 1, early_duplicate, 1, impossible, 2, early_impossible,
                      2);
}

/* Frames 10 to 15 waited for a newer one. A message about them has what was read of one. */
NUMBERED_TEST(rejected_frames_leave_a_sample, 16, c.number_from = 7)
{
        const struct ros_sample *s;

        for (uint32_t i = 0; i < 600; i++) {
                trigger(t, i, i);
                if (i < 10)
                        frame_comes(t, i + 7);
        }
        frames_come(t, 7, ROS_STRAYS_MAX);
        assert_int_equal(ros_counts(t->ros)->impossible, ROS_STRAYS_MAX - 10);
        s = &ros_samples(t->ros)->impossible;
        assert_true(s->has_counter);
        assert_in_range(s->counter, 17, 22);
        assert_int_equal(s->bytes, 1000);
}

/* A connection that was held up delivers all frames without a gap, and one that was broken the newest ones.
 */
/* Frames come long after their triggers, so the numbers of the new count are not much further behind. */
NUMBERED_TEST(a_restarted_board_that_lags_fills_no_open_event, 16)
{
        triggers(t, 0, 450);
        for (uint64_t i = 0; i < 100; i++) {
                trigger(t, 450 + i, (uint32_t)(450 + i));
                frame_comes(t, i);
        }
        frames_come(t, 0, 150); /* restarted: 100 to 149 fit events that are open */
        assert_int_equal(ros_queued(t->ros, 0).jobs, 100);
        assert_true(ros_is_out_of_step(t->ros));
}

NUMBERED_TEST(delayed_frames_are_not_those_of_a_restarted_board, 16, c.entries = 2000)
{
        triggers_and_frames(t, 10);
        triggers(t, 10, 600);
        frames_come(t, 11, 489);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 499);
        frames_come(t, 595, 5);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 504);
        assert_int_equal(ros_counts(t->ros)->restarts, 0);
}

/* Single late frames are good; a row of them means a restart, after which four frames must agree. */
NUMBERED_TEST(a_row_of_strays_means_a_restart, 32)
{
        triggers(t, 0, 80);
        frame_comes(t, 40);
        frames_come(t, 0, ROS_STRAYS_MAX - 1);
        assert_false(ros_is_out_of_step(t->ros));
        assert_ros_sends(t, 0, "e40[0,1000)");
        frame_comes(t, 41); /* they were only late */
        assert_int_equal(ros_queued(t->ros, 0).jobs, ROS_STRAYS_MAX);
        ros_sends(t, 0);
        frames_come(t, 15, ROS_STRAYS_MAX);
        assert_true(ros_is_out_of_step(t->ros));
        assert_int_equal(ros_counts(t->ros)->impossible, ROS_STRAYS_MAX);
        assert_ros_sends(t, 0, "");
        frames_come(t, 60, ROS_AGREEING_MIN - 1);
        frame_comes(t, UINT32_MAX / 2); /* interrupts the row */
        assert_true(ros_is_out_of_step(t->ros));
        frames_come(t, 60, ROS_AGREEING_MIN);
        assert_false(ros_is_out_of_step(t->ros));
        assert_int_equal(ros_queued(t->ros, 0).jobs, ROS_AGREEING_MIN);
        assert_int_equal(ros_counts(t->ros)->restarts, 1);
}

/* Nothing newer follows the last frame of a silent board. */
NUMBERED_TEST(a_last_late_frame_is_believed_in_time, 32)
{
        triggers(t, 0, 3);
        frame_comes(t, 2);
        frame_comes(t, 1);
        assert_ros_sends(t, 0, "e2[0,1000)");
        t->now_ns += c.wait_ns;
        ros_expire(t->ros, t->now_ns);
        assert_ros_sends(t, 0, "e0 pending | e1[0,1000)");
}

/* A board sends 0 to 6 without 5, restarts while event 5 is open, and counts from 0 again: its new frame 5 is
 * of another trigger, even if no newer frame comes before event 5 stops waiting. */
NUMBERED_TEST(a_restarted_board_does_not_fill_an_event_that_stops_waiting, 32)
{
        for (uint32_t i = 0; i < 7; i++) {
                trigger(t, i, i);
                if (i != 5)
                        frame_comes(t, i);
        }
        for (uint32_t i = 0; i < 6; i++) {
                trigger(t, 10 + i, 10 + i);
                frame_comes(t, i);
        }
        ros_sends(t, 0);
        t->now_ns += c.wait_ns;
        ros_expire(t->ros, t->now_ns);
        assert_ros_sends(t, 0,
                         "e5 pending | e10 pending | e11 pending | e12 pending | e13 pending | e14 pending | "
                         "e15 pending");
        assert_counts(ros_counts(t->ros), duplicate, 5, impossible, 1);
}

/* The first frames before the restart were lost, so no number is repeated; but the triggers after it have no
 * other frame. A board that delivers late has answered the newest trigger, or sends more frames than that. */
NUMBERED_TEST_EACH(a_frame_that_may_be_of_a_newer_trigger_fills_no_event, unanswered, 2, 32)
{
        static const char *const sends[] = {"e0 pending | e1[0,1000)",
                                            "e0 pending | e1 pending | e3 pending"};

        for (uint32_t i = 0; i < (unanswered ? 4 : 3); i++)
                trigger(t, i, i);
        frame_comes(t, 2);
        frame_comes(t, 1);
        ros_sends(t, 0);
        t->now_ns += c.wait_ns;
        ros_expire(t->ros, t->now_ns);
        assert_ros_sends(t, 0, sends[unanswered]);
        assert_int_equal(ros_counts(t->ros)->late, unanswered);
}

/* Soon after the beginning, all numbers of a restarted board are close to those of the triggers. */
TEST(a_board_may_restart_at_the_beginning)
{
        for (uint32_t before = 1; before < 40; before++) {
                for (uint32_t away = 0; away < 300; away += 7) {
                        struct ros_config c = numbered(16);
                        uint32_t next = before + away;
                        struct ros_driver t;

                        c.entries = 400;
                        ros_driver_init(&t, &c);
                        triggers_and_frames(&t, before);
                        triggers(&t, before, next);
                        for (uint32_t i = 0; i < 60; i++) {
                                trigger(&t, next + i, next + i);
                                frame_comes(&t, i);
                        }
                        assert_int_equal(ros_queued(t.ros, 0).jobs, before);
                        assert_true(ros_is_out_of_step(t.ros));
                        t.now_ns += c.wait_ns;
                        ros_expire(t.ros, t.now_ns);
                        assert_int_equal(ros_counts(t.ros)->used + ros_counts(t.ros)->left_over, before);
                        ros_driver_fini(&t);
                }
        }
}

/* A ROS restarts in a run of 400 triggers, of which 100 have ended. Its board has gone on, and its first
 * frames are of open events, but not of the newest trigger. */
static const struct {
        uint64_t oldest;
        uint32_t first; /* frame */
        bool is_out_of_step;
} cases[] = {
        {100, 200, false}, {100, 100, false}, {100, 99, false}, {100, 41, false},
        {100, 0, true},    {0, 200, true},    {15, 200, true},
};

NUMBERED_TEST_EACH(a_restarted_ros_believes_frames_of_open_events, k, ARRAY_SIZE(cases), 16, c.entries = 400)
{
        ros_gets_keep_alive(t, RUN_RUNNING, cases[k].oldest, 7);
        trigger(t, 399, 399); /* it receives the newest first */
        triggers(t, 200, 399);
        frames_come(t, cases[k].first, 60);
        assert_int_equal(ros_counts(t->ros)->restarts, cases[k].is_out_of_step);
        if (!cases[k].is_out_of_step) {
                assert_int_equal(ros_queued(t->ros, 0).jobs, cases[k].first == 200 ? 60 : 0);
                assert_int_equal(ros_counts(t->ros)->late, 100 - MIN(cases[k].first, 100u));
        }
}

/* A ROS joins a run at this trigger. The events before it have ended without the ROS. */
static void join_at(struct ros_driver *t, const struct ros_config *c, uint32_t l1_id)
{
        ros_driver_init(t, c);
        ros_gets_keep_alive(t, RUN_RUNNING, 5000, 7);
        trigger(t, 5000, l1_id);
}

/* The board has gone on, and its frames come this number of triggers late, or waited for the connection. None
 * is refused, and those of the events since the join are used. */
TEST(a_restarted_ros_refuses_no_frame_of_a_good_board)
{
        static const struct {
                uint32_t behind, waiting;
        } boards[] = {{1, 0}, {15, 0}, {16, 0}, {17, 0}, {100, 0}, {250, 0}, {3000, 3000}, {2000, 1900}};
        static const unsigned widths[] = {16, 24, 32, 64};
        static const uint32_t l1_ids[] = {5000, 0xffffffc0, 0x12345000};

        for (size_t k = 0; k < ARRAY_SIZE(boards) * ARRAY_SIZE(widths) * ARRAY_SIZE(l1_ids); k++) {
                const uint32_t behind = boards[k / 12].behind, l1_id = l1_ids[k / 4 % 3];
                struct ros_config c = numbered(widths[k % 4]);
                uint64_t next;
                struct ros_driver t;

                c.entries = 1000;
                c.number_from = 7;
                join_at(&t, &c, l1_id);
                next = (uint64_t)l1_id - behind + 7;
                for (uint32_t i = 0; i < boards[k / 12].waiting; i++, next++)
                        frame_comes(&t, next);
                for (uint32_t i = 1; i < 400; i++, next++) {
                        trigger(&t, 5000 + i, l1_id + i);
                        frame_comes(&t, next);
                }
                assert_counts(ros_counts(t.ros), restarts, 0, impossible, 0, late, behind);
                assert_int_equal(ros_queued(t.ros, 0).jobs, next - 7 - l1_id);
                ros_driver_fini(&t);
        }
}

/* It counts from 0, or began to when the ROS was not there yet. No event has one of its frames. */
static const uint32_t frames[] = {0, 10, 100, 2000, 4600};

ROS_TEST_EACH_AS(a_restarted_ros_finds_a_restarted_board, k, ARRAY_SIZE(frames), numbered(16),
                 join_at(t, &c, 5000), c.entries = 1000)
{
        for (uint32_t i = 1; i < 300; i++) {
                trigger(t, 5000 + i, 5000 + i);
                frame_comes(t, frames[k] + i);
                assert_int_equal(ros_is_out_of_step(t->ros), i >= (k < 2 ? 16 : 64));
        }
        assert_counts(ros_counts(t->ros), restarts, 1, late, k < 2 ? 0 : 48);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 0);
}

/* The network repeats single datagrams: the board counts on. */
NUMBERED_TEST(a_repeated_frame_is_no_restart, 16)
{
        for (uint32_t i = 0; i < 90; i++) {
                trigger(t, i, i);
                frame_comes(t, i);
                if (i % 10 == 9)
                        frames_come(t, i - 3, 3);
        }
        assert_int_equal(ros_queued(t->ros, 0).jobs, 90);
        assert_counts(ros_counts(t->ros), duplicate, 27, restarts, 0);
}

/* A bit of one number is wrong. Triggers are known before the frames, or after them. */
TEST(one_number_far_ahead_costs_only_its_frame)
{
        static const uint32_t ahead[] = {17, 18, 32, 64, 128, 256, 4096, 5000, 1u << 19};
        static const unsigned widths[] = {16, 32};

        for (size_t k = 0; k < 2 * ARRAY_SIZE(ahead) * ARRAY_SIZE(widths); k++) {
                bool early = k % 2;
                uint32_t by = ahead[k / 2 % ARRAY_SIZE(ahead)], n = 400;
                unsigned bits = widths[k / 2 / ARRAY_SIZE(ahead)];
                struct ros_config c = numbered(bits);
                struct ros_driver t;

                if (bits == 16 && by > 256)
                        continue; /* impossible at once */
                c.entries = 1000;
                ros_driver_init(&t, &c);
                trigger(&t, 0, 0);
                for (uint32_t i = 0; i < n; i++) {
                        if (!early && i > 0)
                                trigger(&t, i, i);
                        frame_comes(&t, i == 100 ? i + by : i);
                        if (early && i > 0)
                                trigger(&t, i, i);
                }
                assert_counts(ros_counts(t.ros), restarts, 0, impossible, 1, duplicate, 0);
                assert_int_equal(ros_queued(t.ros, 0).jobs, n - 1);
                ros_driver_fini(&t);
        }
}

/* Any bit of single numbers, whether frames come before their triggers or after them. */
TEST(single_wrong_bits_put_no_board_out_of_step)
{
        struct random random;

        random_init(&random, 5);
        for (int k = 0; k < 300; k++) {
                const uint32_t n = 500, from = 1000 + (uint32_t)random_below(&random, 1u << 20);
                const uint32_t lag = (uint32_t)random_below(&random, 60);
                struct ros_config c = numbered(32);
                uint32_t wrong = 0, last = 0, behind = k % 2 ? lag : 0, ahead = lag - behind;
                struct ros_driver t;

                c.entries = 1000;
                ros_driver_init(&t, &c);
                for (uint32_t i = 0; i < n + lag; i++) {
                        uint32_t frame = i - behind, flipped = 0;

                        if (i >= ahead && i - ahead < n)
                                trigger(&t, i - ahead, from + i - ahead);
                        if (frame >= n)
                                continue;
                        if (frame >= last + 40 && random_below(&random, 30) == 0) {
                                flipped = 1u << random_below(&random, 32);
                                last = frame;
                                wrong++;
                        }
                        frame_comes(&t, (from + frame) ^ flipped);
                }
                assert_int_equal(ros_counts(t.ros)->restarts, 0);
                /* A frame that takes the place of another one costs that one, too. */
                assert_true(ros_queued(t.ros, 0).jobs + 2 * wrong >= n);
                ros_driver_fini(&t);
        }
}

/* It is the first one, or its board also repeats its first number. */
NUMBERED_TEST_EACH(one_wrong_number_at_the_beginning_costs_only_its_frame, repeats, 2, 32, c.entries = 400)
{
        if (repeats)
                trigger(t, 0, 0);
        if (repeats)
                frame_comes(t, 0);
        frame_comes(t, 100000);
        for (uint32_t i = 0; i < 200; i++) {
                if (i > 0 || !repeats)
                        trigger(t, i, i);
                frame_comes(t, i);
        }
        assert_counts(ros_counts(t->ros), restarts, 0, impossible, 1, duplicate, repeats);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 200);
}

/* The triggers are known, and the wrong number is that of an open event: its frame is used there, and no
 * other one is lost but that of this event. */
NUMBERED_TEST(one_wrong_number_of_an_open_event_refuses_no_row, 32, c.entries = 1000)
{
        triggers(t, 0, 300);
        for (uint32_t i = 0; i < 300; i++)
                frame_comes(t, i == 100 ? 164 : i);
        assert_counts(ros_counts(t->ros), restarts, 0, duplicate, 1);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 299);
}

/* The network delivers a late frame just behind a true leap: the board missed triggers. */
NUMBERED_TEST(a_leap_that_the_board_follows_is_believed, 32, c.entries = 1000)
{
        triggers_and_frames(t, 50);
        frame_comes(t, 500);
        frame_comes(t, 50);
        frames_come(t, 501, 20);
        triggers(t, 50, 521);
        assert_counts(ros_counts(t->ros), restarts, 0, impossible, 0);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 50 + 22);
}

/* Once the board has been out of step for as long as a frame may take, events end without it at once. */
NUMBERED_TEST(events_do_not_wait_for_a_board_that_is_out_of_step, 32)
{
        trigger(t, 0, 5000000);
        frame_comes(t, 5000000);
        ros_sends(t, 0);
        frames_come(t, 0, ROS_STRAYS_MAX);
        ros_expire(t->ros, t->now_ns);
        trigger(t, 1, 5000001);
        assert_ros_sends(t, 0, "");
        t->now_ns += c.wait_ns;
        ros_expire(t->ros, t->now_ns);
        assert_ros_sends(t, 0, "e1 pending");
        trigger(t, 2, 5000002);
        assert_ros_sends(t, 0, "e2 pending");
        /* The counters of all are reset: the board is in step again. */
        ros_resynchronise(t->ros, 3, 0);
        ros_resynchronise(t->ros, 3, 0);
        assert_false(ros_is_out_of_step(t->ros));
        trigger(t, 3, 0);
        frame_comes(t, 0);
        frame_comes(t, 1);
        trigger(t, 4, 1);
        assert_ros_sends(t, 0, "e3[0,1000) | e4[0,1000)");
}

/* A slow board still sends frames of the previous run, before the first trigger or after it. */
NUMBERED_TEST_EACH(frames_of_the_previous_run_are_in_no_event, after, 2, 32, c.entries = 1000)
{
        if (!after)
                frames_come(t, 180, 20);
        for (uint32_t i = 0; i < 400; i++) {
                trigger(t, i, i);
                frame_comes(t, i);
                if (after && i == 5)
                        frames_come(t, 180, 20);
        }
        while (ros_queued(t->ros, 0).jobs > 0)
                ros_sends(t, 0);
        ros_gets_keep_alive(t, RUN_ENDED, 400, 7);
        assert_counts(ros_counts(t->ros), used, 400 - ROS_STRAYS_MAX, impossible, ROS_STRAYS_MAX, left_over,
                      20, restarts, 1);
}
