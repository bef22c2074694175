/* Announcements: a ROS reports to the DFM the numbers of frames whose trigger it does not know. */
#include "numbered_driver.h"

static struct ros_config announcing(void)
{
        struct ros_config c = numbered(16);

        c.announces = c.leads = true;
        c.message_bytes = 1472;
        return c;
}

static void ack(struct ros_driver *t, uint32_t sequence, bool go_on)
{
        t->message.numbers_ack.incarnation = (uint32_t)t->config.member.incarnation;
        t->message.numbers_ack.ack = sequence;
        t->message.numbers_ack.resets = t->resets;
        t->message.numbers_ack.go_on = go_on;
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_NUMBERS_ACK, 0));
}

/* The run has begun, and the DFM has received messages from this ROS. */
#define ANNOUNCED_TEST(name, begin, ...) ROS_TEST_AS(name, announcing(), begin(t, &c), ##__VA_ARGS__)

static void start(struct ros_driver *t, const struct ros_config *c)
{
        ros_driver_init(t, c);
        assert_true(ros_deadline_ns(t->ros) > t->now_ns);
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        assert_ros_says(t, "dfm: Numbers #0");
        ack(t, 0, false);
        assert_ros_says(t, "");
        t->now_ns += NS_PER_MS;
}

ANNOUNCED_TEST(the_first_number_leaves_at_once, start)
{
        frame_comes(t, 7);
        assert_ros_says(t, "dfm: Numbers #0 7");
        frame_comes(t, 8);
        frame_comes(t, 9);
        assert_ros_says(t, "");
        assert_int_equal(ros_deadline_ns(t->ros), t->now_ns + NS_PER_MS);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #1 8 9");
        ack(t, 3, false);
        assert_ros_says_after(t, 50 * NS_PER_MS, "");
}

/* ... also if 2^32 is no multiple of the counter's period. */
ANNOUNCED_TEST(a_counter_is_announced_as_it_is, start, c.number_period = 10000)
{
        frames_come(t, 9998, 2);
        frame_comes(t, 0);
        assert_ros_says(t, "dfm: Numbers #0 9998 9999 0");
}

ANNOUNCED_TEST(nothing_is_announced_before_the_run_or_after_it, ros_driver_init, c.keep_alive_ns = NS_PER_S)
{
        frames_come(t, 5, 3);
        assert_ros_says(t, "");
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        assert_ros_says(t, "dfm: Numbers #0");
        ack(t, 0, false);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #0 5 6 7");
        ros_gets_keep_alive(t, RUN_ENDED, 0, 7);
        frame_comes(t, 8);
        assert_ros_says_after(t, 50 * NS_PER_MS, "");
}

/* The DFM waits for what came before the stop, so the ROS says when it has announced all of it. */
ANNOUNCED_TEST(the_last_number_before_a_stop_is_marked, start, c.keep_alive_ns = NS_PER_S)
{
        frames_come(t, 7, 2);
        assert_ros_says(t, "dfm: Numbers #0 7 8");
        frame_comes(t, 9);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        frame_comes(t, 10);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #2 9 last");
        ack(t, 2, false);
        assert_ros_says_after(t, 20 * NS_PER_MS, "dfm: Numbers #2 9 last");
        ack(t, 3, false);
        assert_ros_says(t, "");
        /* The message may be lost. */
        assert_ros_says_after(t, 20 * NS_PER_MS, "dfm: Numbers #3 last");
        assert_ros_says_after(t, 20 * NS_PER_MS, "dfm: Numbers #3 last");
        assert_ros_says_after(t, 40 * NS_PER_MS - 1, "");
        ack(t, 3, false);
        assert_ros_says(t, "");
        assert_ros_says_after(t, 1, "dfm: Numbers #3 last");
        ros_gets_keep_alive(t, RUN_ENDED, 0, 7);
        assert_ros_says_after(t, NS_PER_S / 2, "");
}

/* It serves until the run ends. */
ANNOUNCED_TEST(a_ros_that_leaves_announces_all_numbers, start, c.keep_alive_ns = NS_PER_S)
{
        ros_stop(t->ros, t->now_ns);
        frame_comes(t, 7);
        assert_ros_says(t, "dfm: Alive draining | dfm: Numbers #0 7");
        frame_comes(t, 8);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #1 8 last");
        ack(t, 2, false);
        ros_set_ended(t->ros, t->now_ns);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Alive ended");
        assert_ros_says_after(t, NS_PER_S / 2, "");
}

