/* The ROS with frames that carry the number of their trigger: which event each belongs to, and the class in
 * which it ends. */
#include "numbered_driver.h"

NUMBERED_TEST(frames_match_by_number_in_any_order, 32)
{
        trigger(t, 0, 50);
        trigger(t, 1, 52); /* trigger 51 was not taken */
        frame_comes(t, 50);
        frame_comes(t, 51);
        frame_comes(t, 53);
        frame_comes(t, 52); /* late by two: it waits for a newer one */
        assert_ros_sends(t, 0, "e0[0,1000)");
        frame_comes(t, 54);
        assert_ros_sends(t, 0, "e1[0,1000)");
        trigger(t, 2, 54);
        assert_ros_sends(t, 0, "e2[0,1000)");
        trigger(t, 3, 53);
        assert_ros_sends(t, 0, "e3[0,1000)");
        ros_gets_keep_alive(t, RUN_RUNNING, 4, 7);
        assert_counts(ros_counts(t->ros), used, 4, left_over, 1);
}

/* Its datagram was delayed, until events of newer triggers had ended: the frame came, so it is not absent. */
NUMBERED_TEST(a_frame_that_was_discarded_before_its_trigger_is_lost, 32)
{
        for (uint32_t i = 0; i < 10; i++)
                if (i != 5)
                        trigger(t, i - (i > 5), 50 + i);
        frames_come(t, 50, 10);
        (void)ros_sends(t, 0);
        ros_gets_keep_alive(t, RUN_RUNNING, 9, 7);
        trigger(t, 9, 60);
        ros_gets_keep_alive(t, RUN_RUNNING, 10, 9);
        assert_int_equal(ros_counts(t->ros)->left_over, 1);
        trigger(t, 10, 55);
        assert_ros_sends(t, 0, "e10 lost");
        trigger(t, 10, 55);
        assert_ros_sends(t, 0, "e10 lost");
        assert_counts(ros_counts(t->ros), discarded, 1, late, 1, left_over, 0);
        ros_driver_check(t);
        frame_comes(t, 55);
        assert_int_equal(ros_counts(t->ros)->duplicate, 1);
}

/* The number of a fragment is that of its frame. */
NUMBERED_TEST(a_fragment_has_the_l1_id_of_its_frame, 16)
{
        struct ros_job job;

        trigger(t, 0, 0x7fffe);
        trigger(t, 1, 0x80001);
        frame_comes(t, 0xfffe);
        frame_comes(t, 0xffff);
        frame_comes(t, 0x0001);
        assert_int_equal(ros_jobs(t->ros, 0, &job, 1), 1);
        assert_int_equal(job.job.chunk.l1_id, 0x7fffe);
        ros_sent(t->ros, 0, 1, 0);
        assert_int_equal(ros_jobs(t->ros, 0, &job, 1), 1);
        assert_int_equal(job.job.chunk.l1_id, 0x80001);
}

/* Counters that start over after any number of values. Triggers are ahead by more than all values of the
 * narrowest one, and the board misses some. */
static const uint64_t periods[] = {32, 1000, 3564, 32768, 100003};

NUMBERED_TEST_EACH(frames_far_behind_the_triggers_keep_their_events, i, ARRAY_SIZE(periods), 16,
                   c.number_period = periods[i], c.number_from = -3)
{
        uint64_t first = periods[i] - 20, used = 0;
        char text[64];

        for (uint32_t k = 0; k < 500; k++) {
                trigger(t, k, (uint32_t)first + k);
                if (k < 40 || k % 13 == 0)
                        continue;
                frame_comes(t, (first + k - 40 + periods[i] - 3) % periods[i]);
                snprintf(text, sizeof text, "e%u[0,1000)", k - 40);
                assert_ros_sends(t, 0, text);
                ros_gets_keep_alive(t, RUN_RUNNING, k - 39, 7);
                used++;
        }
        assert_counts(ros_counts(t->ros), used, used, restarts, 0);
}

static const int64_t froms[] = {1, -1, 1000, -70000};

NUMBERED_TEST_EACH(the_board_may_count_from_another_number, i, ARRAY_SIZE(froms), 16,
                   c.number_from = froms[i])
{
        frame_comes(t, (uint64_t)froms[i] & 0xffff);
        trigger(t, 0, 0);
        assert_ros_sends(t, 0, "e0[0,1000)");
        trigger(t, 1, 1);
        frame_comes(t, (uint64_t)(froms[i] + 1) & 0xffff);
        assert_ros_sends(t, 0, "e1[0,1000)");
}

