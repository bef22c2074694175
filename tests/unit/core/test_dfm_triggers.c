/* Triggers from outside: their numbers, the queue, and resets of the counters. */
#include "dfm_outside.h"

#include "base/random.h"

DFM_TEST_AS(the_first_trigger_waits_until_all_ross_know_the_run, outside_standard(8), dfm_driver_start(t, &c))
{
        sfi_grants(t, 1, 9);
        assert_dfm_says(t, "");
        outside_offers(t, 1000, 0);
        outside_offers(t, 1001, 0);
        assert_dfm_says(t, "");
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        t->resets = 1;
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        assert_dfm_says(t, "");
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says(t, "sfi1: Assign e0>sfi1#0 e1>sfi1#1 | ross: Assign e0>sfi1 e1>sfi1");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 2);
}

DFM_TEST_AS(a_trigger_describes_its_event, outside_standard(8), dfm_driver_start(t, &c),
            c.utc_offset_ns = 100 * NS_PER_S)
{
        struct trigger_entry e = {.number = UINT64_C(0x1234567890), .time_ns = 5 * NS_PER_S + 77, .type = 42};

        sfi_grants(t, 0, 9);
        dfm_offer(t->dfm, t->now_ns, &e);
        e.number++, e.time_ns = 0;
        dfm_offer(t->dfm, t->now_ns, &e);
        dfm_says_with(t, false);
        ross_know(t, 1);
        dfm_pass_ns(t, 3 * NS_PER_S);
        while (dfm_makes(t) && t->message.header.type != MESSAGE_ASSIGN)
                ;
        assert_true(t->message.assign.with_info && t->message.n == 2);
        assert_int_equal(t->message.assign.entries[0].l1_id, 0x34567890);
        assert_true(t->message.assign.infos[0].global_id == UINT64_C(0x1234567890));
        assert_fields(&t->message.assign.infos[0], l1_id, 0x34567890, trigger_type, 42, run, TRACE_RUN,
                      time_s, 5, time_ns, 77);
        /* A trigger without a clock: when it came. */
        assert_int_equal(t->message.assign.infos[1].time_s, 110);
        assert_true(dfm_makes(t));
        assert_true(t->message.assign.announces && !t->message.assign.with_info);
        assert_int_equal(t->message.assign.entries[1].l1_id, 0x34567891);
        /* Its latency includes the time in the queue. */
        sfi_acks(t, 0, 2);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_true(histogram_quantile(dfm_latency_ns(t->dfm), 0.5) > 29 * NS_PER_S / 10);
        dfm_says_with(t, false);
}

OUTSIDE_TEST(a_full_queue_refuses_triggers, 5, 1)
{
        for (uint64_t k = 1; k <= 5; k++)
                assert_int_equal(outside_offers(t, 100 + k, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 106, 0), OFFER_REFUSED);
        assert_int_equal(outside_offers(t, 107, 0), OFFER_REFUSED);
        assert_int_equal(offered(t)->refused, 2);
        assert_dfm_says(t, "");
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, "sfi0: Assign e1>sfi0#1 e2>sfi0#2 | ross: Assign e1>sfi0 e2>sfi0");
        /* A refused trigger is gone, and its number too. */
        assert_int_equal(outside_offers(t, 106, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 108, 0), OFFER_QUEUED);
        assert_int_equal(offered(t)->missing, 0);
        assert_int_equal(dfm_run_view(t->dfm).waiting, 4);
}

/* Its counter has 64 values: if more than a quarter of them wait, its first frame may be of a trigger of the
 * period before. */
