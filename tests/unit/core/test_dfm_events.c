/* The end of events in the DFM: cleared or lost. test_dfm_again.c covers reassignment. */
#include "dfm_driver.h"

DFM_TEST(ended_events_are_cleared_in_groups, c.clear_group = 3)
{
        sfi0_takes(t, 8);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 0, EVENT_PARTIAL, 1);
        assert_dfm_says(t, "");
        sfi_ends(t, 0, 5, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "ross: Clear #0 oldest 2: e1 e0 e5");
        for (uint64_t event = 2; event < 5; event++)
                sfi_ends(t, 0, event, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 6, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "ross: Clear #1 oldest 7: e2 e3 e4");
}

DFM_TEST(an_incomplete_clear_group_waits_for_clear_after, c.clear_group = 2)
{
        sfi0_takes(t, 4);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_pass_ns(t, 7 * NS_PER_MS);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "ross: Clear #0 oldest 3: e0 e1 | sfi0: UpdateAck 3");
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + c.clear_after_ns);
        assert_dfm_says_after(t, c.clear_after_ns - 1, "");
        assert_dfm_says_after(t, 1, "ross: Clear #1 oldest 3: e2");
}

DFM_TEST_EACH(clear_groups_are_bounded_by_the_message, small, 2, c.events_max = 256,
              c.message_bytes = small ? MESSAGE_HEADER_BYTES + 120 : 1472)
{
        sfi0_takes(t, 150);
        for (uint64_t event = 0; event < 100; event++)
                sfi_ends(t, 0, event, EVENT_COMPLETE, 0);
        assert_true(dfm_makes(t));
        assert_int_equal(t->message.header.type, MESSAGE_CLEAR);
        /* 24 bytes precede the events. The first one takes two, as it is 100 below the oldest. */
        assert_int_equal(t->message.n, small ? 95 : 100);
        if (small) {
                dfm_pass_ns(t, c.clear_after_ns);
                while (dfm_makes(t))
                        if (t->message.header.type == MESSAGE_CLEAR)
                                break;
                assert_int_equal(t->message.header.type, MESSAGE_CLEAR);
                assert_int_equal(t->message.n, 5);
                assert_int_equal(t->message.clear.events[0], 95);
        }
}

DFM_TEST(keep_alive_reveals_a_lost_clear, c.clear_group = 1)
{
        sfi0_takes(t, 3);
        sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "ross: Clear #0 oldest 1: e2 | ross: Clear #1 oldest 1: e0");
        assert_dfm_says_all_after(t, c.keep_alive_ns,
                                  "all: KeepAlive running oldest 1 clears 2 ros 3 sfi 3 | sfi0: UpdateAck 2");
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        assert_dfm_says_all_after(t, c.keep_alive_ns,
                                  "all: KeepAlive running oldest 1 clears 2 ros 3 sfi 3 | ross: Clear #2 "
                                  "oldest 3: e1 | sfi0: UpdateAck 3");
}

/* A ROS that missed a Clear may have no room for the oldest event. */
DFM_TEST(clears_are_repeated_while_the_oldest_event_waits, c.clear_group = 2)
{
        sfi0_takes(t, 6);
        for (uint64_t event = 1; event < 4; event++)
                sfi_ends(t, 0, event, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "ross: Clear #0 oldest 0: e1 e2");
        assert_dfm_says_after(t, c.clear_after_ns, "ross: Clear #1 oldest 0: e3 | sfi0: UpdateAck 3");
        assert_dfm_says_all_after(t, c.keep_alive_ns,
                                  "all: KeepAlive running oldest 0 clears 2 ros 3 sfi 3 | "
                                  "ross: Clear #2 oldest 0: e1 e2 | ross: Clear #3 oldest 0: e3");
        assert_dfm_says_all(t, "");
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 5, EVENT_COMPLETE, 0);
        assert_dfm_says_all(t, "ross: Clear #4 oldest 4: e0 e5");
        /* The oldest one has moved. */
        assert_dfm_says_all_after(t, c.keep_alive_ns,
                                  "all: KeepAlive running oldest 4 clears 5 ros 3 sfi 3 | sfi0: UpdateAck 5");
        assert_dfm_says_all_after(t, c.keep_alive_ns,
                                  "all: KeepAlive running oldest 4 clears 5 ros 3 sfi 3 | "
                                  "ross: Clear #5 oldest 4: e5");
}

