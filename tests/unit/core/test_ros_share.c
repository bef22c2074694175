/* Limits on the resources of a ROS that one SFI, message or event can use: the share of others stays, and a
 * release costs no more than the released items. */
#include "ros_driver.h"

#define ITEMS (10u + 4096u) /* of ros_standard(): entries, and some more */

/* It requests but takes nothing, as if its connection were frozen. */
static void freeze(struct ros_driver *t, uint16_t sfi)
{
        for (uint32_t i = 0; i < 2 * ITEMS; i++)
                ros_gets_request_part(t, sfi, 0, 32, 64, 0);
}

ROS_TEST(a_frozen_sfi_leaves_the_others_their_share)
{
        const uint32_t share = ITEMS / 2 / 3;
        struct ros_job job;

        freeze(t, 0);
        assert_int_equal(ros_counts(t->ros)->full, 2 * ITEMS - (ITEMS - 2 * share));
        for (uint32_t i = 0; i < share; i++) {
                ros_gets_request_part(t, 1, 1, 32, 64, 0);
                ros_gets_request_part(t, 2, 1, 32, 64, 0);
        }
        assert_int_equal(ros_counts(t->ros)->full, 2 * ITEMS - (ITEMS - 2 * share));
        ros_gets_request_part(t, 2, 1, 32, 64, 0);
        assert_int_equal(ros_counts(t->ros)->full, 2 * ITEMS - (ITEMS - 2 * share) + 1);
        /* The others continue, round after round. */
        for (uint32_t i = 0; i < 3 * ITEMS; i++) {
                assert_int_equal(ros_jobs(t->ros, 1, &job, 1), 1);
                ros_sent(t->ros, 1, 1, 0);
                ros_gets_request_part(t, 1, 1, 32, 64, 0);
        }
        assert_int_equal(ros_counts(t->ros)->full, 2 * ITEMS - (ITEMS - 2 * share) + 1);
}

ROS_TEST(a_forgotten_sfi_releases_its_share)
{
        for (int round = 0; round < 3; round++) {
                uint64_t full = ros_counts(t->ros)->full;

                freeze(t, (uint16_t)round);
                assert_int_equal(ros_counts(t->ros)->full - full, 2 * ITEMS - (ITEMS - 2 * (ITEMS / 2 / 3)));
                ros_forget_sfi(t->ros, (uint32_t)round);
                assert_int_equal(ros_next_with_jobs(t->ros, 0), UINT32_MAX);
        }
        /* Its previous jobs no longer count as queued. */
        ros_gets_request(t, 2, 0, 0);
        ros_forget_sfi(t->ros, 2);
        ros_gets_request(t, 2, 0, 1);
        assert_ros_sends(t, 2, "e0[0,1000) fill");
        /* The end of the run does not wait for it either. */
        ros_gets_clear(t, 0);
        ros_gets_request(t, 1, 1, 0);
        ros_stop(t->ros, t->now_ns);
        ros_forget_sfi(t->ros, 1);
        assert_false(ros_is_drained(t->ros));
        ros_gets_clear(t, 1);
        assert_true(ros_is_drained(t->ros));
}

ROS_TEST(arriving_frames_do_not_go_to_a_forgotten_sfi, c.describe = NULL)
{
        struct ros_fragment f = {.bytes = 100};
        uint64_t at;

        for (uint64_t event = 0; event < 3; event++)
                ros_gets_assign(t, event, 2, 0);
        ros_forget_sfi(t->ros, 2);
        ros_gets_assign(t, 1, 0, 0); /* it was assigned to another SFI */
        for (int i = 0; i < 2; i++) {
                assert_int_equal(ros_arrive(t->ros, NULL, &f, &at), ROS_STORE);
                ros_commit(t->ros);
        }
        assert_ros_sends(t, 0, "e1[0,100)");
        assert_ros_sends(t, 2, "");
}

static void assert_queued(const struct ros_driver *t, uint32_t sfi, uint32_t jobs, uint64_t bytes)
{
        struct ros_queued q = ros_queued(t->ros, sfi);

        assert_fields(&q, jobs, jobs, bytes, bytes);
}

/* Each message reports to its SFI how much is still queued: payload of all jobs, including parts. */
ROS_TEST(a_queue_counts_its_bytes)
{
        struct ros_job jobs[8];

        assert_queued(t, 0, 0, 0);
        ros_gets_assigns(t, 0, 4);
        ros_gets_request_part(t, 1, 0, 32, 100, 1); /* ranges end on a block */
        ros_gets_request_part(t, 1, 1, 992, UINT32_MAX, 1);
        assert_queued(t, 0, 4, 4000);
        assert_queued(t, 1, 2, 64 + 8);
        assert_int_equal(ros_jobs(t->ros, 0, jobs, ARRAY_SIZE(jobs)), 4);
        ros_sent(t->ros, 0, 1, 320);
        assert_queued(t, 0, 3, 3000 - 320);
        ros_sent(t->ros, 0, 0, 640);
        assert_queued(t, 0, 3, 3000 - 640);
        ros_gets_clear(t, 2);
        assert_int_equal(ros_jobs(t->ros, 0, jobs, ARRAY_SIZE(jobs)), 2);
        assert_queued(t, 0, 2, 2000 - 640);
        ros_sent(t->ros, 0, 2, 0);
        assert_queued(t, 0, 0, 0);
        ros_forget_sfi(t->ros, 1);
        assert_queued(t, 1, 0, 0);
}

ROS_TEST(clears_all_events_below_the_oldest, c.entries = 100)
{
        static const uint64_t jumps[] = {1, 2, 3, 50, 1000000};
        uint64_t oldest = 0;

        for (int round = 0; round < 200; round++) {
                uint64_t from = oldest, step = MAX(jumps[round % 5] / 4, UINT64_C(1)), below;

                oldest += jumps[round % 5];
                /* Held out of order, some below the new oldest and some above; one is in use. */
                for (uint64_t k = 0; k < 9; k++)
                        ros_gets_assign(t, from + k * 7 % 9 * step, 0, 0);
                below = ros_held(t->ros);
                ros_pin(t->ros, 0);
                ros_gets_keep_alive(t, RUN_RUNNING, oldest, 7);
                ros_unpin(t->ros, 0);
                assert_true(ros_held(t->ros) < below);
                for (uint64_t k = 0; k < 9; k++)
                        ros_gets_clear(t, from + k * step);
                ros_sends(t, 0);
                assert_int_equal(ros_held(t->ros), 0);
        }
}

ROS_TEST(an_event_far_beyond_all_others_is_refused)
{
        ros_gets_assign(t, 5, 0, 0);
        ros_gets_request(t, 0, 5 + EVB_EVENT_WINDOW + 1, 0);
        ros_gets_request(t, 0, UINT64_C(1) << 63, 0);
        assert_int_equal(ros_held(t->ros), 1);
        assert_int_equal(ros_counts(t->ros)->implausible, 2);
        ros_gets_request(t, 0, 5 + EVB_EVENT_WINDOW, 0);
        assert_int_equal(ros_held(t->ros), 2);
        /* The DFM reports the run's progress. */
        ros_gets_keep_alive(t, RUN_RUNNING, UINT64_C(1) << 40, 7);
        ros_gets_request(t, 0, (UINT64_C(1) << 40) + EVB_EVENT_WINDOW - 1, 0);
        assert_int_equal(ros_held(t->ros), 1);
        assert_int_equal(ros_counts(t->ros)->implausible, 2);
}