/* The ROS starts in the middle of a run, and frames come before or after the first trigger. */
static const unsigned widths[] = {16, 24, 32, 64};

TEST_EACH(the_first_trigger_finds_the_frames_that_wait, w, ARRAY_SIZE(widths))
{
        for (int early = 0; early < 20; early++) {
                struct ros_config c = numbered(widths[w]);
                struct ros_driver t;
                uint64_t mask = widths[w] == 64 ? UINT64_MAX : (UINT64_C(1) << widths[w]) - 1;
                uint32_t l1_id = 0xfffffff8; /* all widths wrap here */

                ros_driver_init(&t, &c);
                for (int i = 0; i < early; i++)
                        frame_comes(&t, (l1_id + (uint32_t)i) & mask);
                for (int i = 0; i < 20; i++)
                        trigger(&t, 7000 + (uint64_t)i, l1_id + (uint32_t)i);
                for (int i = early; i < 20; i++)
                        frame_comes(&t, (l1_id + (uint32_t)i) & mask);
                assert_int_equal(ros_queued(t.ros, 0).jobs, 20);
                ros_driver_fini(&t);
        }
}

NUMBERED_TEST(late_and_repeated_frames_are_counted_apart, 24)
{
        triggers(t, 0, 6);
        frames_come(t, 0, 1);
        frame_comes(t, 0); /* held twice */
        frames_come(t, 2, 2);
        assert_int_equal(ros_counts(t->ros)->duplicate, 1);
        assert_ros_sends(t, 0, "e0[0,1000) | e2[0,1000) | e3[0,1000)");
        ros_gets_clear(t, 0);
        ros_gets_clear(t, 1);
        frame_comes(t, 0); /* used before */
        assert_int_equal(ros_counts(t->ros)->duplicate, 2);
        frame_comes(t, 1); /* never came before */
        assert_int_equal(ros_counts(t->ros)->late, 1);
        frame_comes(t, 1);
        assert_int_equal(ros_counts(t->ros)->late, 2);
        /* Nobody waits for it any more. */
        ros_says(t);
        t->now_ns += c.wait_ns;
        ros_expire(t->ros, t->now_ns);
        frame_comes(t, 4);
        assert_int_equal(ros_counts(t->ros)->late, 3);
        ros_gets_keep_alive(t, RUN_RUNNING, 6, 7);
        assert_counts(ros_counts(t->ros), used, 3, absent, 3);
}

/* A frame from before the run is left over or late, and costs nothing. But the board has sent frames of the
 * run, so the second one has a wrong number, and its data are in no event. */
NUMBERED_TEST_EACH(a_number_of_before_the_run_is_wrong_behind_frames_of_the_run, i, 6,
                   16 + 8u * (unsigned)(i / 2))
{
        const unsigned ended = i % 2;

        trigger(t, 0, 40000);
        frame_comes(t, 39000);
        for (uint32_t k = 0; k < 50; k++) {
                if (k > 0)
                        trigger(t, k, 40000 + k);
                frame_comes(t, 40000 + k);
        }
        frame_comes(t, 39990); /* overtaken */
        for (unsigned k = 0; k < 2 * ended; k++)
                ros_gets_keep_alive(t, RUN_RUNNING, 40 + k, 7);
        assert_int_equal(ros_counts(t->ros)->impossible, 0);
        frame_comes(t, 20000);
        trigger(t, 50, 40050);
        frame_comes(t, 40050);
        assert_int_equal(ros_counts(t->ros)->impossible, 1);
        assert_false(ros_is_out_of_step(t->ros));
}

NUMBERED_TEST(a_frame_without_a_number_is_impossible, 24)
{
        struct ros_fragment f = {.bytes = 3};
        uint64_t at;

        assert_int_equal(ros_arrive(t->ros, NULL, &f, &at), ROS_DISCARD);
        ros_commit(t->ros);
        assert_int_equal(ros_counts(t->ros)->impossible, 1);
        t->frames = 1;
}