OUTSIDE_TEST_EACH(a_ros_that_joins_while_many_triggers_wait_is_unreliable, many, 2, 20, 1,
                  c.ros_rules = (const struct ros_rule[]){{.frames = true, .period = 64}, {.frames = true}})
{
        for (uint64_t k = 0; k < (many ? 17 : 16); k++)
                (void)outside_offers(t, 101 + k, 0);
        assert_false(dfm_is_unreliable(t->dfm));
        driver_join(t, ROLE_ROS, 1, 7);
        assert_false(dfm_is_unreliable(t->dfm));
        driver_join(t, ROLE_ROS, 0, 7);
        assert_int_equal(dfm_is_unreliable(t->dfm), many);
        assert_int_equal(dfm_view(t->dfm, ROLE_ROS, 0).unreliable, many);
}

OUTSIDE_TEST(no_number_is_taken_twice, 64, 1)
{
        assert_int_equal(outside_offers(t, 100, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 99, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 104, 0), OFFER_QUEUED);
        assert_int_equal(offered(t)->missing, 3);
        assert_int_equal(outside_offers(t, 102, 0), OFFER_QUEUED); /* was overtaken */
        assert_int_equal(offered(t)->missing, 2);
        assert_int_equal(outside_offers(t, 102, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 104, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 100 + 5000, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 100 + 4096, 0), OFFER_QUEUED); /* within the gap */
        assert_int_equal(outside_offers(t, 103, 0), OFFER_REPEATED);      /* too long ago to know */
        assert_int_equal(outside_offers(t, 0, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, UINT64_MAX, 0), OFFER_REPEATED);
        assert_int_equal(offered(t)->repeated, 7);
}

static enum dfm_offer offers_overtaken(struct dfm_driver *t, uint64_t number, uint32_t flags)
{
        struct trigger_entry e = {.number = number, .flags = flags};

        return dfm_offer_overtaken(t->dfm, t->now_ns, &e);
}

/* At the beginning of a run, and not after a reset, lower numbers may still come. */
OUTSIDE_TEST(the_first_number_may_overtake_others, 64, 1)
{
        assert_int_equal(outside_offers(t, 99, 0), OFFER_REPEATED);
        assert_int_equal(offers_overtaken(t, 97, TRIGGER_RESET), OFFER_QUEUED);
        assert_int_equal(offered(t)->missing, 2);
        assert_int_equal(offers_overtaken(t, 97, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 98, 0), OFFER_QUEUED);
        assert_int_equal(offered(t)->missing, 1);
        assert_int_equal(outside_offers(t, 101, 0), OFFER_QUEUED);
        assert_int_equal(offered(t)->resets, 0);
        dfm_pass_ns(t, NS_PER_S);
        assert_int_equal(offers_overtaken(t, 96, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 10, TRIGGER_RESET), OFFER_QUEUED);
        assert_int_equal(offers_overtaken(t, 9, 0), OFFER_REPEATED);
        assert_int_equal(offered(t)->resets, 1);
}

OUTSIDE_TEST(a_far_jump_needs_agreement, 64, 1)
{
        const uint64_t far = UINT64_C(1) << 40;

        assert_int_equal(outside_offers(t, far, 0), OFFER_IMPLAUSIBLE);
        assert_int_equal(outside_offers(t, 101, 0), OFFER_QUEUED);
        for (uint64_t k = 0; k < 3; k++)
                assert_int_equal(outside_offers(t, far + k, 0), OFFER_IMPLAUSIBLE);
        assert_int_equal(outside_offers(t, far + 3, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, far + 3, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, far + 4, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 102, 0), OFFER_REPEATED);
        assert_int_equal(offered(t)->implausible, 4);
}

OUTSIDE_TEST(a_reset_waits_for_earlier_events_and_for_the_ross, 8, 9)
{
        assert_int_equal(outside_offers(t, 0, TRIGGER_RESET), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 1, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 1, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 2, TRIGGER_MARKER), OFFER_MARKER);
        assert_dfm_says_all(t, "");
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_dfm_says_all(t, "ross: Clear #0 oldest 1: e0 | "
                               "all: KeepAlive running oldest 1 clears 1 ros 3 sfi 3 reset 2 at 0");
        ross_know(t, 1);
        assert_dfm_says(t, "");
        ross_know(t, 2);
        assert_dfm_says(t, "sfi0: Assign e1>sfi0#1 e2>sfi0#2 | ross: Assign e1>sfi0 e2>sfi0");
        assert_int_equal(offered(t)->resets, 1);
        /* Numbers from before the reset are not accepted as late ones. */
        assert_int_equal(outside_offers(t, UINT64_MAX, 0), OFFER_REPEATED);
}

