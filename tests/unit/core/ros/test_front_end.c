/* What a ROS reports to the DFM about its front-end, and which frames count as used. */
#include "../ros_driver.h"

static struct ros_config arriving(void)
{
        struct ros_config c = ros_standard();

        c.describe = NULL;
        return c;
}

static void frame_comes(struct ros_driver *t)
{
        struct ros_fragment f = {.bytes = 1000};
        uint64_t at;

        assert_int_equal(ros_arrive(t->ros, NULL, &f, &at), ROS_STORE);
        ros_commit(t->ros);
}

static void set_reason(struct ros_driver *t, enum node_reason reason)
{
        ros_set_obstacle(t->ros, &(struct node_obstacle){.reason = reason, .since_ns = t->now_ns});
}

ROS_TEST_AS(the_dfm_learns_at_once_that_a_front_end_is_back, arriving(), ros_driver_init(t, &c))
{
        static const enum node_reason away[] = {REASON_NO_FRONT_END, REASON_SILENT};

        for (size_t i = 0; i < ARRAY_SIZE(away); i++) {
                /* One that is away is reported in time. */
                set_reason(t, away[i]);
                assert_ros_says_after(t, c.keep_alive_ns / 10, "");
                assert_ros_says_after(t, c.keep_alive_ns, "dfm: Alive running");
                assert_int_equal(t->message.alive.reason, away[i]);
                set_reason(t, REASON_BUFFER_FULL);
                assert_int_equal(ros_deadline_ns(t->ros), t->now_ns + NS_PER_MS);
                assert_ros_says_after(t, NS_PER_MS, "dfm: Alive running");
                assert_int_equal(t->message.alive.reason, REASON_BUFFER_FULL);
                /* Once. */
                assert_ros_says_after(t, NS_PER_MS, "");
        }
        /* Nor if it is away again. */
        set_reason(t, REASON_SILENT);
        set_reason(t, REASON_NONE);
        set_reason(t, REASON_NO_FRONT_END);
        assert_ros_says_after(t, NS_PER_MS, "");
}

static void assert_frames(const struct ros_driver *t, unsigned used, unsigned late)
{
        assert_counts(ros_counts(t->ros), used, used, late, late);
}

/* As a frame of a lost event: no SFI builds the event any more, if it was not built before. */
ROS_TEST_AS(a_frame_that_was_sent_counts_as_used_once_the_run_is_over, arriving(), ros_driver_init(t, &c))
{
        ros_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        for (unsigned event = 0; event < 3; event++) {
                frame_comes(t);
                if (event < 2)
                        ros_gets_assign(t, event, 0, 0);
                if (event == 0)
                        assert_ros_sends(t, 0, "e0[0,1000)");
        }
        ros_run_is_over(t);
        assert_frames(t, 1, 1);
        assert_int_equal(ros_counts(t->ros)->left_over, 1);
}

ROS_TEST_AS(a_frame_that_is_not_sent_before_its_event_ends_is_late, arriving(), ros_driver_init(t, &c))
{
        struct ros_job job;

        for (unsigned event = 0; event < 4; event++) {
                frame_comes(t);
                ros_gets_assign(t, event, 0, 0);
        }
        ros_gets_clear(t, 0); /* not sent */
        assert_frames(t, 0, 1);
        assert_ros_sends(t, 0, "e1[0,1000) | e2[0,1000) | e3[0,1000)");
        ros_gets_clear(t, 1); /* sent */
        assert_frames(t, 1, 1);
        ros_gets_request(t, 0, 2, 1);
        ros_gets_clear(t, 2); /* sent, and requested again */
        assert_frames(t, 2, 1);
        ros_forget_sfi(t->ros, 0);
        ros_gets_clear(t, 3); /* sent to an SFI that left */
        assert_frames(t, 3, 1);

        frame_comes(t);
        ros_gets_assign(t, 4, 0, 0);
        assert_int_equal(ros_jobs(t->ros, 0, &job, 1), 1);
        ros_sent(t->ros, 0, 0, 512);
        ros_gets_clear(t, 4); /* sent in part */
        assert_frames(t, 3, 2);
}