DFM_TEST_EACH(an_event_is_lost_after_the_last_reassignment, max, 3, c.reassign_max = max, c.events = 1)
{
        sfi_grants(t, 0, 5);
        sfi_grants(t, 1, 5);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        for (uint32_t k = 0; k <= c.reassign_max; k++) {
                assert_counts(dfm_counts(t->dfm), lost, 0, reassigned, k);
                dfm_pass_ns(t, c.event_timeout_ns);
                dfm_says_with(t, false);
        }
        assert_counts(dfm_counts(t->dfm), lost, 1, fragments_lost, 2, reassigned, max);
}

DFM_TEST(an_event_without_an_sfi_is_lost_after_the_time_out)
{
        sfi0_takes(t, 1);
        assert_dfm_says_after(t, c.event_timeout_ns, "");
        assert_int_equal(dfm_open_events(t->dfm), 1);
        assert_dfm_says_after(t, c.event_timeout_ns - 1, "");
        assert_int_equal(dfm_open_events(t->dfm), 1);
        assert_dfm_says_after(t, 1, "");
        assert_int_equal(dfm_counts(t->dfm)->lost, 1);
}

DFM_TEST(draining_without_an_sfi_loses_open_events)
{
        sfi0_takes(t, 2);
        dfm_stop(t->dfm, t->now_ns);
        sfi_says_alive(t, 1, RUN_ENDED, 0);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_open_events(t->dfm), 2);
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        assert_dfm_says(t, "ross: Clear #0 oldest 2: e0 e1");
        assert_int_equal(dfm_counts(t->dfm)->lost, 2);
}

/* Boards may stop before the run. Events that they answered, or that an SFI lost with its machine, are
 * lost. */
DFM_TEST_EACH(triggers_that_nobody_answers_after_a_stop_do_not_count, front_ends, 2,
              c.has_front_ends = front_ends)
{
        sfi0_takes(t, 6);
        sfi_ends_unanswered(t, 0, 0);
        dfm_stop(t->dfm, t->now_ns);
        sfi_ends_unanswered(t, 0, 1);
        sfi_ends(t, 0, 2, EVENT_PARTIAL, 1);
        sfi_ends_unanswered(t, 0, 3);
        sfi_ends(t, 0, 4, EVENT_LOST, 2); /* a frame came */
        assert_counts(dfm_counts(t->dfm), not_taken, front_ends ? 1 : 0, lost, front_ends ? 3 : 4, triggers,
                      front_ends ? 5 : 6);
        sfi_says_alive(t, 1, RUN_ENDED, 0);
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        assert_dfm_says(t, "ross: Clear #0 oldest 6: e0 e1 e2 e3 e4 e5");
        assert_int_equal(dfm_counts(t->dfm)->lost, front_ends ? 4 : 5);
}

/* In pull, a ROS that was left out learns of a trigger only from its Clear. A trigger that was not taken is
 * not named. */
DFM_TEST_EACH(clear_names_triggers_in_pull_with_front_ends, k, 4, c.push = k & 1, c.has_front_ends = k & 2)
{
        bool named = c.has_front_ends && !c.push;

        sfi0_takes(t, 2);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_stop(t->dfm, t->now_ns);
        while (dfm_makes(t) && t->message.header.type != MESSAGE_CLEAR)
                continue;
        assert_int_equal(t->message.header.type, MESSAGE_CLEAR);
        assert_int_equal(t->message.clear.events[0], 0);
        assert_int_equal(t->message.clear.with_l1_ids, named);
        sfi_ends_unanswered(t, 0, 1);
        while (dfm_makes(t) && t->message.header.type != MESSAGE_CLEAR)
                continue;
        assert_int_equal(t->message.header.type, MESSAGE_CLEAR);
        assert_int_equal(t->message.clear.events[0], 1);
        assert_false(t->message.clear.with_l1_ids);
        assert_int_equal(dfm_counts(t->dfm)->not_taken, c.has_front_ends);
}

