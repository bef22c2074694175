/* Resets of the counters of all boards: numbers before and after it do not mix. */
#include "numbered_driver.h"

/* At a reset, frames and requests of the triggers before it may still be on their way. */
NUMBERED_TEST(a_reset_does_not_mix_old_and_new_numbers, 24)
{
        for (uint64_t event = 0; event < 10; event++)
                trigger(t, event, 1000 + (uint32_t)event);
        frames_come(t, 1000, 8);
        ros_sends(t, 0);
        ros_resynchronise(t->ros, 12, 0);
        frame_comes(t, 1008);
        assert_ros_sends(t, 0, "e8[0,1000)");
        trigger(t, 10, 1010); /* an announcement was lost: the SFI requests it */
        trigger(t, 12, 0);
        frame_comes(t, 1010);
        frame_comes(t, 0);
        assert_ros_sends(t, 0, "e10[0,1000) | e12[0,1000)");
        for (uint64_t i = 1; i < 1020; i++) {
                trigger(t, 12 + i, (uint32_t)i);
                frame_comes(t, i);
                assert_int_equal(ros_queued(t->ros, 0).jobs, 1);
                ros_sends(t, 0);
                ros_gets_keep_alive(t, RUN_RUNNING, 12 + i, 7);
        }
}

/* The counters need not begin at 0, and a frame may come before the first trigger. */
static const uint32_t firsts[] = {0, 1, 70000, 0xfffffff0};

NUMBERED_TEST_EACH(a_reset_may_begin_at_any_number, k, ARRAY_SIZE(firsts), 16)
{
        triggers_and_frames(t, 5);
        ros_sends(t, 0);
        ros_gets_clears(t, 0, 5);
        ros_resynchronise(t->ros, 5, firsts[k]);
        frame_comes(t, firsts[k] & 0xffff);
        frame_comes(t, (firsts[k] + 1) & 0xffff);
        trigger(t, 5, firsts[k]);
        trigger(t, 6, firsts[k] + 1);
        assert_ros_sends(t, 0, "e5[0,1000) | e6[0,1000)");
}

/* A trigger box resets the counters once more, before a trigger came: frames of the reset before do not
 * match. */
NUMBERED_TEST(a_reset_follows_another_one, 24)
{
        triggers_and_frames(t, 3);
        ros_sends(t, 0);
        ros_gets_clears(t, 0, 3);
        ros_resynchronise(t->ros, 3, 0);
        frames_come(t, 0, 4);
        ros_resynchronise(t->ros, 3, 0);
        trigger(t, 3, 0);
        assert_ros_sends(t, 0, "");
        frame_comes(t, 0);
        assert_ros_sends(t, 0, "e3[0,1000)");
        assert_int_equal(ros_counts(t->ros)->left_over, 5);
}

/* Boards ran before the trigger did: their frames belong to no trigger. */
NUMBERED_TEST(a_reset_before_the_first_trigger_forgets_the_frames, 24)
{
        frames_come(t, 0, 20);
        ros_resynchronise(t->ros, 0, 0);
        trigger(t, 0, 0);
        assert_ros_sends(t, 0, "");
        frame_comes(t, 0);
        assert_ros_sends(t, 0, "e0[0,1000)");
}

/* Frames that wait for a newer one stop waiting at a reset: there is room for 16. */
NUMBERED_TEST(a_reset_settles_the_frames_that_wait_for_a_newer_one, 24)
{
        triggers(t, 0, 20);
        frame_comes(t, 19);
        frames_come(t, 0, ROS_STRAYS_MAX - 1);
        assert_ros_sends(t, 0, "e19[0,1000)");
        ros_resynchronise(t->ros, 20, 5000);
        assert_int_equal(ros_queued(t->ros, 0).jobs, ROS_STRAYS_MAX - 1);
        frames_come(t, ROS_STRAYS_MAX - 1, 4);
        assert_int_equal(ros_queued(t->ros, 0).jobs, ROS_STRAYS_MAX - 1);
        trigger(t, 20, 5000);
        frame_comes(t, 5000);
        assert_int_equal(ros_queued(t->ros, 0).jobs, ROS_STRAYS_MAX + 4);
}