NUMBERED_TEST(a_broken_frame_may_come_again, 24)
{
        trigger(t, 0, 10);
        for (uint64_t counter = 10; counter < 12; counter++) {
                assert_int_equal(frame_begins(t, counter), ROS_STORE);
                ros_skip(t->ros, 1);
        }
        assert_int_equal(ros_held(t->ros), 1); /* what the trigger expects */
        frame_comes(t, 10);
        assert_ros_sends(t, 0, "e0[0,1000)");
        /* Its event may end while it arrives. */
        for (int broken = 0; broken < 2; broken++) {
                trigger(t, 1 + (uint64_t)broken, 11 + (uint32_t)broken);
                assert_int_equal(frame_begins(t, 11 + (uint64_t)broken), ROS_STORE);
                ros_gets_clear(t, 1 + (uint64_t)broken);
                if (broken)
                        ros_skip(t->ros, 1);
                else
                        ros_commit(t->ros);
        }
        assert_int_equal(ros_counts(t->ros)->late, 1);
        assert_int_equal(ros_held(t->ros), 1);
        t->frames = 2;
}

/* Two events with the same number: the second one gets no fragment. */
NUMBERED_TEST(a_number_belongs_to_one_event, 32)
{
        trigger(t, 0, 7);
        trigger(t, 1, 7);
        frame_comes(t, 7);
        assert_ros_sends(t, 0, "e1 lost | e0[0,1000)");
        ros_gets_clear(t, 0);
        trigger(t, 2, 7);
        assert_ros_sends(t, 0, "e2 lost");
}

/* A full buffer: frames of triggers that never came give way, and those ahead of the trigger wait. */
NUMBERED_TEST_EACH(frames_without_a_trigger_do_not_block_others, datagrams, 2, 32, c.entries = 10,
                   c.datagrams = datagrams)
{
        frames_come(t, 0, 10);
        /* Before the first trigger, a front-end that cannot wait keeps its newest frames. */
        assert_int_equal(frame_begins(t, 10), datagrams ? ROS_STORE : ROS_FULL);
        if (datagrams)
                ros_commit(t->ros);
        assert_int_equal(ros_counts(t->ros)->left_over, 10 + datagrams);
        trigger(t, 0, 30);
        for (uint64_t i = 10 + (uint64_t)datagrams; i <= 30; i++)
                frame_comes(t, i);
        assert_ros_sends(t, 0, "e0[0,1000)");
        frames_come(t, 31, 0);
        assert_int_equal(frame_begins(t, 31), ROS_FULL);
        ros_skip(t->ros, 1);
        assert_int_equal(ros_counts(t->ros)->dropped, 1);
        t->frames = 32;
}

/* A trigger that comes for such a frame says that the buffer was too small. */
NUMBERED_TEST(a_frame_that_others_pushed_out_before_its_trigger_is_dropped, 32, c.entries = 10,
              c.datagrams = true)
{
        frames_come(t, 0, 15);
        assert_int_equal(ros_counts(t->ros)->left_over, 15);
        for (uint32_t i = 1; i <= 4; i++)
                trigger(t, i - 1, i);
        assert_ros_sends(t, 0, "e0 lost | e1 lost | e2 lost | e3 lost");
        assert_counts(ros_counts(t->ros), dropped, 4, pushed_out, 4, late, 0);
        assert_int_equal(ros_counts(t->ros)->left_over, 11); /* no trigger came for frame 0 */
        trigger(t, 4, 5);
        assert_ros_sends(t, 0, "e4[0,1000)");
}

/* Without the first frames of the run, later ones would be taken for them. Those from before it give way. */
NUMBERED_TEST_EACH(a_narrow_counter_keeps_the_first_frames_of_a_run, in_run, 2, 5, c.entries = 10,
                   c.datagrams = true)
{
        ros_gets_keep_alive(t, in_run ? RUN_RUNNING : RUN_STARTING, 0, 7);
        for (uint64_t k = 0; k < 70; k++) {
                bool is_full = frame_begins(t, k % 32) == ROS_FULL;

                assert_int_equal(is_full, in_run && k >= 10);
                if (is_full)
                        ros_skip(t->ros, 1);
                else
                        ros_commit(t->ros);
                t->frames += is_full;
        }
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        for (uint32_t k = in_run ? 0 : 70; k < 100; k++) {
                trigger(t, k, k);
                if (k >= 70)
                        frame_comes(t, k % 32);
                (void)ros_sends(t, 0);
                ros_gets_keep_alive(t, RUN_RUNNING, k + 1, 7);
        }
        assert_counts(ros_counts(t->ros), used, in_run ? 40 : 30, dropped, in_run ? 60 : 0, late, 0,
                      left_over, in_run ? 0 : 70);
        ros_gets_keep_alive(t, RUN_ENDED, 100, 7);
        assert_false(reports_unreliable(t));
}