/* Boards that sent frames of a newer trigger had not stopped. */
DFM_TEST(a_trigger_before_one_that_was_built_counts, c.has_front_ends = true)
{
        sfi0_takes(t, 4);
        sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        dfm_stop(t->dfm, t->now_ns);
        sfi_ends_unanswered(t, 0, 0);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        sfi_ends_unanswered(t, 0, 3);
        assert_counts(dfm_counts(t->dfm), not_taken, 1, lost, 1, triggers, 3);
}

/* A board that was dead, or whose numbers leapt, may make older events end first. */
DFM_TEST(a_trigger_counts_once_a_newer_one_is_built, c.has_front_ends = true)
{
        sfi0_takes(t, 6);
        dfm_stop(t->dfm, t->now_ns);
        sfi_ends_unanswered(t, 0, 1);
        sfi_ends_unanswered(t, 0, 2);
        sfi_ends_unanswered(t, 0, 4);
        assert_counts(dfm_counts(t->dfm), not_taken, 3, lost, 0, triggers, 3);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_counts(dfm_counts(t->dfm), not_taken, 3, lost, 0, triggers, 3);
        sfi_ends(t, 0, 3, EVENT_COMPLETE, 0);
        assert_counts(dfm_counts(t->dfm), not_taken, 1, lost, 2, triggers, 5);
        assert_int_equal(dfm_lost(t->dfm, UINT16_MAX, DFM_LOSS_REPORTED), 2);
        sfi_ends(t, 0, 5, EVENT_PARTIAL, 1);
        assert_counts(dfm_counts(t->dfm), not_taken, 0, lost, 3, triggers, 6);
}

/* The frames of a required ROS that vanished are lost with it. */
DFM_TEST(without_a_required_ros_no_trigger_is_unanswered, c.has_front_ends = true,
         c.ros_rules = (const struct ros_rule[]){{.optional = true}, {}})
{
        sfi0_takes(t, 2);
        dfm_stop(t->dfm, t->now_ns);
        ros_says_alive(t, 0, RUN_ENDED, 0);
        sfi_ends_unanswered(t, 0, 0);
        assert_int_equal(dfm_counts(t->dfm)->not_taken, 1);
        ros_says_alive(t, 1, RUN_ENDED, 0);
        sfi_ends_unanswered(t, 0, 1);
        assert_counts(dfm_counts(t->dfm), not_taken, 1, lost, 1);
}

static void accept(struct dfm_driver *t, uint64_t event)
{
        const struct decision_entry decision = {.event = event, .verdict = DECISION_ACCEPT};

        assert_true(dfm_decide(t->dfm, t->now_ns, &decision));
}

static void be_away(struct dfm_driver *t, uint64_t ns)
{
        dfm_pass_ns(t, ns);
        dfm_was_paused(t->dfm, t->now_ns, ns);
}

/* While nothing could be received, accepted events of a run that drains must not expire. */
DFM_TEST(an_absence_postpones_accepted_events, c.clear_group = 1, c.level2 = level2_with_window(3))
{
        dfm_says_with(t, false);
        accept(t, 0);
        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        be_away(t, 2 * c.event_timeout_ns);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_acks(t, 0, 1);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        /* These are accepted later. */
        dfm_pass_ns(t, c.event_timeout_ns / 4 * 3);
        accept(t, 1);
        accept(t, 2);
        dfm_says_with(t, false);
        be_away(t, 2 * c.event_timeout_ns);
        dfm_pass_ns(t, c.event_timeout_ns / 2);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        /* An event that an SFI takes shows that the other one need not expire. */
        sfi_grants(t, 0, 2);
        dfm_says_with(t, false);
        sfi_acks(t, 0, 2);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        dfm_pass_ns(t, c.event_timeout_ns / 4);
        dfm_says_with(t, false);
        be_away(t, 2 * c.event_timeout_ns);
        dfm_pass_ns(t, c.event_timeout_ns / 2);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        assert_int_equal(dfm_open_events(t->dfm), 1);
}