/* The KeepAlive of the run's beginning was lost, or the reset came before it. */
NUMBERED_TEST_EACH(a_ros_may_learn_of_a_later_reset_first, later, 2, 24)
{
        frames_come(t, 0, 20);
        t->resets = later ? 2 : 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        trigger(t, 0, 0);
        assert_ros_sends(t, 0, later ? "" : "e0[0,1000)");
        if (later)
                frame_comes(t, 0);
        assert_int_equal(ros_queued(t->ros, 0).jobs, later);
}

static void reset_begins(struct ros_driver *t, uint32_t resets, uint32_t n_triggers)
{
        t->resets = resets;
        ros_gets_keep_alive(t, RUN_RUNNING, 1000, 7);
        for (uint32_t i = 0; i < n_triggers; i++)
                trigger(t, 1000 + i, i);
}

/* The board sends what it holds from before the reset as soon as the ROS is connected, which may be after the
 * next triggers. */
NUMBERED_TEST(a_ros_that_joins_after_a_reset_keeps_no_frames_from_before_it, 24, c.entries = 1000)
{
        reset_begins(t, 2, 20);
        frames_come(t, 100, 80);
        frames_come(t, 0, 20);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 4);
        ros_sends(t, 0);
        ros_gets_clears(t, 1000, 1020);
        for (uint32_t i = 20; i < 300; i++) {
                trigger(t, 1000 + i, i);
                assert_int_equal(ros_queued(t->ros, 0).jobs, 0);
                frame_comes(t, i);
                ros_sends(t, 0);
                ros_gets_clear(t, 1000 + i);
        }
        assert_counts(ros_counts(t->ros), restarts, 1, duplicate, 0, used, 284, left_over, 80);
        assert_false(reports_unreliable(t));
}

/* Frames from before the reset have the numbers of open events, so nothing tells them apart in time. */
static const struct held {
        uint32_t resets, triggers, from, n;
        bool is_unreliable;
} helds[] = {{2, 20, 0, 10, true}, {2, 40, 20, 60, true}, {1, 20, 0, 10, false}, {1, 40, 20, 60, false}};

NUMBERED_TEST_EACH(frames_from_before_a_reset_make_the_run_unreliable, i, ARRAY_SIZE(helds), 24)
{
        const struct held *h = &helds[i];

        reset_begins(t, h->resets, h->triggers);
        frames_come(t, h->from, h->n);
        assert_true(ros_queued(t->ros, 0).jobs > 0);
        assert_false(reports_unreliable(t));
        frames_come(t, 0, 100);
        assert_int_equal(reports_unreliable(t), h->is_unreliable);
}

/* A board that begins its count again before the ROS learns of the reset: its first frames are used for
 * triggers from before the reset that lack theirs. A late frame is not mistaken for such a frame. */
static const struct early {
        uint32_t triggers;
        uint32_t missing; /* number of the trigger whose frame came last, */
        uint32_t other;   /* or before this one (0: none), */
        bool newer;       /* or just before the newest one */
        bool is_unreliable;
} earlies[] = {
        {20, 0, 0, false, true},   {20, 15, 0, false, true},
        {20, 16, 0, false, false}, {20, 0, 17, false, true},
        {20, 0, 0, true, false},   {10, 8, 0, false, false}, /* only the last two frames changed places */
        {10, 7, 0, false, true},   {2, 0, 0, false, true}};

NUMBERED_TEST_EACH(frames_before_the_word_of_a_reset_make_the_run_unreliable, i, ARRAY_SIZE(earlies), 24)
{
        const struct early *e = &earlies[i];

        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        for (uint32_t k = 0; k < e->triggers; k++) {
                trigger(t, k, k);
                if (k != e->missing && (k == 0 || k != e->other))
                        frame_comes(t, k);
        }
        frame_comes(t, e->missing);
        if (e->other > 0)
                frame_comes(t, e->other);
        t->now_ns += c.wait_ns;
        ros_expire(t->ros, t->now_ns);
        assert_int_equal(ros_queued(t->ros, 0).jobs, e->triggers);
        if (e->newer) {
                trigger(t, e->triggers, e->triggers);
                frame_comes(t, e->triggers);
        }
        t->resets = 2;
        ros_gets_keep_alive(t, RUN_RUNNING, e->triggers + e->newer, 7);
        assert_int_equal(reports_unreliable(t), e->is_unreliable);
}