/* No data are lost if no trigger can come for them. */
NUMBERED_TEST(frames_after_the_end_are_left_over, 32, c.entries = 10)
{
        trigger(t, 0, 0);
        frame_comes(t, 0);
        ros_gets_keep_alive(t, RUN_ENDED, 1, 7);
        for (uint64_t i = 1; i < 15; i++) {
                if (frame_begins(t, i) == ROS_FULL)
                        ros_skip(t->ros, 1);
                else
                        ros_commit(t->ros);
        }
        assert_counts(ros_counts(t->ros), dropped, 0, left_over, 14);
        t->frames = 15;
}

/* Level 2 rejects events 1 and 2, which no message but Clear names; the frame of event 2 comes after that. */
NUMBERED_TEST(rejected_events_use_their_frames, 32, c.level2 = true)
{
        trigger(t, 0, 50);
        frame_comes(t, 50);
        assert_ros_sends(t, 0, "e0[0,1000)");
        frame_comes(t, 53);
        t->message.n = 3;
        t->message.clear.with_l1_ids = true;
        t->message.clear.resets = 0;
        for (uint32_t k = 0; k < 3; k++) {
                t->message.clear.events[k] = k;
                t->message.clear.l1_ids[k] = 50 + 3 * k;
        }
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_CLEAR, t->clear_next++));
        assert_int_equal(ros_held(t->ros), 0);
        assert_int_equal(ros_counts(t->ros)->used, 2);
        frame_comes(t, 56);
        frame_comes(t, 56);
        assert_counts(ros_counts(t->ros), used, 3, late, 0, duplicate, 1);
}

/* Clears the event, naming its trigger. */
static void clear_one_after(struct ros_driver *t, uint16_t resets, uint64_t event, uint32_t l1_id)
{
        t->message.n = 1;
        t->message.clear.with_l1_ids = true;
        t->message.clear.resets = resets;
        t->message.clear.events[0] = event;
        t->message.clear.l1_ids[0] = l1_id;
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_CLEAR, t->clear_next++));
}

static void clear_one(struct ros_driver *t, uint64_t event, uint32_t l1_id)
{
        clear_one_after(t, 0, event, l1_id);
}

/* Frames from before the reset wait to be read, so it is not in effect yet. */
NUMBERED_TEST(a_clear_during_a_reset_names_no_earlier_frames, 32)
{
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        trigger(t, 0, 0);
        frames_come(t, 0, 10);
        ros_sends(t, 0);
        ros_gets_clear(t, 0);
        t->resets = 2;
        t->unread = true;
        ros_gets_keep_alive(t, RUN_RUNNING, 10, 7);
        for (uint32_t i = 1; i < 5; i++)
                clear_one(t, 10 + i, i);
        assert_int_equal(ros_breaks(t->ros), 0);
        assert_counts(ros_counts(t->ros), used, 1, late, 0, left_over, 9);
}

/* This ROS was cut off during a reset, so its frames have the numbers of other triggers. */
NUMBERED_TEST_EACH(a_clear_after_a_missed_reset_names_no_earlier_frames, level2, 2, 32, c.level2 = level2)
{
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        trigger(t, 0, 0);
        frames_come(t, 0, 10);
        ros_sends(t, 0);
        ros_gets_clear(t, 0);
        for (uint16_t i = 1; i < 5; i++)
                clear_one_after(t, 2, 10 + i, i);
        assert_counts(ros_counts(t->ros), used, 1, late, 0, left_over, 9);
        t->resets = 2;
        ros_gets_keep_alive(t, RUN_RUNNING, 10, 7);
        frames_come(t, 0, 8);
        for (uint16_t i = 5; i < 8; i++)
                clear_one_after(t, i % 2 ? 2 : 0, 10 + i, i);
        assert_counts(ros_counts(t->ros), used, level2 ? 4 : 1, late, level2 ? 0 : 3, left_over, 14);
}

