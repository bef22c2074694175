/* The ROS with fragments that arrive by themselves: frame k is for event k, before or after the first
 * request for it. */
#include "ros_driver.h"

static struct ros_config arriving(void)
{
        struct ros_config c = ros_standard();

        c.describe = NULL;
        return c;
}

#define ARRIVING_TEST_EACH(name, i, n, ...)                                                                  \
        ROS_TEST_EACH_AS(name, i, n, arriving(), ros_driver_init(t, &c), ##__VA_ARGS__)
#define ARRIVING_TEST(name, ...) ARRIVING_TEST_EACH(name, once, 1, ##__VA_ARGS__)

static enum ros_verdict frame_begins(struct ros_driver *t, uint32_t bytes)
{
        struct ros_fragment f = {.bytes = bytes};
        uint64_t at;

        return ros_arrive(t->ros, NULL, &f, &at);
}

static void frame_comes(struct ros_driver *t)
{
        assert_int_equal(frame_begins(t, 1000), ROS_STORE);
        ros_commit(t->ros);
}

ARRIVING_TEST(an_arrived_fragment_is_sent_at_once)
{
        frame_comes(t);
        frame_comes(t);
        assert_int_equal(ros_held(t->ros), 2);
        assert_int_equal(ros_next_with_jobs(t->ros, 0), UINT32_MAX);
        ros_gets_assign(t, 1, 0, 0);
        assert_ros_sends(t, 0, "e1[0,1000)");
}

ARRIVING_TEST(a_requested_fragment_is_sent_on_arrival)
{
        ros_gets_assign(t, 1, 2, 0);
        ros_gets_request(t, 0, 0, 0);
        assert_int_equal(ros_next_with_jobs(t->ros, 0), UINT32_MAX);
        frame_comes(t);
        assert_ros_sends(t, 0, "e0[0,1000)");
        assert_ros_sends(t, 2, "");
        assert_int_equal(frame_begins(t, 500), ROS_STORE);
        assert_ros_sends(t, 2, "");
        ros_commit(t->ros);
        assert_ros_sends(t, 2, "e1[0,500)");
}

ARRIVING_TEST(a_fragment_is_sent_only_when_complete)
{
        assert_int_equal(frame_begins(t, 1000), ROS_STORE);
        ros_gets_assign(t, 0, 0, 0); /* while its bytes arrive */
        assert_ros_sends(t, 0, "");
        ros_commit(t->ros);
        assert_ros_sends(t, 0, "e0[0,1000)");
        /* Nor if it breaks off. */
        assert_int_equal(frame_begins(t, 1000), ROS_STORE);
        ros_gets_assign(t, 1, 0, 0);
        ros_skip(t->ros, 1);
        assert_ros_sends(t, 0, "e1 lost");
}

ARRIVING_TEST(a_fragment_goes_to_the_last_requester)
{
        ros_gets_assign(t, 0, 2, 0);
        ros_gets_assign(t, 0, 1, 0);
        frame_comes(t);
        assert_ros_sends(t, 2, "");
        assert_ros_sends(t, 1, "e0[0,1000)");
}

ARRIVING_TEST(a_frame_that_does_not_come_in_time_is_pending)
{
        ros_gets_request(t, 0, 0, 0);
        t->now_ns += 1;
        ros_gets_request(t, 2, 1, 0);
        t->now_ns += c.wait_ns - 2;
        ros_gets_request(t, 0, 0, 1);
        ros_says(t);
        assert_int_equal(ros_deadline_ns(t->ros), t->now_ns + 1);
        ros_expire(t->ros, t->now_ns);
        assert_ros_sends(t, 0, "");
        t->now_ns += 1;
        ros_expire(t->ros, t->now_ns);
        assert_ros_sends(t, 0, "e0 pending");
        assert_ros_sends(t, 2, "");
        ros_gets_request(t, 1, 0, 1); /* any further request gets the same answer at once */
        assert_ros_sends(t, 1, "e0 pending");
        t->now_ns += 1;
        ros_expire(t->ros, t->now_ns);
        assert_ros_sends(t, 2, "e1 pending");
        /* Its frame is late, and the next ones keep their numbers. */
        assert_int_equal(frame_begins(t, 1000), ROS_DISCARD);
        ros_commit(t->ros);
        assert_ros_sends(t, 0, "");
        assert_int_equal(ros_counts(t->ros)->late, 1);
        assert_int_equal(frame_begins(t, 1000), ROS_DISCARD);
        ros_commit(t->ros);
        ros_gets_request(t, 0, 2, 0);
        frame_comes(t);
        assert_ros_sends(t, 0, "e2[0,1000)");
        ros_gets_keep_alive(t, RUN_RUNNING, 3, 7);
        assert_counts(ros_counts(t->ros), absent, 2, used, 1);
}

ARRIVING_TEST(a_skipped_frame_is_lost)
{
        ros_gets_request(t, 1, 1, 0);
        ros_skip(t->ros, 3);
        assert_ros_sends(t, 1, "e1 lost");
        assert_int_equal(ros_counts(t->ros)->source_lost, 3);
        assert_int_equal(ros_held(t->ros), 0);
        ros_gets_request(t, 0, 2, 0);
        assert_ros_sends(t, 0, "e2 lost");
        assert_int_equal(ros_counts(t->ros)->unknown, 1);
        frame_comes(t);
        ros_gets_request(t, 0, 3, 0);
        assert_ros_sends(t, 0, "e3[0,1000)");
}

ARRIVING_TEST(a_truncated_arrival_is_lost)
{
        for (int wanted = 0; wanted < 2; wanted++) {
                if (wanted)
                        ros_gets_request(t, 0, 1, 0);
                assert_int_equal(frame_begins(t, 1000), ROS_STORE);
                ros_skip(t->ros, 1);
                assert_ros_sends(t, 0, wanted ? "e1 lost" : "");
                assert_int_equal(ros_held(t->ros), 0);
        }
        assert_int_equal(ros_counts(t->ros)->source_lost, 2);
        frame_comes(t);
        assert_int_equal(ros_held(t->ros), 1);
}

ARRIVING_TEST(a_frame_of_a_cleared_event_is_not_stored)
{
        ros_gets_request(t, 0, 0, 0);
        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7);
        assert_int_equal(ros_held(t->ros), 0);
        assert_int_equal(frame_begins(t, 1000), ROS_DISCARD);
        ros_commit(t->ros);
        assert_int_equal(ros_counts(t->ros)->late, 1);
        frame_comes(t);
        assert_int_equal(ros_held(t->ros), 1);
}