/* No frame came since the previous reset, so these frames are from before this one. */
NUMBERED_TEST(a_reset_ends_the_doubt_about_late_frames, 24)
{
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        for (uint32_t k = 0; k < 20; k++) {
                trigger(t, k, k);
                if (k != 16)
                        frame_comes(t, k);
        }
        frame_comes(t, 16);
        t->now_ns += c.wait_ns;
        ros_expire(t->ros, t->now_ns);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 20);
        t->resets = 2;
        ros_gets_keep_alive(t, RUN_RUNNING, 20, 7);
        t->resets = 3;
        t->reset_number = 10;
        ros_gets_keep_alive(t, RUN_RUNNING, 20, 7);
        assert_false(reports_unreliable(t));
}

/* The board sends what it held after the reset, whose numbers are near. */
NUMBERED_TEST_EACH(a_slow_board_continues_its_count_after_a_reset, late, 2, 24, c.entries = 1000)
{
        triggers(t, 0, 200);
        frames_come(t, 0, 180);
        while (ros_queued(t->ros, 0).jobs > 0)
                ros_sends(t, 0);
        ros_resynchronise(t->ros, 200, 0);
        if (late) {
                for (uint32_t k = 0; k < 250; k++)
                        trigger(t, 200 + k, k);
        }
        frames_come(t, 180, 20);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 20);
        while (ros_queued(t->ros, 0).jobs > 0)
                ros_sends(t, 0);
        if (!late)
                trigger(t, 200, 0);
        frame_comes(t, 0);
        assert_ros_sends(t, 0, "e200[0,1000)");
}

/* The triggers of a count, from this event on. */
static void count_comes(struct ros_driver *t, uint64_t event, uint32_t n)
{
        for (uint32_t k = 0; k < n; k++)
                trigger(t, event + k, k);
}

static void reset_comes(struct ros_driver *t, uint64_t event)
{
        t->resets++;
        ros_gets_keep_alive(t, RUN_RUNNING, event, 7);
}

/* The board sends its last frames after the reset, which are in no event of the new count. */
NUMBERED_TEST_EACH(the_last_frames_of_a_count_may_come_after_its_reset, again, 2, 24)
{
        reset_comes(t, 0);
        for (uint64_t k = 0; k < 20; k++) {
                trigger(t, k, (uint32_t)k);
                if (k < 10)
                        frame_comes(t, k);
        }
        assert_int_equal(ros_queued(t->ros, 0).jobs, 10);
        reset_comes(t, 20);
        if (again)
                count_comes(t, 20, 20);
        frames_come(t, 10, 10);
        if (!again)
                count_comes(t, 20, 20);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 10);
        frames_come(t, 0, 20);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 30);
        assert_false(reports_unreliable(t));
}

/* A board sends nothing in a count, and begins the next one before the ROS learns of the reset: its frames
 * are in events of the earlier count. A board whose frames all come after the triggers is only slow. */
static const struct silent {
        uint32_t frames, next; /* that came before the announcement; the first frame after it */
        bool repeats;
        uint32_t used; /* frames after the announcement */
        bool is_unreliable;
} silents[] = {{10, 10, false, 10, true}, {1, 1, false, 10, true},  {19, 0, false, 30, false},
               {20, 0, false, 30, false}, {0, 0, false, 30, false}, {10, 10, true, 20, false}};

NUMBERED_TEST_EACH(a_board_that_was_silent_before_a_reset_makes_the_run_unreliable, i, ARRAY_SIZE(silents),
                   24)
{
        const struct silent *s = &silents[i];

        reset_comes(t, 0);
        triggers_and_frames(t, 20);
        reset_comes(t, 20);
        count_comes(t, 20, 20);
        frames_come(t, 0, s->frames);
        if (s->repeats)
                frame_comes(t, 0);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 20 + s->frames);
        reset_comes(t, 40);
        assert_false(reports_unreliable(t));
        count_comes(t, 40, 30);
        frames_come(t, s->next, 30 - s->next);
        assert_int_equal(reports_unreliable(t), s->is_unreliable);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 20 + s->frames + s->used);
}