/* Frames that came before the stop are not complete fragments yet. */
ANNOUNCED_TEST(a_stop_waits_for_fragments_that_are_collected, start, c.keep_alive_ns = NS_PER_S)
{
        frame_comes(t, 7);
        assert_ros_says(t, "dfm: Numbers #0 7");
        ack(t, 1, false);
        ros_set_collecting(t->ros, true);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says_after(t, NS_PER_MS, "");
        frame_comes(t, 8);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #1 8");
        ack(t, 2, false);
        ros_set_collecting(t->ros, false);
        frame_comes(t, 9);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #2 last");
        ros_set_collecting(t->ros, true);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says_after(t, 20 * NS_PER_MS, "dfm: Numbers #2 last");
}

/* Its frames came after the stop, so events of them would follow a gap. */
ROS_TEST_EACH_AS(a_ros_that_restarts_after_a_stop_announces_none, collects, 2, announcing(),
                 ros_driver_init(t, &c), c.keep_alive_ns = NS_PER_S)
{
        ros_set_collecting(t->ros, collects);
        frames_come(t, 5, 3);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says(t, "dfm: Numbers #0 last");
        ack(t, 0, false);
        frame_comes(t, 8);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says_after(t, 20 * NS_PER_MS, "dfm: Numbers #0 last");
}

static void fragment_comes(struct ros_driver *t, uint64_t counter, bool after_stop)
{
        struct ros_fragment f = {.bytes = 100, .frames = 1, .joined = true, .after_stop = after_stop};
        uint64_t at;

        assert_int_equal(ros_arrive(t->ros, &counter, &f, &at), ROS_STORE);
        ros_commit(t->ros);
        t->frames++;
}

static void another_dfm_comes(struct ros_driver *t)
{
        t->dfm = TRACE_DFM + 1;
        t->keep_alive_next = 0;
        ros_gets_keep_alive(t, RUN_STARTING, 0, 7);
        t->now_ns += NS_PER_S;
        ros_says(t);
        ros_gets_welcome(t, TRACE_DFM + 1, WELCOME_OK);
}

/* Fragments may end in another order than they begin. Another DFM knows nothing of the stop. */
ANNOUNCED_TEST(a_fragment_that_began_after_a_stop_is_not_announced, start, c.keep_alive_ns = NS_PER_S)
{
        ros_set_collecting(t->ros, true);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_true(ros_is_stopping(t->ros));
        fragment_comes(t, 8, true);
        assert_ros_says_after(t, NS_PER_MS, "");
        fragment_comes(t, 7, false);
        ros_set_collecting(t->ros, false);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #0 7 last");
        another_dfm_comes(t);
        assert_false(ros_is_stopping(t->ros));
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        ros_says(t);
        ack(t, 0, false);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #0 8 7");
}

/* A DFM that is stopped while it resumes the run does not follow the numbers yet. */
ANNOUNCED_TEST(a_stop_before_a_run_is_resumed_drops_no_frame, start, c.keep_alive_ns = NS_PER_S)
{
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        ros_says(t);
        frames_come(t, 7, 2);
        assert_ros_says(t, "dfm: Numbers #0 7 8");
        t->keep_alive_flags = KEEP_ALIVE_RESUMES;
        t->resets = 0;
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_int_equal(ros_held(t->ros), 2);
        assert_ros_says_after(t, 50 * NS_PER_MS, "");
        t->keep_alive_flags = 0;
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #0 7 8 last");
}