OUTSIDE_TEST_EACH(a_lost_trigger_does_not_lose_its_reset, marker, 2, 1, 2)
{
        sfi_grants(t, 0, 1);
        if (marker) {
                assert_int_equal(outside_offers(t, 7, TRIGGER_RESET | TRIGGER_MARKER), OFFER_MARKER);
        } else {
                t->sfis[0].granted = 2;
                dfm_says_with(t, false);
                sfi_grants(t, 0, 2);
                ros_says_switch(t, 0, false);
                assert_int_equal(outside_offers(t, 101, 0), OFFER_QUEUED);
                assert_int_equal(outside_offers(t, 0, TRIGGER_RESET), OFFER_REFUSED);
                ros_says_switch(t, 0, true);
                assert_dfm_says(t, "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
                sfi_acks(t, 0, 2);
                sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        }
        assert_int_equal(outside_offers(t, 1, 0), OFFER_QUEUED);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(t, true);
        assert_non_null(strstr(t->trace.text, "reset 2 at 1"));
        dfm_driver_fini(t);
        t->resets = 0;
}

DFM_TEST_AS(a_ros_that_is_gone_holds_no_reset_up, outside_standard(8), dfm_driver_start(t, &c))
{
        sfi_grants(t, 0, 1);
        outside_offers(t, 5, 0);
        dfm_says_with(t, false);
        t->resets = 1;
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says(t, "");
        ros_says_alive(t, 1, RUN_ENDED, 0);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
}

DFM_TEST_AS(triggers_outside_the_run_are_not_taken, outside_standard(8), dfm_driver_init(t, &c), c.events = 3)
{
        assert_int_equal(outside_offers(t, 50, 0), OFFER_NOT_TAKEN);
        dfm_driver_fini(t);
        outside_begins(t, &c, 2);
        for (uint64_t k = 1; k < 6; k++)
                assert_int_equal(outside_offers(t, 100 + k, 0), OFFER_QUEUED);
        dfm_says_with(t, false);
        assert_int_equal(dfm_run_view(t->dfm).waiting, 4);
        sfi_grants(t, 0, 9);
        dfm_says_with(t, false);
        /* The third was the last one. */
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 3);
        assert_int_equal(offered(t)->not_taken, 3);
        assert_int_equal(outside_offers(t, 106, 0), OFFER_NOT_TAKEN);
        assert_counts(offered(t), not_taken, 4, refused, 0);
}

/* ... across a reset, and in a pause. */
OUTSIDE_TEST_EACH(triggers_that_wait_at_a_stop_are_events, paused, 2, 8, 1)
{
        outside_offers(t, 101, 0);
        outside_offers(t, 102, TRIGGER_RESET);
        dfm_pause(t->dfm, t->now_ns, paused);
        dfm_stop(t->dfm, t->now_ns);
        assert_int_equal(outside_offers(t, 103, 0), OFFER_NOT_TAKEN);
        dfm_pass_ns(t, 2 * t->config.node_timeout_ns);
        all_say_alive(t);
        assert_dfm_says(t, "");
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_grants(t, 0, 9);
        dfm_says_with(t, false);
        sfi_acks(t, 0, 2);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        ross_know(t, 2);
        assert_dfm_says(t, "sfi0: Assign e2>sfi0#2 | ross: Assign e2>sfi0");
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        sfi_acks(t, 0, 3);
        sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        dfm_says_with(t, true);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_counts(dfm_counts(t->dfm), triggers, 3, complete, 3, offered.not_taken, 1, abandoned, 0);
}