ARRIVING_TEST(a_fragment_cleared_during_arrival_is_released_at_its_end)
{
        for (int broken = 0; broken < 2; broken++) {
                assert_int_equal(frame_begins(t, 1000), ROS_STORE);
                ros_gets_clear(t, (uint64_t)broken);
                assert_int_equal(ros_held(t->ros), 1); /* bytes are still being written there */
                if (broken)
                        ros_skip(t->ros, 1);
                else
                        ros_commit(t->ros);
                assert_int_equal(ros_held(t->ros), 0);
        }
}

ARRIVING_TEST(a_full_buffer_refuses_frames)
{
        assert_int_equal(frame_begins(t, EVB_FRAGMENT_MAX_BYTES), ROS_STORE);
        ros_commit(t->ros);
        for (int wanted = 0; wanted < 2; wanted++) {
                if (wanted)
                        ros_gets_request(t, 0, 1, 0);
                assert_int_equal(frame_begins(t, 1), ROS_FULL);
                assert_int_equal(ros_counts(t->ros)->full, 1); /* one frame, however often it is tried */
        }
        assert_ros_says(t, "");
        ros_gets_clear(t, 0);
        assert_ros_says(t, "");
        frame_comes(t);
        assert_ros_sends(t, 0, "e1[0,1000)");
}

static void frames_come(struct ros_driver *t, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                frame_comes(t);
}

#define assert_reports(t, n)                                                                                 \
        do {                                                                                                 \
                (t)->now_ns += NS_PER_MS;                                                                    \
                assert_ros_says(t, "dfm: Alive running");                                                    \
                assert_int_equal((t)->message.alive.frames, n);                                              \
        } while (0)

