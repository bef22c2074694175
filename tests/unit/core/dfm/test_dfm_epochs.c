/* All boards restart their counts: all earlier events end, and then the numbers are reset. */
#include "dfm_order_driver.h"

/* Those of the first two ROSs. */
static void boards_begin_again(struct dfm_driver *t)
{
        for (uint16_t i = 0; i < 2; i++)
                ros_says_alive(t, i, RUN_RUNNING, ALIVE_OUT_OF_STEP);
}

static void step_on(struct dfm_driver *t)
{
        while (dfm_makes(t))
                continue;
}

/* After the reset, the L1 ID of a Clear would be that of another trigger. */
FRAMES_TEST(clears_precede_a_reset, 2, 64, 7, c.clear_group = 100)
{
        uint32_t resets = 0;

        boards_begin_again(t);
        while (dfm_makes(t)) {
                if (t->message.header.type != MESSAGE_KEEP_ALIVE || t->message.keep_alive.resets != 2)
                        continue;
                resets++;
                assert_int_equal(t->message.keep_alive.oldest, 1);
        }
        assert_int_equal(resets, 1);
}

/* A ROS whose board did not begin again does not delay the reset: its numbers wait there. */
FRAMES_TEST(a_ros_in_step_does_not_prevent_a_reset, 3, 64, 7)
{
        announce_one(t, 0, 8);
        boards_begin_again(t);
        went_on = 0;
        /* Event 1 stays open. */
        step_on(t);
        announce_range(t, 2, 9, 3);
        while (dfm_makes(t))
                assert_int_not_equal(t->message.header.type, MESSAGE_ASSIGN);
        assert_int_equal(t->dfm->order.n, 0);
        /* A late number from before the boards restarted still counts. */
        announce_one(t, 1, 9);
        assert_takes(t, "9");
        sfi_acks(t, 0, 3);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        assert_takes(t, "");
        assert_int_equal(offered(t)->resets, 1);
        assert_int_equal(went_on, 0);
}

/* Events take so long to end that a board reaches numbers without a trigger: its ROS believes it again. */
FRAMES_TEST(a_ros_that_returns_prevents_a_reset, 3, 64, 7)
{
        announce_one(t, 0, 8);
        announce_one(t, 1, 8);
        boards_begin_again(t);
        step_on(t);
        announce_one(t, 2, 9);
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        sfi_acks(t, 0, 2);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        assert_takes(t, "");
        assert_int_equal(offered(t)->resets, 0);
        assert_int_equal(went_on, 1);
        announce_one(t, 1, 9);
        assert_takes(t, "9");
}