/* 0: the ROS does not count. */
static void ross_count(struct dfm_driver *t, const uint32_t *frames)
{
        for (uint16_t i = 0; i < 2; i++) {
                if (frames[i] > 0)
                        ros_reports(t, i, .flags = ALIVE_COUNTS, .frames = frames[i]);
        }
        dfm_says_with(t, false);
}

static bool waits_in_vain(struct dfm_driver *t, uint64_t ns, const uint32_t *frames)
{
        dfm_pass_ns(t, ns - 1);
        all_say_alive(t);
        ross_count(t, frames);
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        assert_true(dfm_deadline_ns(t->dfm) <= t->now_ns + 1);
        dfm_pass_ns(t, 1);
        dfm_says_with(t, false);
        return dfm_state(t->dfm) == RUN_ENDED;
}

/* ... unless no SFI has a credit, or a board reads none of them out. Counted frames come in order, so it is
 * known which ones another board read out, unless that board's frames have numbers. */
OUTSIDE_TEST_EACH(a_stop_waits_for_no_credit_that_does_not_come, k, 5, 8, 1, c.has_front_ends = true,
                  c.frame_wait_ns = 2 * NS_PER_S,
                  c.ros_rules = (const struct ros_rule[]){{.frames = true}, {.frames = true}})
{
        static const struct {
                uint32_t frames[2];
                uint64_t abandoned;
        } cases[] = {{{0, 0}, 2}, {{1, 1}, 0}, {{2, 1}, 1}, {{9, 1}, 2}, {{0, 1}, 2}};
        const bool counts = cases[k].frames[1] > 0;

        outside_offers(t, 101, 0);
        outside_offers(t, 102, 0);
        dfm_stop(t->dfm, t->now_ns);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_grants(t, 0, counts ? 9 : 1);
        ross_count(t, cases[k].frames);
        assert_true(waits_in_vain(t, counts ? 2 * NS_PER_S : t->config.node_timeout_ns, cases[k].frames));
        assert_counts(dfm_counts(t->dfm), triggers, 1, offered.not_taken, 2, abandoned, cases[k].abandoned);
}