/* Their Clear was lost, and KeepAlive shows only that they have ended. The Clear is repeated. */
NUMBERED_TEST(a_repeated_clear_finds_the_frames_of_rejected_events, 32, c.level2 = true, c.entries = 10)
{
        frames_come(t, 50, 10);
        ros_gets_keep_alive(t, RUN_RUNNING, 10, 7);
        assert_int_equal(ros_held(t->ros), 10);
        for (uint32_t i = 0; i < 10; i++)
                clear_one(t, i, 50 + i);
        assert_int_equal(ros_held(t->ros), 0);
        clear_one(t, 9, 59);
        clear_one(t, 10, 60);
        clear_one(t, 10, 60);
        frame_comes(t, 59);
        frame_comes(t, 60);
        assert_counts(ros_counts(t->ros), used, 11, left_over, 0, late, 0, duplicate, 1);
}

/* A frame found no room before its event was rejected or, without level 2, built without it. */
NUMBERED_TEST_EACH(a_frame_pushed_out_of_a_rejected_event_is_used, level2, 2, 32, c.level2 = level2,
                   c.entries = 4, c.datagrams = true)
{
        frames_come(t, 50, 6);
        for (uint32_t i = 0; i < 6; i++)
                clear_one(t, i, 50 + i);
        assert_counts(ros_counts(t->ros), used, level2 ? 6 : 0, late, level2 ? 0 : 4, dropped, level2 ? 0 : 2,
                      left_over, 0);
}

/* In pull, no SFI requests fragments of a ROS that was left out, which learns of the triggers from Clear.
 * Their frames come before it, or after it. */
NUMBERED_TEST_EACH(frames_of_events_built_without_them_are_late, counted, 2, 32,
                   c.number_period = counted ? 0 : c.number_period)
{
        frames_come(t, 0, 3);
        for (uint32_t i = 0; i < 5; i++)
                clear_one(t, i, i);
        assert_counts(ros_counts(t->ros), late, 3, left_over, 0);
        frames_come(t, 3, 3);
        assert_int_equal(ros_held(t->ros), 1);
        ros_gets_request(t, 0, 5, 0);
        assert_ros_sends(t, 0, "e5[0,1000)");
        clear_one(t, 5, 5);
        assert_counts(ros_counts(t->ros), used, 1, late, 5, left_over, 0, impossible, 0);
}

/* The farm is faster than the board. */
NUMBERED_TEST(frames_of_events_rejected_before_they_come_are_in_step, 32, c.level2 = true)
{
        for (uint32_t i = 0; i < 100; i++) {
                clear_one(t, i, i);
                frame_comes(t, i);
        }
        trigger(t, 100, 100);
        frame_comes(t, 100);
        assert_ros_sends(t, 0, "e100[0,1000)");
        assert_counts(ros_counts(t->ros), used, 100, left_over, 1, restarts, 0);
}

static void run_with_offset(struct ros_driver *t, int64_t offset, uint64_t more)
{
        struct ros_config c = numbered(16);

        ros_driver_init(t, &c);
        for (uint32_t i = 0; i < 40; i++) {
                trigger(t, i, 100 + i);
                frame_comes(t, (uint64_t)(100 + i + offset));
        }
        frames_come(t, (uint64_t)(140 + offset), more);
}

/* Frames that waited before a ROS joined may be a whole period older than its first trigger. */
static const struct late_join {
        unsigned bits;
        uint32_t triggers;
        bool is_unreliable;
} late_joins[] = {{3, 3, true},  {3, 2, false},  {5, 590, true},
                  {8, 65, true}, {8, 64, false}, {16, 590000, false}};

NUMBERED_TEST_EACH(a_narrow_counter_cannot_be_joined_late, i, ARRAY_SIZE(late_joins), late_joins[i].bits)
{
        uint32_t event = late_joins[i].triggers;

        ros_gets_keep_alive(t, RUN_RUNNING, event, 7);
        frame_comes(t, (event - 1) % c.number_period);
        trigger(t, event, event);
        assert_int_equal(reports_unreliable(t), late_joins[i].is_unreliable);
}

NUMBERED_TEST(the_l1_id_of_the_first_event_is_known_until_a_reset, 32)
{
        uint32_t first = 0;

        trigger(t, 1, 8);
        assert_false(ros_first_l1_id(t->ros, &first));
        trigger(t, 0, 7);
        assert_true(ros_first_l1_id(t->ros, &first));
        assert_int_equal(first, 7);
        ros_resynchronise(t->ros, 2, 0);
        assert_false(ros_first_l1_id(t->ros, &first));
        trigger(t, 2, 0);
        assert_false(ros_first_l1_id(t->ros, &first));
}