ANNOUNCED_TEST(what_is_not_acknowledged_is_repeated, start, c.keep_alive_ns = NS_PER_S)
{
        frames_come(t, 7, 2);
        assert_ros_says(t, "dfm: Numbers #0 7 8");
        t->now_ns += 2 * NS_PER_MS;
        frame_comes(t, 9);
        assert_ros_says(t, "dfm: Numbers #2 9");
        ack(t, 1, false);
        assert_ros_says_after(t, 20 * NS_PER_MS, "dfm: Numbers #1 8 9");
        assert_ros_says_after(t, 20 * NS_PER_MS - 1, "");
        assert_ros_says_after(t, 1, "dfm: Numbers #1 8 9");
        assert_ros_says_after(t, 40 * NS_PER_MS, "dfm: Numbers #1 8 9");
        /* There was no room, and there is now. */
        ack(t, 2, true);
        assert_ros_says(t, "dfm: Numbers #2 9");
        /* Acknowledgements of what was never sent, of another process, and of another epoch. */
        ack(t, 4, false);
        t->config.member.incarnation++;
        ack(t, 3, false);
        t->config.member.incarnation--;
        t->resets++;
        ack(t, 3, false);
        t->resets--;
        assert_ros_says_after(t, 20 * NS_PER_MS, "dfm: Numbers #2 9");
        ack(t, 3, false);
        assert_ros_says_after(t, 400 * NS_PER_MS, "");
        assert_false(to_ros(t, ROLE_SFI, 0, MESSAGE_NUMBERS_ACK, 0));
}

ANNOUNCED_TEST(frames_with_a_trigger_are_not_announced, start)
{
        trigger(t, 0, 65536 + 7);
        frame_comes(t, 7);
        assert_ros_says(t, "");
        /* The numbers are now L1 IDs. */
        frames_come(t, 8, 2);
        assert_ros_says(t, "dfm: Numbers #0 next 65544 65544 65545");
        frames_come(t, 10, 3);
        trigger(t, 1, 65536 + 10);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #2 next 65547 65547 65548");
}

ANNOUNCED_TEST(a_full_message_leaves_without_pause, start, c.entries = 1000)
{
        frames_come(t, 0, 1);
        ros_says(t);
        t->config.entries = 1000;
        for (uint32_t k = 0; k < 300; k++) {
                struct ros_fragment f = {.bytes = 0};
                uint64_t counter = 1 + k, at;

                assert_int_equal(ros_arrive(t->ros, &counter, &f, &at), ROS_STORE);
                ros_commit(t->ros);
        }
        assert_true(trace_begins(ros_says(t), "dfm: Numbers #1 1 2 3 "));
        assert_int_equal(t->message.n, 256);
        t->now_ns += NS_PER_MS;
        ros_says(t);
        assert_int_equal(t->message.n, 44);
        t->frames = 301;
}

ANNOUNCED_TEST(another_dfm_learns_of_all_frames_again, start)
{
        frames_come(t, 7, 3);
        trigger(t, 0, 7);
        assert_ros_says(t, "dfm: Numbers #0 next 8 8 9");
        ack(t, 2, false);
        another_dfm_comes(t);
        ros_gets_keep_alive(t, RUN_STARTING, 0, 7);
        assert_ros_says(t, "dfm: Alive running");
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        assert_ros_says(t, "dfm: Numbers #0 next 8");
        ack(t, 0, false);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #0 next 8 8 9");
}

/* The board counts from 1000, which is event 0: the first trigger of a run is not a reset. */
static void start_at_1000(struct ros_driver *t, const struct ros_config *c)
{
        start(t, c);
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        ros_says(t);
        frames_come(t, 1000, 2);
        assert_ros_says(t, "dfm: Numbers #0 1000 1001");
        ack(t, 2, false);
        trigger(t, 0, 1000);
}

ANNOUNCED_TEST(a_reset_begins_with_any_number, start_at_1000)
{
        frames_come(t, 0, ROS_STRAYS_MAX);
        assert_ros_says(t, "dfm: Alive running out of step");
        t->resets = 2;
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        assert_ros_says(t, "dfm: Alive running | dfm: Numbers #0");
        ack(t, 0, false);
        t->now_ns += NS_PER_MS;
        /* Frames that came in between were refused. */
        frames_come(t, 5000, 2);
        assert_ros_says(t, "dfm: Numbers #0 5000 5001");
        trigger(t, 1, 5000);
        assert_ros_sends(t, 0, "e1[0,1000)");
}

