/* Whether the DFM has work, and the end of a run that makes no progress. */
#include "../dfm_outside.h"

DFM_TEST_AS(a_run_without_triggers_has_no_work, dfm_standard(), dfm_driver_init(t, &c),
            c.trigger_rate_millihertz = 1 /* the second one is due after 1000 s */)
{
        assert_false(dfm_has_work(t->dfm));
        dfm_driver_fini(t);
        dfm_driver_start(t, &c);
        sfi_grants(t, 0, 3);
        dfm_says_with(t, false);
        assert_true(dfm_has_work(t->dfm));
        sfi_acks(t, 0, 1);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 1);
        assert_false(dfm_has_work(t->dfm));
}

DFM_TEST(open_events_and_triggers_held_back_are_work)
{
        uint64_t before;

        dfm_says_with(t, false);
        assert_true(dfm_run_view(t->dfm).is_busy && dfm_has_work(t->dfm));
        before = dfm_progress(t->dfm);
        sfi0_takes(t, 1);
        assert_true(dfm_has_work(t->dfm));
        assert_int_equal(dfm_progress(t->dfm), before); /* an accepted trigger alone is none */
        sfi_ends(t, 0, 0, EVENT_PARTIAL, 1);
        assert_true(dfm_progress(t->dfm) > before);
}

/* A run that only loses events would never end otherwise. */
DFM_TEST(a_lost_event_is_no_progress)
{
        uint64_t before;

        dfm_says_with(t, false);
        sfi0_takes(t, 1);
        before = dfm_progress(t->dfm);
        sfi_ends(t, 0, 0, EVENT_LOST, 0);
        assert_int_equal(dfm_counts(t->dfm)->lost, 1);
        assert_int_equal(dfm_progress(t->dfm), before);
}

/* All events of a run without a ROS would be lost. */
DFM_TEST(triggers_wait_for_a_ros)
{
        for (uint16_t i = 0; i < 2; i++)
                ros_says_alive(t, i, RUN_ENDED, 0);
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 0);
        assert_true(dfm_run_view(t->dfm).is_busy && dfm_has_work(t->dfm));
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 3);
}

/* No ROS has a frame of the next trigger: perhaps there is no beam. If one ROS has a frame, the others miss
 * theirs. */
DFM_TEST(a_pause_of_the_front_ends_is_no_work)
{
        for (uint16_t i = 0; i < 2; i++)
                ros_says_alive(t, i, RUN_RUNNING, ALIVE_COUNTS); /* 0 frames */
        sfi_grants(t, 0, 3);
        dfm_says_with(t, false);
        assert_true(dfm_run_view(t->dfm).waits_for_frames);
        assert_false(dfm_has_work(t->dfm));
        ros_says_alive(t, 0, RUN_RUNNING, 0); /* this one has all frames */
        dfm_says_with(t, false);
        assert_true(dfm_has_work(t->dfm));
}

DFM_TEST(a_stalled_run_ends_with_accounts)
{
        const struct finished_entry writing = {.event = 1, .end = UPDATE_WRITING};

        sfi0_takes(t, 3);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_true(sfi_says_update(t, 0, t->sfis[0].finished++, 1, &writing));
        assert_int_equal(dfm_abandon(t->dfm, t->now_ns), 0); /* it does not drain */
        assert_int_equal(dfm_open_events(t->dfm), 2);
        dfm_stop_stalled(t->dfm, t->now_ns);
        assert_true(keep_alive_flags(t) & KEEP_ALIVE_STALLED);
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        assert_true(dfm_has_work(t->dfm));
        assert_int_equal(dfm_abandon(t->dfm, t->now_ns), 2);
        dfm_pass_ns(t, c.clear_after_ns);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_false(dfm_has_work(t->dfm));
        assert_counts(dfm_counts(t->dfm), complete, 1, lost, 2);
}

/* Also those that wait for level 2, or for another SFI. */
DFM_TEST_AS(events_without_an_sfi_are_given_up_too, dfm_standard(), dfm_driver_init(t, &c),
            c.level2 = level2_with_window(4))
{
        for (uint16_t i = 0; i < 2; i++) {
                ros_says_alive(t, i, RUN_RUNNING, 0);
                sfi_says_alive(t, i, RUN_RUNNING, 0);
        }
        dfm_says_with(t, false);
        assert_int_equal(dfm_run_view(t->dfm).undecided, 4);
        assert_true(dfm_decide(t->dfm, t->now_ns,
                               &(struct decision_entry){.event = 2, .verdict = DECISION_ACCEPT}));
        dfm_stop_stalled(t->dfm, t->now_ns);
        assert_int_equal(dfm_abandon(t->dfm, t->now_ns), 4);
        assert_int_equal(dfm_run_view(t->dfm).undecided, 0);
        dfm_pass_ns(t, c.clear_after_ns);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_int_equal(dfm_counts(t->dfm)->lost, 4);
}

/* Two signals, or a fault, end the DFM before it drains: two triggers wait for a credit. */
OUTSIDE_TEST(a_sudden_end_counts_open_events_and_triggers_that_wait, 10, 1)
{
        outside_offers(t, 101, 0);
        outside_offers(t, 102, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_run_view(t->dfm).waiting, 2);
        dfm_close_accounts(t->dfm, t->now_ns);
        assert_int_equal(dfm_run_view(t->dfm).waiting, 0);
        assert_counts(dfm_counts(t->dfm), triggers, 1, lost, 1, offered.triggers, 3, offered.not_taken, 2,
                      abandoned, 2);
}

DFM_TEST(an_unknown_reason_is_kept)
{
        struct dfm_node_view v;

        ros_says_alive(t, 1, RUN_RUNNING, 0);
        t->message.alive.reason = 17;
        t->message.alive.reason_node = 65535;
        t->message.alive.reason_ms = 9;
        assert_true(driver_say(t, ROLE_ROS, 1, MESSAGE_ALIVE, t->ros_alive_next[1]++));
        v = dfm_view(t->dfm, ROLE_ROS, 1);
        assert_true(v.live && !v.left_out);
        assert_fields(&v, reason, 17, reason_node, 65535);
}