/* With level 2, or if announcements are lost, the first trigger that it knows may be a later one. */
NUMBERED_TEST(a_narrow_counter_that_was_there_from_the_start_is_reliable, 5)
{
        ros_gets_keep_alive(t, RUN_STARTING, 0, 7);
        trigger(t, 590, 590);
        frame_comes(t, 590 % 32);
        ros_gets_keep_alive(t, RUN_RUNNING, 590, 7);
        assert_false(reports_unreliable(t));
}

/* While a restarted DFM resumes the run, it does not know the number of triggers. Before that, it may
 * announce a run of its own to a ROS that restarted as well. A ROS that was in the run from its start still
 * knows that. */
NUMBERED_TEST_EACH(a_narrow_counter_cannot_join_a_resumed_run, i, 3, 8)
{
        if (i > 0) {
                ros_gets_keep_alive(t, RUN_STARTING, 0, 7);
                t->run = i == 1;
                t->dfm = TRACE_DFM + 1;
                t->keep_alive_next = 0;
                ros_gets_keep_alive(t, RUN_STARTING, 0, 7);
                assert_ros_says_after(t, NS_PER_S, "dfm: Join | dfm: Alive running");
                ros_gets_welcome(t, t->dfm, WELCOME_OK);
        }
        t->keep_alive_flags = KEEP_ALIVE_RESUMES;
        ros_gets_keep_alive(t, RUN_STARTING, 0, 7);
        assert_false(ros_saw_begin(t->ros));
        t->keep_alive_flags = 0;
        ros_gets_keep_alive(t, RUN_RUNNING, 590, 7);
        assert_int_equal(ros_saw_begin(t->ros), i == 2);
        assert_int_equal(reports_unreliable(t), i < 2);
}

/* Since before the run, the connection holds the frames of `held` triggers, whose last ones may be like those
 * of a whole period later. */
static const struct held {
        unsigned bits;
        uint32_t held;
        bool is_followed;
        uint64_t found;
} helds[] = {
        {5, 0, false, 0},  {5, 4, false, 0},  {5, 31, false, 32},   {5, 100, false, 96},
        {5, 100, true, 0}, {8, 60, false, 0}, {8, 210, false, 256}, {16, 210, false, 0},
};

NUMBERED_TEST_EACH(frames_from_before_the_run_show_at_its_end, i, ARRAY_SIZE(helds), helds[i].bits,
                   c.entries = 1000)
{
        const struct held *h = &helds[i];

        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        for (uint32_t k = 0; k < h->held; k++)
                frame_comes(t, (7000 - h->held + k) % c.number_period);
        for (uint32_t k = 0; k < 300; k++) {
                trigger(t, k, 7000 + k);
                frame_comes(t, (7000 + k) % c.number_period);
        }
        assert_int_equal(ros_periods(t->ros), 0);
        t->keep_alive_flags = h->is_followed ? KEEP_ALIVE_FOLLOWED : 0;
        ros_gets_keep_alive(t, RUN_ENDED, 300, 7);
        assert_int_equal(ros_periods(t->ros), h->found);
        assert_int_equal(reports_unreliable(t), h->found > 0);
}

/* The board counts from another number: one end of the run has no frames, and the other one as many without a
 * trigger. While the run continues, that is a guess. */
static const int64_t offsets[] = {0, 1, -1, 16, -8, 30, 200};

TEST_EACH(an_offset_between_board_and_trigger_is_found, k, ARRAY_SIZE(offsets))
{
        struct ros_driver t;

        run_with_offset(&t, offsets[k], 0);
        assert_int_equal(ros_offset(t.ros, false), 0); /* the frame of the first trigger may be late */
        ros_gets_keep_alive(&t, RUN_RUNNING, 40, 7);
        assert_int_equal(ros_offset(t.ros, false), offsets[k] <= 16 ? MAX(offsets[k], 0) : 0);
        assert_int_equal(ros_offset(t.ros, true), 0);
        ros_gets_keep_alive(&t, RUN_ENDED, 40, 7);
        assert_int_equal(ros_offset(t.ros, true), offsets[k]);
        assert_int_equal(reports_unreliable(&t), offsets[k] != 0);
        ros_driver_fini(&t);
}