/* The DFM resets the numbers before it receives that the board agrees with the triggers again. */
ANNOUNCED_TEST(a_reset_may_cross_the_return_to_step, start_at_1000)
{
        frames_come(t, 0, ROS_STRAYS_MAX);
        assert_ros_says(t, "dfm: Alive running out of step");
        frames_come(t, 1002, ROS_AGREEING_MIN);
        assert_false(ros_is_out_of_step(t->ros));
        t->resets = 2;
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        assert_ros_says(t, "dfm: Alive running | dfm: Numbers #0");
        ack(t, 0, false);
        t->now_ns += NS_PER_MS;
        frames_come(t, 1006, 2);
        assert_ros_says(t, "dfm: Numbers #0 1006 1007");
        trigger(t, 1, 1006);
        assert_ros_sends(t, 0, "e1[0,1000)");
}

/* Its board did not begin again, or its ROS has not noticed. */
ANNOUNCED_TEST(a_ros_in_step_expects_number_0, start_at_1000)
{
        t->resets = 2;
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        assert_ros_says(t, "dfm: Alive running | dfm: Numbers #0 next 0");
        ack(t, 0, false);
        t->now_ns += NS_PER_MS;
        frame_comes(t, 1002); /* on its way before */
        frames_come(t, 0, 2);
        assert_ros_says(t, "dfm: Numbers #0 next 0 0 1");
        trigger(t, 1, 0);
        assert_ros_sends(t, 0, "e1[0,1000)");
}

ANNOUNCED_TEST(a_ros_that_does_not_lead_only_reports_its_triggers, ros_driver_init, c.leads = false)
{
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        frames_come(t, 7, 3);
        trigger(t, 0, 7);
        assert_ros_says(t, "dfm: Numbers #0 next 8");
        assert_ros_says_after(t, 20 * NS_PER_MS, "dfm: Numbers #0 next 8");
        ack(t, 0, false);
        frame_comes(t, 10);
        assert_ros_says_after(t, 70 * NS_PER_MS, "");
}

/* Events of the numbers 10, 12 and 13. */
static void start_without_11(struct ros_driver *t, const struct ros_config *c)
{
        static const uint32_t numbers[] = {10, 12, 13};

        start(t, c);
        for (uint32_t event = 0; event < ARRAY_SIZE(numbers); event++) {
                frame_comes(t, numbers[event]);
                trigger(t, event, numbers[event]);
        }
        assert_ros_sends(t, 0, "e0[0,1000) | e1[0,1000) | e2[0,1000)");
}

/* Late in the run, and in no event. */
static void assert_no_event(const struct ros_driver *t, uint64_t late, uint64_t no_event, uint64_t left_over)
{
        const struct ros_counts *c = ros_counts(t->ros);

        assert_counts(c, late, late, no_event, no_event, left_over, left_over);
}

/* The events up to number 14 have ended. Frame 9 is late too: the run would have begun with it. */
ROS_TEST_EACH_AS(a_late_frame_of_the_run_becomes_no_event, leads, 2, announcing(), start_without_11(t, &c),
                 c.leads = leads)
{
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        trigger(t, 3, 14);
        frame_comes(t, 15);
        trigger(t, 4, 15);
        ros_gets_keep_alive(t, RUN_RUNNING, 4, 7);
        frame_comes(t, 9);
        assert_no_event(t, 1, leads, 1);
        frame_comes(t, 11);
        assert_no_event(t, 2, 2 * (unsigned)leads, 1);
        frame_comes(t, 14); /* its event went without it */
        assert_no_event(t, 3, 2 * (unsigned)leads, 1);
}

/* The DFM has received its number, but events of newer triggers end first, as in a pause. If the trigger
 * never comes, the frame is late. */
ROS_TEST_EACH_AS(an_announced_frame_waits_while_newer_events_end, comes, 2, announcing(), start(t, &c))
{
        frames_come(t, 10, 4);
        assert_ros_says(t, "dfm: Numbers #0 10 11 12 13");
        ack(t, 4, false);
        trigger(t, 0, 10);
        trigger(t, 1, 12);
        trigger(t, 2, 13);
        assert_ros_sends(t, 0, "e0[0,1000) | e1[0,1000) | e2[0,1000)");
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        ros_gets_keep_alive(t, RUN_RUNNING, 3, 7);
        assert_no_event(t, 0, 0, 1);
        if (comes) {
                trigger(t, 3, 11);
                assert_ros_sends(t, 0, "e3[0,1000)");
        }
        ros_gets_keep_alive(t, RUN_ENDED, 3 + (uint64_t)comes, 7);
        assert_no_event(t, !comes, !comes, 0);
        assert_counts(ros_counts(t->ros), used, 3 + (unsigned)comes);
}