/* SFIs that leave build them, if no other one is present. */
OUTSIDE_TEST_EACH(the_last_events_need_no_sfi_that_stays, stays, 2, 8, 1)
{
        outside_offers(t, 101, 0);
        for (uint16_t i = 0; i < 2 - stays; i++)
                sfi_says_alive(t, i, RUN_DRAINING, 0);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_grants(t, 0, 9);
        assert_dfm_says(t, "ross: Clear #0 oldest 1: e0");
        dfm_stop(t->dfm, t->now_ns);
        assert_dfm_says(t, stays ? "" : "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, stays ? "sfi1: Assign e1>sfi1#0 | ross: Assign e1>sfi1" : "");
        assert_counts(dfm_counts(t->dfm), triggers, 2, offered.not_taken, 0);
}

/* The slices that have passed. */
DFM_TEST_AS(a_stop_includes_the_slices_before_it, outside_standard(8), dfm_driver_start(t, &c),
            c.trigger_source = DFM_TRIGGER_CLOCK, c.slice_ns = NS_PER_S)
{
        ross_know(t, 1);
        dfm_says_with(t, false);
        dfm_pass_ns(t, 5 * NS_PER_S / 2);
        dfm_stop(t->dfm, t->now_ns);
        dfm_pass_ns(t, 5 * NS_PER_S);
        dfm_says_with(t, false);
        assert_int_equal(dfm_run_view(t->dfm).waiting, 2);
        sfi_grants(t, 0, 9);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | ross: Assign e0>sfi0 e1>sfi0");
        assert_counts(dfm_counts(t->dfm), triggers, 2, offered.triggers, 2, offered.not_taken, 0);
}

OUTSIDE_TEST(spills_are_counted, 16, 1)
{
        outside_offers(t, 101, TRIGGER_SPILL_BEGINS);
        outside_offers(t, 102, 0);
        outside_offers(t, 102, 0);
        outside_offers(t, 103, TRIGGER_SPILL_ENDS);
        outside_offers(t, 104, 0);
        outside_offers(t, 0, TRIGGER_MARKER | TRIGGER_SPILL_BEGINS);
        outside_offers(t, 105, 0);
        outside_offers(t, 0, TRIGGER_MARKER | TRIGGER_SPILL_ENDS);
        outside_offers(t, 106, 0);
        assert_counts(offered(t), spills_begun, 2, spills_ended, 2, in_spills, 4, triggers, 8);
}

/* A spill that began before the run, or while no DFM ran, is not one of the run. The next DFM needs each
 * change. */
DFM_TEST_AS(spills_count_from_the_beginning_of_the_run, outside_standard(16), dfm_driver_init(t, &c))
{
        uint64_t version;

        outside_offers(t, 0, TRIGGER_MARKER | TRIGGER_SPILL_BEGINS);
        outside_offers(t, 0, TRIGGER_MARKER | TRIGGER_SPILL_ENDS);
        outside_offers(t, 7, TRIGGER_SPILL_BEGINS);
        assert_counts(offered(t), spills_begun, 0, spills_ended, 0, in_spills, 0, not_taken, 1);
        all_say_alive(t);
        assert_dfm_says(t, "");
        outside_offers(t, 8, 0);
        version = dfm_processes_version(t->dfm);
        outside_offers(t, 9, 0);
        assert_int_equal(dfm_processes_version(t->dfm), version);
        outside_offers(t, 0, TRIGGER_MARKER | TRIGGER_SPILL_BEGINS);
        assert_true(dfm_processes_version(t->dfm) > version);
        version = dfm_processes_version(t->dfm);
        outside_offers(t, 10, TRIGGER_SPILL_ENDS);
        assert_true(dfm_processes_version(t->dfm) > version);
        assert_counts(offered(t), spills_begun, 1, spills_ended, 1, in_spills, 3);
        dfm_stop(t->dfm, t->now_ns);
        outside_offers(t, 0, TRIGGER_MARKER | TRIGGER_SPILL_BEGINS);
        assert_counts(offered(t), spills_begun, 1);
}

/* Whatever comes, each trigger ends exactly once, and no two events have the same number between resets. */
TEST(any_numbers_balance)
{
        static uint64_t taken[4096];
        struct dfm_config c = outside_standard(16);

        for (uint64_t seed = 0; seed < 20; seed++) {
                uint64_t number = 1000, n_taken = 0;
                struct dfm_driver t;
                struct random r;

                random_init(&r, seed);
                outside_begins(&t, &c, 4);
                for (int k = 0; k < 2000; k++) {
                        uint64_t back = random_below(&r, 20) == 0 ? random_below(&r, 30) : 0;
                        uint64_t jump = random_below(&r, 100) == 0 ? random_next(&r) : 0;

                        number += random_below(&r, 3);
                        if (outside_offers(&t, number - back + jump, (uint32_t)random_below(&r, 4)) ==
                                    OFFER_QUEUED &&
                            n_taken < ARRAY_SIZE(taken))
                                taken[n_taken++] = dfm_busy(t.dfm).last;
                        if (random_below(&r, 4) == 0) {
                                sfi_grants(&t, 0, t.sfis[0].granted + random_below(&r, 9));
                                dfm_says_with(&t, false);
                                sfi_acks(&t, 0, (uint32_t)(dfm_counts(t.dfm)->assigned));
                        }
                        if (dfm_open_events(t.dfm) > 8)
                                sfi_ends(&t, 0, t.sfis[0].finished, EVENT_COMPLETE, 0);
                }
                for (uint64_t i = 0; i < n_taken; i++)
                        for (uint64_t k = 0; k < i; k++)
                                assert_true(taken[i] != taken[k]);
                assert_true(n_taken > 100);
                dfm_driver_fini(&t);
        }
}