ARRIVING_TEST(the_dfm_learns_of_frames_before_it_needs_them)
{
        frame_comes(t);
        assert_ros_says_after(t, NS_PER_MS, ""); /* there are no triggers yet */
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        t->now_ns -= NS_PER_MS;
        assert_reports(t, 1);
        frames_come(t, 2);
        assert_ros_says(t, "");
        assert_int_equal(ros_deadline_ns(t->ros), t->now_ns + NS_PER_MS);
        assert_reports(t, 3);
        frames_come(t, 7);
        assert_reports(t, 10);
        /* Half of the frames reported to the DFM are used. */
        for (uint64_t event = 0; event < 5; event++) {
                assert_ros_says_after(t, NS_PER_MS, "");
                ros_gets_assign(t, event, 0, 0);
                ros_gets_clear(t, event);
                frame_comes(t);
        }
        assert_reports(t, 15);
        assert_int_equal(ros_deadline_ns(t->ros), TRACE_BEGIN_NS + c.keep_alive_ns);
}

ARRIVING_TEST(a_front_end_without_a_wanted_frame_is_hungry)
{
        ros_expire(t->ros, t->now_ns);
        assert_int_equal(ros_hungry_since_ns(t->ros), 0);
        for (int by_trigger = 0; by_trigger < 2; by_trigger++) {
                t->keep_alive_flags = by_trigger ? KEEP_ALIVE_AWAITS_FRAMES : 0;
                if (by_trigger)
                        ros_gets_keep_alive(t, RUN_RUNNING, 1, 7); /* the trigger of event 1 waits */
                else
                        ros_gets_assign(t, 0, 0, 0);
                ros_expire(t->ros, t->now_ns);
                assert_int_equal(ros_hungry_since_ns(t->ros), t->now_ns);
                t->now_ns += NS_PER_MS;
                ros_expire(t->ros, t->now_ns);
                assert_int_equal(ros_hungry_since_ns(t->ros), t->now_ns - NS_PER_MS);
                frame_comes(t);
                for (int i = 0; i < 2; i++) {
                        ros_expire(t->ros, t->now_ns);
                        assert_int_equal(ros_hungry_since_ns(t->ros), 0);
                }
        }
}

static uint64_t hungry_for_ns(struct ros_driver *t)
{
        ros_expire(t->ros, t->now_ns);
        return ros_hungry_since_ns(t->ros) > 0 ? t->now_ns - ros_hungry_since_ns(t->ros) : 0;
}

/* The board missed the last trigger, and no other one follows for a while: it is not silent, unless the DFM
 * has left it out. */
ARRIVING_TEST_EACH(a_front_end_is_not_hungry_without_triggers, left_out, 2,
                   c.number_period = number_period(16))
{
        t->message.keep_alive.ros_live[0] = left_out ? 0 : UINT64_MAX;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        ros_gets_assign(t, 0, 0, 0);
        assert_int_equal(hungry_for_ns(t), 0);
        t->now_ns += c.wait_ns - NS_PER_MS;
        assert_int_equal(hungry_for_ns(t), c.wait_ns - NS_PER_MS);
        for (int i = 0; i < 3; i++) {
                t->now_ns += NS_PER_S;
                assert_int_equal(hungry_for_ns(t), left_out ? c.wait_ns - NS_PER_MS : 0);
        }
        /* Another trigger without a frame. */
        ros_gets_assign(t, 1, 0, 0);
        assert_int_equal(hungry_for_ns(t), c.wait_ns - NS_PER_MS);
        t->now_ns += NS_PER_MS;
        assert_int_equal(hungry_for_ns(t), c.wait_ns);
}

/* Nobody else makes triggers, so no event waits for its frames. */
ROS_TEST_EACH_AS(only_a_leading_front_end_is_hungry_without_triggers, leads, 2, arriving(),
                 ros_driver_init(t, &c), c.number_period = number_period(16), c.announces = true,
                 c.leads = leads, c.message_bytes = 1400)
{
        t->keep_alive_flags = KEEP_ALIVE_AWAITS_FRAMES;
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 7);
        ros_expire(t->ros, t->now_ns);
        assert_int_equal(ros_hungry_since_ns(t->ros), leads ? t->now_ns : 0);
}