/* All frames of a board come one count later than their triggers: nothing tells them from those of a board
 * that begins again with the reset, until those of the last count follow. */
static const struct count_behind {
        uint32_t silent;     /* triggers of the count without a frame; 0: there is none */
        uint32_t n;          /* frames in the next count, of 20 triggers */
        uint32_t more, from; /* frames after it, from this number on */
        bool is_followed, is_unreliable, resets_too;
} counts_behind[] = {
        {.silent = 20, .n = 20, .more = 20, .is_unreliable = true, .resets_too = true},
        {.silent = 18, .n = 18, .more = 20, .is_unreliable = true, .resets_too = true},
        {.silent = 30, .n = 30, .more = 20, .is_unreliable = true, .resets_too = true},
        {.silent = 20, .n = 20, .more = 20, .is_followed = true, .resets_too = true},
        {.silent = 20, .n = 20},
        {.silent = 20, .n = 20, .more = 15},
        {.silent = 20, .n = 20, .more = 1, .from = 19}, /* the network repeats the last frame, */
        {.silent = 20, .n = 2, .more = 20},             /* or the first ones */
        {.silent = 0, .n = 20, .more = 20},
};

NUMBERED_TEST_EACH(a_board_that_is_a_count_behind_makes_the_run_unreliable, i, 2 * ARRAY_SIZE(counts_behind),
                   24)
{
        const struct count_behind *b = &counts_behind[i / 2];
        bool resets = i % 2;

        reset_comes(t, 0);
        if (b->silent > 0) {
                count_comes(t, 0, b->silent);
                t->now_ns += c.wait_ns;
                ros_expire(t->ros, t->now_ns);
                reset_comes(t, b->silent);
        }
        for (uint32_t k = 0; k < MAX(b->n, 20u); k++) {
                if (k < 20)
                        trigger(t, b->silent + k, k);
                if (k < b->n)
                        frame_comes(t, k);
        }
        frames_come(t, b->from, b->more);
        assert_false(reports_unreliable(t));
        t->keep_alive_flags = b->is_followed ? KEEP_ALIVE_FOLLOWED : 0;
        if (resets)
                reset_comes(t, b->silent + 20);
        else
                ros_gets_keep_alive(t, RUN_ENDED, b->silent + 20, 7);
        assert_int_equal(reports_unreliable(t), resets ? b->resets_too : b->is_unreliable);
}

/* Triggers reach the ROS late, as with level 2. If frames of a new count come first, the earlier frames are
 * from the previous run, or the new count is that of a reset which the ROS does not know yet. In the second
 * case, the new frames are used for triggers from before the reset, and the board continues its count after
 * it. */
static const struct late_triggers {
        uint32_t held_from, held; /* frames from before the new count */
        uint32_t more;            /* frames of the new count, from 0 on, before the first trigger */
        uint32_t from, triggers;  /* from before the reset */
        uint32_t used;
        uint32_t next, after; /* next frame after the reset, and number of triggers after it */
        bool is_unreliable;
} late_triggers[] = {
        {0, 40, 30, 0, 40, .used = 14, .next = 30, .after = 60, .is_unreliable = true},
        {10, 40, 30, 10, 40, .used = 14, .next = 30, .after = 60, .is_unreliable = true},
        {0, 40, 30, 0, 40, .used = 14, .next = 30, .after = 30, .is_unreliable = true},
        {0, 40, 30, 0, 40, .used = 14, .next = 30, .after = 0},
        /* of the previous run */
        {50, 30, 100, 0, 100, .used = 100, .next = 0, .after = 60},
        {50, 30, 100, 0, 100, .used = 100, .next = 3, .after = 60},
        {50, 30, 100, 0, 100, .used = 100, .next = 0, .after = 0},
        {200, 30, 100, 0, 100, .used = 100, .next = 30, .after = 60},
};