/* A board that only missed the first one is good. Frames of triggers that were not taken may follow. */
ROS_TEST_AS(a_missed_first_trigger_is_no_offset, numbered(16), (void)t)
{
        for (uint32_t more = 0; more < 4; more++) {
                run_with_offset(t, 1, more);
                ros_gets_keep_alive(t, RUN_DRAINING, 20, 7);
                assert_int_equal(ros_offset(t->ros, true), 0);
                t->keep_alive_flags = KEEP_ALIVE_FOLLOWED;
                ros_gets_keep_alive(t, RUN_ENDED, 40, 7);
                assert_int_equal(ros_offset(t->ros, false), 1);
                assert_int_equal(ros_offset(t->ros, true), 0);
                assert_false(reports_unreliable(t));
                ros_driver_fini(t);
        }
        ros_driver_init(t, &c);
        trigger(t, 0, 100);
        for (uint32_t i = 1; i < 40; i++) {
                trigger(t, i, 100 + i);
                frame_comes(t, 100 + i);
        }
        ros_gets_keep_alive(t, RUN_ENDED, 40, 7);
        assert_int_equal(ros_offset(t->ros, true), 0);
        ros_driver_fini(t);
        /* Nor is one with frames from before the run of which the last frame is on its way. */
        ros_driver_init(t, &c);
        frame_comes(t, 99);
        for (uint32_t i = 0; i < 40; i++) {
                trigger(t, i, 100 + i);
                if (i < 39)
                        frame_comes(t, 100 + i);
        }
        ros_gets_keep_alive(t, RUN_DRAINING, 20, 7);
        assert_int_equal(ros_offset(t->ros, true), 0);
        ros_driver_fini(t);
        /* A slow board may send as many frames from before the run as it misses at the end. */
        ros_driver_init(t, &c);
        frames_come(t, 80, 20);
        for (uint32_t i = 0; i < 40; i++) {
                trigger(t, i, 100 + i);
                if (i < 20)
                        frame_comes(t, 100 + i);
        }
        ros_gets_keep_alive(t, RUN_ENDED, 40, 7);
        assert_int_equal(ros_offset(t->ros, true), 0);
}

/* From trigger 100 on, the board's numbers are ahead, or it misses triggers, and its frames may come late. */
static const struct leap {
        uint32_t ahead, missed, more; /* more: frames after the last trigger */
        bool late, followed;
        bool held; /* a new connection holds up the frames after it */
        uint32_t found;
} leaps[] = {
        {.ahead = 1, .found = 1},
        {.ahead = 20, .found = 20},
        {.ahead = 250, .found = 250},
        {.ahead = 20, .followed = true}, /* frames of triggers that were not taken may be left over */
        {.missed = 20},
        {.missed = 3, .more = 3}, /* few frames may be left over by chance */
        {.missed = 20, .more = 19},
        {.missed = 20, .more = 20, .late = true},
        {.ahead = 20, .held = true, .found = 20},
        {.ahead = 1, .held = true}, /* no sign is left */
};

NUMBERED_TEST_EACH(a_leap_of_the_board_in_the_run_is_found, k, ARRAY_SIZE(leaps), 16, c.entries = 1000)
{
        const struct leap *l = &leaps[k];

        for (uint32_t i = 0; i < 400; i++) {
                trigger(t, i, i);
                if (i < 100)
                        frame_comes(t, i);
                else if (l->held && i < 140)
                        continue;
                else if (l->held && i == 140)
                        frames_come(t, 100 + l->ahead, 41);
                else if (i >= 100 + l->missed)
                        frame_comes(t, i + l->ahead);
                if (i == 300 && l->late)
                        frames_come(t, 100, l->missed);
        }
        frames_come(t, 400 + l->ahead, l->more);
        ros_gets_keep_alive(t, RUN_RUNNING, 400, 7);
        assert_int_equal(ros_leap(t->ros), 0);
        t->keep_alive_flags = l->followed ? KEEP_ALIVE_FOLLOWED : 0;
        ros_gets_keep_alive(t, RUN_ENDED, 400, 7);
        assert_int_equal(ros_leap(t->ros), l->found);
        assert_int_equal(reports_unreliable(t), l->found > 0);
}