/* ... but only until the numbers are ahead by half of the room. Its trigger comes too late, or never. */
ROS_TEST_EACH_AS(an_announced_frame_that_is_overtaken_is_late, comes, 2, announcing(), start(t, &c))
{
        frames_come(t, 10, 53);
        (void)ros_says(t);
        ack(t, 53, false);
        trigger(t, 0, 10);
        for (uint32_t event = 1; event < 52; event++)
                trigger(t, event, 11 + event);
        (void)ros_sends(t, 0);
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        ros_gets_keep_alive(t, RUN_RUNNING, 52, 7);
        assert_no_event(t, 1, 1, 0);
        if (comes) {
                trigger(t, 52, 11);
                assert_ros_sends(t, 0, "e52 lost");
        }
        frame_comes(t, 11);
        ros_gets_keep_alive(t, RUN_ENDED, 52 + (uint64_t)comes, 7);
        assert_no_event(t, 1, !comes, 0);
        assert_counts(ros_counts(t->ros), discarded, comes, duplicate, 1, used, 52);
}

/* It waits for a newer one, and none comes. */
ANNOUNCED_TEST(the_last_frame_may_be_late, start_without_11)
{
        frame_comes(t, 11);
        ros_gets_keep_alive(t, RUN_ENDED, 3, 7);
        assert_no_event(t, 1, 1, 0);
        /* After the end, frames of numbers after the last trigger are left over. */
        frame_comes(t, 14);
        frame_comes(t, 11);
        assert_no_event(t, 2, 2, 1);
}

/* ... and at a stop, none is needed. But the frames of a board that counts anew have other triggers. */
ROS_TEST_EACH_AS(the_last_frame_before_a_stop_may_be_late, anew, 2, announcing(), start_without_11(t, &c))
{
        frame_comes(t, anew ? 10 : 11);
        frame_comes(t, anew ? 11 : 9);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says_after(t, NS_PER_MS,
                              anew ? "dfm: Numbers #0 next 14 last" : "dfm: Numbers #0 next 14 11 9 last");
        ros_gets_keep_alive(t, RUN_ENDED, 3, 7);
        assert_no_event(t, 1, 1, !anew); /* 9 is from before the run */
}

/* The board was ahead for some frames, so it is unknown which numbers are right. */
ANNOUNCED_TEST(a_stop_confirms_no_frame_after_a_leap, start_without_11)
{
        frames_come(t, 213, 2);
        frame_comes(t, 14);
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #0 next 14 213 214 last");
}

ANNOUNCED_TEST(what_the_end_overtakes_becomes_no_event, start_without_11)
{
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        frame_comes(t, 11);
        frames_come(t, 14, 2);
        assert_no_event(t, 0, 0, 6);
        ros_gets_keep_alive(t, RUN_ENDED, 3, 7);
        assert_no_event(t, 1, 1, 2);
}

/* The DFM learned of 11, and did not take it before the stop. With level 2, it may have rejected it. */
ROS_TEST_EACH_AS(what_was_announced_and_not_taken_becomes_no_event, level2, 2, announcing(),
                 start_without_11(t, &c), c.level2 = level2)
{
        frame_comes(t, 11);
        frame_comes(t, 14);
        t->now_ns += NS_PER_MS;
        assert_non_null(strstr(ros_says(t), "dfm: Numbers #0 next 14 14 11"));
        trigger(t, 3, 14);
        assert_ros_sends(t, 0, "e3[0,1000)");
        ros_gets_keep_alive(t, RUN_DRAINING, 0, 7);
        ros_gets_keep_alive(t, RUN_ENDED, 4, 7);
        assert_no_event(t, !level2, !level2, (unsigned)level2);
}

/* The other boards have none of its number yet. Later numbers show that it was wrong, or overtook others. */
static const uint32_t firsts[] = {1, 4, 10, 14, 15, 16, 17, 18, 19, 20, 30, 100, 5500};