NUMBERED_TEST_EACH(triggers_that_come_late_may_make_the_run_unreliable, i, 3 * ARRAY_SIZE(late_triggers), 24,
                   c.entries = 1000)
{
        const struct late_triggers *l = &late_triggers[i / 3];
        uint64_t event = l->triggers;

        reset_comes(t, 0);
        frames_come(t, l->held_from, l->held);
        frames_come(t, 0, l->more);
        for (uint32_t k = 0; k < l->triggers; k++)
                trigger(t, k, l->from + k);
        assert_int_equal(ros_queued(t->ros, 0).jobs, l->used);
        t->now_ns += c.wait_ns;
        ros_expire(t->ros, t->now_ns);
        reset_comes(t, event);
        if (i % 3 == 2)
                reset_comes(t, event);
        count_comes(t, event, l->after);
        frames_come(t, l->next, 60 - l->next);
        assert_false(reports_unreliable(t));
        if (i % 3 > 0)
                reset_comes(t, event + l->after);
        else
                ros_gets_keep_alive(t, RUN_ENDED, event + l->after, 7);
        assert_int_equal(reports_unreliable(t), l->is_unreliable);
}

/* The board begins the new count before the ROS learns of the reset, and sends as many frames as in the old
 * one; they repeat its numbers. The next frame does not continue the old count. */
NUMBERED_TEST(a_count_may_be_repeated_before_the_word_of_a_reset, 24)
{
        reset_comes(t, 0);
        triggers_and_frames(t, 20);
        frames_come(t, 0, ROS_STRAYS_MAX - 1);
        reset_comes(t, 20);
        count_comes(t, 20, 40);
        frames_come(t, 20, 20);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 40);
        assert_counts(ros_counts(t->ros), duplicate, ROS_STRAYS_MAX - 1, restarts, 0);
}

/* The first 20 frames after the reset are lost. */
NUMBERED_TEST(a_board_may_begin_its_new_count_late, 24)
{
        triggers_and_frames(t, 10);
        ros_resynchronise(t->ros, 10, 0);
        count_comes(t, 10, 21);
        frame_comes(t, 20);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 11);
}

/* The DFM that announced the reset ended before it stored it, so the next DFM has not read that trigger. */
NUMBERED_TEST(a_reset_that_is_taken_back_has_no_effect, 24)
{
        reset_comes(t, 0);
        triggers_and_frames(t, 10);
        t->unread = true;
        reset_comes(t, 10);
        assert_int_equal(ros_reads_first(t->ros) >> 1, 2);
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 10, 7);
        assert_int_equal(ros_reads_first(t->ros) >> 1, 0);
        ros_set_reading(t->ros, false);
        ros_expire(t->ros, t->now_ns);
        assert_int_equal(ros_breaks(t->ros), 0);
        trigger(t, 10, 10);
        frame_comes(t, 10);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 11);
}

/* The triggers after the reset are ahead of the board by more than half of its counter's range, and its old
 * count ended with the highest counter, or had no frame. */
NUMBERED_TEST_EACH(a_narrow_counter_begins_again_where_it_would_continue, silent, 2, 8, c.entries = 1000)
{
        uint64_t event = 256;

        triggers(t, 0, 256);
        frames_come(t, 0, 256);
        if (silent) {
                ros_resynchronise(t->ros, event, 0);
                for (uint32_t k = 0; k < 100; k++)
                        trigger(t, event++, k);
        }
        while (ros_queued(t->ros, 0).jobs > 0)
                ros_sends(t, 0);
        ros_resynchronise(t->ros, event, 0);
        for (uint32_t k = 0; k < 200; k++)
                trigger(t, event + k, k);
        frames_come(t, 0, 200);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 200);
}

/* A later reset that the ROS has seen ends the doubt. */
NUMBERED_TEST(a_ros_sees_the_reset_after_it_joined, 24)
{
        reset_begins(t, 2, 0);
        reset_begins(t, 3, 20);
        frames_come(t, 0, 10);
        frames_come(t, 0, 20);
        assert_counts(ros_counts(t->ros), duplicate, 10);
        assert_false(reports_unreliable(t));
}

/* A byte stream retries a frame that finds no room. Its number is from before the reset each time, although
 * the newer triggers have reached the same number. */