/* A connection holds frames that find no room in the ROS at the end. */
static const struct surplus {
        unsigned bits;
        uint32_t carried; /* frames from before the run */
        uint32_t ahead, leap_at;
        bool waits, is_followed;
        int64_t offset;
        uint64_t leap, periods;
} surpluses[] = {
        {32, .ahead = 100, .waits = true, .offset = 100},
        {32, .ahead = 100, .waits = true, .is_followed = true},
        {32, .ahead = 100, .waits = true, .leap_at = 200, .leap = 100},
        {32, .ahead = 0},
        {32, .carried = 64},
        {5, .carried = 64, .waits = true, .periods = 20},
        {5, .carried = 64, .waits = true, .is_followed = true},
        {5, .carried = 4},
        {0, .carried = 64, .waits = true}, /* counted: the DFM knows more */
        {0, .carried = 0},
};

/* Returns the number of the frame that waits. */
static uint32_t frames_come_until_full(struct ros_driver *t, const struct surplus *s, uint32_t next,
                                       uint32_t end)
{
        for (; next < end; next++) {
                uint64_t number = next + (next >= 7000 + s->leap_at ? s->ahead : 0);

                if (frame_begins(t, s->bits == 5 ? number % 32 : number) == ROS_FULL)
                        break;
                ros_commit(t->ros);
        }
        return next;
}

NUMBERED_TEST_EACH(frames_that_find_no_room_show_at_the_end, i, ARRAY_SIZE(surpluses), surpluses[i].bits,
                   c.entries = 20, c.number_period = surpluses[i].bits > 0 ? c.number_period : 0)
{
        const struct surplus *s = &surpluses[i];
        uint32_t next = 7000 - s->carried;
        bool is_found = s->offset != 0 || s->leap > 0 || s->periods > 0;
        uint16_t flags;

        for (uint32_t k = 0; k < 400; k++) {
                trigger(t, k, s->bits > 0 ? 7000 + k : k);
                next = frames_come_until_full(t, s, next, 7001 + k);
                (void)ros_sends(t, 0);
                ros_gets_keep_alive(t, RUN_RUNNING, k + 1, 7);
                assert_false(ros_has_surplus(t->ros)); /* a trigger may come */
        }
        t->keep_alive_flags = s->is_followed ? KEEP_ALIVE_FOLLOWED : 0;
        ros_gets_keep_alive(t, RUN_ENDED, 400, 7);
        next = frames_come_until_full(t, s, next, 7400);
        flags = reported_flags(t);
        assert_int_equal(ros_offset(t->ros, true), s->offset);
        assert_int_equal(ros_leap(t->ros), s->leap);
        assert_int_equal(ros_periods(t->ros), s->periods);
        assert_int_equal(flags & ALIVE_UNRELIABLE, is_found ? ALIVE_UNRELIABLE : 0);
        assert_int_equal(next < 7400, s->waits);
        assert_int_equal(flags & ALIVE_SURPLUS, s->waits && !s->is_followed ? ALIVE_SURPLUS : 0);
}

/* The frames of the last events have just made room. */
NUMBERED_TEST(a_frame_that_finds_room_at_the_end_is_no_surplus, 32, c.entries = 4)
{
        triggers_and_frames(t, 3);
        frame_comes(t, 3);
        assert_int_equal(frame_begins(t, 4), ROS_FULL);
        (void)ros_sends(t, 0);
        ros_gets_keep_alive(t, RUN_ENDED, 3, 7);
        assert_int_equal(reported_flags(t) & (ALIVE_SURPLUS | ALIVE_UNRELIABLE), 0);
        frames_come(t, 4, 3);
        assert_int_equal(frame_begins(t, 7), ROS_FULL);
        assert_int_equal(reported_flags(t) & (ALIVE_SURPLUS | ALIVE_UNRELIABLE), ALIVE_SURPLUS);
}

/* All frames come before their triggers, and the triggers skip the numbers as well. */
NUMBERED_TEST(numbers_without_a_trigger_are_no_leap, 16, c.entries = 1000)
{
        trigger(t, 0, 0);
        frames_come(t, 0, 100);
        frames_come(t, 120, 320);
        for (uint32_t i = 1; i < 400; i++)
                trigger(t, i, i < 100 ? i : i + 20);
        ros_gets_keep_alive(t, RUN_ENDED, 400, 7);
        assert_int_equal(ros_leap(t->ros), 0);
}
