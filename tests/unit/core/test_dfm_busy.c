/* The busy signal, triggers of the clock, and a resumed run with triggers from outside. */
#include "dfm_outside.h"

#define assert_busy(t, expected) assert_int_equal(dfm_busy((t)->dfm).reason, expected)

DFM_TEST_AS(busy_follows_the_credits_with_hysteresis, outside_standard(100), dfm_driver_init(t, &c))
{
        assert_busy(t, BUSY_STOPPED);
        assert_true(dfm_busy(t->dfm).last == BUSY_NONE);
        dfm_driver_fini(t);
        outside_begins(t, &c, 10);
        assert_busy(t, BUSY_NOT);
        assert_int_equal(dfm_busy(t->dfm).last, 100);
        for (uint64_t k = 1; k < 7; k++)
                outside_offers(t, 100 + k, 0);
        dfm_says_with(t, false);
        sfi_acks(t, 0, 7);
        assert_busy(t, BUSY_NOT);
        outside_offers(t, 107, 0); /* the eighth of ten credits */
        dfm_says_with(t, false);
        assert_busy(t, BUSY_CREDITS);
        assert_int_equal(dfm_busy(t->dfm).last, 107);
        sfi_acks(t, 0, 8);
        for (uint64_t event = 0; event < 3; event++) {
                assert_busy(t, BUSY_CREDITS);
                sfi_grants(t, 0, 11 + event);
                sfi_ends(t, 0, event, EVENT_COMPLETE, 0);
                dfm_says_with(t, false);
        }
        assert_busy(t, BUSY_NOT); /* 5 of 10 */
}

OUTSIDE_TEST(busy_follows_the_queue, 10, 100)
{
        ros_says_switch(t, 1, false);
        dfm_says_with(t, false);
        assert_busy(t, BUSY_XOFF);
        dfm_pass_ns(t, NS_PER_S / 1000);
        dfm_says_with(t, false);
        /* A trigger that obeys is held back, although none waits. */
        assert_int_equal(dfm_counts(t->dfm)->busy_ns, NS_PER_S / 1000);
        for (uint64_t k = 1; k <= 9; k++)
                outside_offers(t, 100 + k, 0);
        ros_says_switch(t, 1, true);
        dfm_says_with(t, false);
        assert_busy(t, BUSY_NOT);
        dfm_stop(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        assert_busy(t, BUSY_STOPPED);
        assert_true(dfm_busy(t->dfm).busy);
}

/* A trigger box that ignores busy fills the queue. */
OUTSIDE_TEST(without_a_ros_triggers_are_queued_and_refused, 2, 10)
{
        for (uint16_t i = 0; i < 2; i++)
                ros_says_alive(t, i, RUN_ENDED, 0);
        dfm_says_with(t, false);
        assert_busy(t, BUSY_FRAMES);
        for (uint64_t k = 1; k <= 3; k++) {
                assert_int_equal(outside_offers(t, 100 + k, 0), k < 3 ? OFFER_QUEUED : OFFER_REFUSED);
                assert_dfm_says(t, "");
        }
        assert_int_equal(offered(t)->refused, 1);
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        dfm_says_with(t, false);
        assert_busy(t, BUSY_NOT);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 3);
}

/* Most of a large queue is for triggers that come although the DFM is busy. */
OUTSIDE_TEST(a_large_queue_is_busy_early, 65536, 2)
{
        for (uint64_t k = 1; k <= 5000; k++) {
                assert_int_equal(outside_offers(t, 100 + k, 0), OFFER_QUEUED);
                assert_busy(t, k < 3277 ? BUSY_NOT : BUSY_CREDITS);
        }
}

OUTSIDE_TEST(a_full_queue_is_busy_at_once, 10, 2)
{
        for (uint64_t k = 1; k <= 7; k++)
                outside_offers(t, 100 + k, 0);
        assert_busy(t, BUSY_NOT);
        outside_offers(t, 108, 0);
        assert_busy(t, BUSY_CREDITS);
        dfm_says_with(t, false);
        /* The output of an SFI is the cause. */
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        t->message.alive.reason = REASON_SLOW_OUTPUT;
        driver_say(t, ROLE_SFI, 0, MESSAGE_ALIVE, t->sfis[0].alive_next++);
        dfm_says_with(t, false);
        assert_busy(t, BUSY_OUTPUT);
}

/* The ROSs hold the frames of 10 events, so the eighth undecided one is too many. */
DFM_TEST_AS(undecided_events_that_fill_the_ross_are_busy, outside_standard(100), dfm_driver_start(t, &c),
            c.has_front_ends = true, c.level2 = level2_with_window(1000))
{
        sfi_grants(t, 0, 100);
        t->room = 10;
        for (uint64_t k = 0; k < 8; k++) {
                outside_offers(t, 100 + k, 0);
                dfm_says_with(t, false);
                if (k == 0)
                        ross_know(t, 1);
                dfm_says_with(t, false);
                assert_int_equal(dfm_run_view(t->dfm).undecided, k + 1);
                assert_busy(t, k < 7 ? BUSY_NOT : BUSY_LEVEL2);
        }
}

DFM_TEST(the_schedule_has_a_busy_signal_too, c.busy_above_permille = 900)
{
        assert_busy(t, BUSY_CREDITS);
        assert_int_equal(offered(t)->triggers, 0);
        sfi_grants(t, 0, 3);
        assert_dfm_says(t,
                        "sfi0: Assign e0>sfi0#0 e1>sfi0#1 e2>sfi0#2 | ross: Assign e0>sfi0 e1>sfi0 e2>sfi0");
        assert_busy(t, BUSY_CREDITS);
}