ROS_TEST_EACH_AS(one_wrong_first_number_costs_only_its_frame, k, ARRAY_SIZE(firsts), announcing(),
                 start(t, &c), c.number_period = number_period(32), c.entries = 1000)
{
        frame_comes(t, firsts[k]);
        frames_come(t, 0, 4);
        t->now_ns += NS_PER_MS;
        assert_string_not_equal(ros_says(t), "");
        frames_come(t, 4, 46);
        triggers(t, 0, 50);
        frames_come(t, 50, 70);
        triggers(t, 50, 120);
        assert_int_equal(ros_counts(t->ros)->restarts, 0);
        assert_int_equal(ros_counts(t->ros)->impossible + ros_counts(t->ros)->duplicate, 1);
        assert_int_equal(ros_counts(t->ros)->early_impossible + ros_counts(t->ros)->early_duplicate, 0);
        assert_int_equal(ros_queued(t->ros, 0).jobs, 120);
}

/* What was lost before the board began again is told: it was to be in events. */
ANNOUNCED_TEST(losses_before_the_first_trigger_are_told, start, c.number_period = number_period(32))
{
        frames_come(t, 100, 5);
        frames_come(t, 1u << 28, 8);
        frames_come(t, 0, 20);
        assert_counts(ros_counts(t->ros), impossible, 8, early_impossible, 0);
}

static bool is_unreliable(struct ros_driver *t)
{
        t->now_ns += NS_PER_S;
        ros_says(t);
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        t->now_ns += NS_PER_S;
        while (ros_step(t->ros, t->now_ns, &(struct message_to){}, &t->message))
                if (t->message.header.type == MESSAGE_ALIVE)
                        return t->message.alive.flags & ALIVE_UNRELIABLE;
        return false;
}

/* A single wrong number has already made an event: the frame is not that of the event. */
static const struct {
        uint64_t next, n; /* after the number that leapt */
        bool ended, expected;
} leaps[] = {{20, 1, false, false}, {20, 5, false, true}, {20, 1, true, true}, {220, 5, false, false}};

ROS_TEST_EACH_AS(a_wrong_number_that_made_an_event_is_reported, i, ARRAY_SIZE(leaps), announcing(),
                 start(t, &c))
{
        triggers_and_frames(t, 20);
        frame_comes(t, 219);
        trigger(t, 20, 219);
        for (uint64_t k = 0; k < leaps[i].n; k++) {
                frame_comes(t, leaps[i].next + k);
                trigger(t, (uint32_t)(21 + k), (uint32_t)(leaps[i].next + k));
        }
        if (leaps[i].ended)
                ros_gets_keep_alive(t, RUN_ENDED, 22, 7);
        assert_int_equal(is_unreliable(t), leaps[i].expected);
}

/* Each frame that came since the run began makes an event, or is lost: those of before are none of the run.
 */
ANNOUNCED_TEST(frames_without_room_are_lost_from_the_beginning_of_the_run, ros_driver_init, c.entries = 4,
               c.datagrams = true)
{
        frames_come(t, 0, 6);
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        assert_counts(ros_counts(t->ros), dropped, 0, left_over, 6);
        frames_come(t, 6, 10);
        assert_counts(ros_counts(t->ros), dropped, 6, pushed_out, 6, left_over, 10);
        assert_ros_says(t, "dfm: Numbers #0");
        ack(t, 0, false);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #0 12 13 14 15");
        /* What was announced may be an event, and counts then. */
        frames_come(t, 16, 1);
        assert_counts(ros_counts(t->ros), dropped, 6, left_over, 11);
        trigger(t, 0, 12);
        assert_counts(ros_counts(t->ros), dropped, 7, pushed_out, 7, left_over, 10);
}

/* The run begins after all frames that were discarded before it. */
ANNOUNCED_TEST(late_frames_do_not_begin_the_run_before_discarded_ones, ros_driver_init, c.entries = 4,
               c.datagrams = true)
{
        frame_comes(t, 1);
        frame_comes(t, 3);
        frame_comes(t, 2);
        frames_come(t, 4, 3); /* 1 and 3 are discarded */
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        assert_ros_says(t, "dfm: Numbers #0");
        ack(t, 0, false);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #0 4 5 6");
        frame_comes(t, 0);
        frame_comes(t, 7);
        assert_ros_says_after(t, NS_PER_MS, "dfm: Numbers #3 7");
        assert_counts(ros_counts(t->ros), dropped, 0, late, 0, left_over, 8);
}