/* The front-end is ahead of the trigger: it waits for room, and triggers continue. */
ARRIVING_TEST(untriggered_frames_hold_no_trigger_back)
{
        frames_come(t, 10);
        assert_int_equal(frame_begins(t, 1000), ROS_FULL);
        assert_ros_says(t, "");
        for (uint64_t event = 0; event < 100; event++) {
                ros_gets_assign(t, event, 0, 0);
                assert_ros_says(t, "");
                ros_gets_clear(t, event);
                frame_comes(t);
                assert_int_equal(frame_begins(t, 1000), ROS_FULL);
        }
        /* Triggered frames count, in push and in pull. */
        ros_gets_assigns(t, 100, 108);
        ros_gets_request(t, 0, 107, 1); /* once each */
        assert_ros_says(t, "");
        ros_gets_request(t, 1, 108, 0);
        assert_ros_says(t, "dfm: XOFF");
        ros_gets_clears(t, 100, 103);
        frames_come(t, 3); /* unwanted frames take their places */
        assert_ros_says(t, "dfm: XON");
}

ARRIVING_TEST(bytes_count_once_they_are_triggered, c.buffer_bytes = 10u << 20, c.entries = 100)
{
        for (int i = 0; i < 10; i++) {
                assert_int_equal(frame_begins(t, 1u << 20), ROS_STORE);
                ros_commit(t->ros);
        }
        ros_gets_assigns(t, 0, 8);
        assert_ros_says(t, "");
        ros_gets_assign(t, 8, 0, 0);
        assert_ros_says(t, "dfm: XOFF");
        ros_gets_clears(t, 0, 4);
        assert_ros_says(t, "dfm: XON");
        /* They count from their arrival, although requested earlier. */
        ros_gets_clear(t, 9);
        ros_gets_assigns(t, 10, 14);
        for (int i = 0; i < 4; i++) {
                assert_ros_says(t, "");
                assert_int_equal(frame_begins(t, 1u << 20), ROS_STORE);
                ros_commit(t->ros);
        }
        assert_ros_says(t, "dfm: XOFF");
}

/* Other ROSs are ahead. Whatever this ROS waits for, the next frame finds room. */
ARRIVING_TEST(expected_frames_leave_room_for_arrivals)
{
        for (uint64_t event = 1; event < 20; event++)
                ros_gets_request(t, 0, event, 0);
        assert_ros_says(t, "");
        ros_gets_request(t, 0, 0, 0); /* more frames than can be held */
        for (uint64_t event = 0; event < 20; event++) {
                frame_comes(t);
                assert_int_equal(ros_next_with_jobs(t->ros, 0), 0);
                ros_sends(t, 0);
                ros_gets_clear(t, event);
        }
        frames_come(t, 10);
        assert_int_equal(frame_begins(t, 1000), ROS_FULL);
        ros_gets_request(t, 0, 30, 0);
        ros_gets_clear(t, 20);
        frame_comes(t);
        assert_ros_sends(t, 0, "e30[0,1000)");
        assert_int_equal(frame_begins(t, 1000), ROS_FULL);
}

ARRIVING_TEST(a_stopping_ros_does_not_wait_for_triggers)
{
        frames_come(t, 3);
        ros_gets_assign(t, 0, 0, 0);
        ros_sends(t, 0);
        ros_stop(t->ros, t->now_ns);
        assert_false(ros_is_drained(t->ros));
        ros_gets_clear(t, 0);
        assert_true(ros_is_drained(t->ros));
}

ROS_TEST(a_counter_reset_is_answered_at_once)
{
        t->resets = 1;
        ros_gets_keep_alive(t, RUN_STARTING, 0, 1);
        assert_ros_says(t, "");
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        assert_ros_says(t, "dfm: Alive running");
        assert_int_equal(t->message.alive.resets, 1);
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        assert_ros_says(t, "");
}