NUMBERED_TEST(a_frame_without_room_is_of_the_same_epoch_when_it_comes_again, 16, c.entries = 10)
{
        for (uint32_t i = 0; i < 10; i++) {
                trigger(t, i, 1000 + i);
                frame_comes(t, 1000 + i);
        }
        assert_int_equal(ros_queued(t->ros, 0).jobs, 10);
        ros_resynchronise(t->ros, 10, 0);
        for (uint32_t i = 0; i < 1100; i++)
                trigger(t, 10 + i, i);
        for (int k = 0; k < 3; k++)
                assert_int_equal(frame_begins(t, 1010), ROS_FULL);
        ros_gets_clear(t, 0);
        frame_comes(t, 1010);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 10);
}

/* No trigger came for these frames. After the reset, they would match other triggers, which the ROS receives
 * before the reset. */
NUMBERED_TEST(frames_that_wait_are_read_before_a_reset, 16, c.entries = 10)
{
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        triggers_and_frames(t, 1);
        assert_ros_sends(t, 0, "e0[0,1000)");
        ros_gets_clear(t, 0);
        frames_come(t, 1, 10);
        assert_int_equal(frame_begins(t, 11), ROS_FULL);
        t->resets = 2;
        trigger(t, 3, 12);
        t->unread = true;
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        trigger(t, 3, 12);
        frames_come(t, 11, 14);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 0);
        assert_int_equal(ros_breaks(t->ros), 0);
        t->unread = false;
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        assert_int_equal(ros_breaks(t->ros), 1);
        for (uint32_t i = 0; i < 15; i++) {
                char expected[24];

                snprintf(expected, sizeof expected, "e%u[0,1000)", 1 + i);
                trigger(t, 1 + i, i);
                assert_ros_sends(t, 0, "");
                frame_comes(t, i);
                assert_ros_sends(t, 0, expected);
                ros_gets_clear(t, 1 + i);
        }
        assert_counts(ros_counts(t->ros), used, 16, duplicate, 0, impossible, 0);
}

/* A ROS that was away has a frame with the same number from before the reset. */
NUMBERED_TEST(a_request_from_after_a_reset_gets_no_frame_from_before_it, 16)
{
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        triggers_and_frames(t, 1);
        assert_ros_sends(t, 0, "e0[0,1000)");
        frames_come(t, 1, 4);
        t->resets = 2;
        ros_gets_request(t, 0, 3, 0);
        assert_ros_sends(t, 0, "");
        ros_gets_keep_alive(t, RUN_RUNNING, 3, 7);
        t->resets = 1; /* delayed */
        ros_gets_request(t, 0, 3, 0);
        t->resets = 2;
        frames_come(t, 0, 4);
        assert_ros_sends(t, 0, "");
        ros_gets_request(t, 0, 3, 1);
        assert_ros_sends(t, 0, "e3[0,1000)");
}

/* A connection holds up the frames of many triggers before and after a reset. */
TEST(a_board_may_reach_a_reset_long_after_the_triggers)
{
        for (uint32_t held_up = 0; held_up < ROS_STRAYS_MAX; held_up += 5) {
                struct ros_config c = numbered(16);
                struct ros_driver t;

                c.entries = 4000;
                ros_driver_init(&t, &c);
                for (uint64_t event = 0; event < 1000; event++)
                        trigger(&t, event, 1000 + (uint32_t)event);
                frames_come(&t, 1000, 1000 - held_up);
                while (ros_queued(t.ros, 0).jobs > 0)
                        ros_sends(&t, 0);
                ros_gets_keep_alive(&t, RUN_RUNNING, 1000, 7);
                ros_resynchronise(t.ros, 1000, 0);
                for (uint64_t event = 0; event < 2500; event++)
                        trigger(&t, 1000 + event, (uint32_t)event);
                frames_come(&t, 2000 - held_up, held_up);
                assert_int_equal(ros_queued(t.ros, 0).jobs, 0);
                frames_come(&t, 0, 2500);
                assert_int_equal(ros_queued(t.ros, 0).jobs, 2500);
                ros_driver_fini(&t);
        }
}