DFM_TEST_AS(the_clock_makes_an_event_of_each_slice, outside_standard(4), dfm_driver_start(t, &c),
            c.trigger_source = DFM_TRIGGER_CLOCK, c.slice_ns = 10 * NS_PER_MS,
            c.utc_offset_ns = 1000 * NS_PER_S)
{
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + c.slice_ns);
        assert_dfm_says_after(t, c.slice_ns, "");
        ross_know(t, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_acks(t, 0, 1);
        dfm_pass_ns(t, 2 * c.slice_ns + 1);
        assert_true(dfm_makes(t));
        assert_int_equal(t->message.n, 2);
        assert_fields(&t->message.assign.infos[1], global_id, 2, time_s, 1010, time_ns, 20 * NS_PER_MS);
        dfm_says_with(t, false);
        /* Time does not wait for credits. */
        dfm_pass_ns(t, 10 * c.slice_ns - 1);
        dfm_says_with(t, false);
        assert_int_equal(dfm_run_view(t->dfm).waiting, 4);
        assert_int_equal(offered(t)->refused, 6);
        sfi_grants(t, 0, 100);
        dfm_says_with(t, false);
        sfi_acks(t, 0, 7);
        dfm_pass_ns(t, c.slice_ns);
        assert_true(dfm_makes(t));
        assert_int_equal(t->message.assign.infos[0].global_id, 13);
        dfm_says_with(t, false);
        assert_int_equal(offered(t)->missing, 0); /* each slice counts once */
}

/* Only the previous DFM had the trigger of an event that no SFI has: the event can no longer be built. */
DFM_TEST_AS(a_resumed_run_loses_events_whose_trigger_nobody_knows, outside_standard(8),
            outside_resumes(t, &c))
{
        assert_dfm_says(t, "ross: Clear #0 oldest 1: e2 | ross: Clear #1 oldest 1: e3");
        sfi_grants(t, 0, 9);
        assert_int_equal(dfm_counts(t->dfm)->lost, 2);
        /* The numbers continue; the ROSs have already received the last reset. */
        outside_offers(t, 77, 0);
        assert_dfm_says(t, "sfi0: Assign e4>sfi0#0 | ross: Assign e4>sfi0");
        dfm_pass_ns(t, c.keep_alive_ns);
        dfm_says_with(t, true);
        assert_non_null(strstr(t->trace.text, "reset 3 at 0"));
        /* The SFI that had event 1 leaves: no other SFI can build it. */
        sfi_says_alive(t, 1, RUN_ENDED, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->lost, 3);
        assert_int_equal(dfm_open_events(t->dfm), 1);
}

/* Ten slices have passed, and four of them became events. */
DFM_TEST_AS(slices_without_a_dfm_are_missed, outside_standard(8), outside_resumes(t, &c),
            c.trigger_source = DFM_TRIGGER_CLOCK, c.slice_ns = 10 * NS_PER_MS,
            c.previous = (struct dfm_previous){
                    .known = true, .cookie = TRACE_COOKIE, .age_ns = 105 * NS_PER_MS})
{
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 4);
        assert_counts(offered(t), missed, 6, unclear, 0);
}

/* The previous DFM accepted no further ones. Two of those that waited became events. */
DFM_TEST_EACH_AS(only_slices_from_before_a_stop_are_missed, waited, 4, outside_standard(8),
                 outside_resumes(t, &c), c.trigger_source = DFM_TRIGGER_CLOCK, c.slice_ns = 10 * NS_PER_MS,
                 c.previous = (struct dfm_previous){.known = true,
                                                    .cookie = TRACE_COOKIE,
                                                    .age_ns = 105 * NS_PER_MS},
                 c.previous_processes = outside_record((struct dfm_came){.over = true, .waiting = waited}))
{
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 4);
        assert_counts(offered(t), missed, waited == 3, unclear, 0);
}

/* No client can decide about triggers that the previous DFM did not assign. The event that an SFI has is
 * cleared without its L1 ID, which is unknown. */
DFM_TEST_AS(a_resumed_run_loses_events_that_no_sfi_knows, outside_standard(8), outside_resumes(t, &c),
            c.level2 = level2_with_window(10))
{
        const struct decision_entry reject = {.event = 4, .verdict = DECISION_REJECT};

        assert_dfm_says(t, "");
        assert_counts(dfm_counts(t->dfm), rejected, 0, lost, 2, complete, 1);
        assert_int_equal(dfm_open_events(t->dfm), 1);
        outside_offers(t, 77, 0);
        dfm_says_with(t, false);
        assert_true(dfm_decide(t->dfm, t->now_ns, &reject));
        sfi_ends(t, 1, 1, EVENT_COMPLETE, 0);
        for (int known = 1; known >= 0; known--) {
                while (dfm_makes(t) && t->message.header.type != MESSAGE_CLEAR)
                        ;
                assert_int_equal(t->message.header.type, MESSAGE_CLEAR);
                assert_int_equal(t->message.n, 1);
                assert_int_equal(t->message.clear.events[0], known ? 4 : 1);
                assert_int_equal(t->message.clear.with_l1_ids, known);
                assert_int_equal(known ? t->message.clear.l1_ids[0] : 77, 77);
        }
        assert_int_equal(dfm_open_events(t->dfm), 0);
}
