/* What an operator holds back: the start of a run, and its triggers. */
#include "../dfm_outside.h"

static void all_join(struct dfm_driver *t)
{
        all_say_alive(t);
        dfm_says_with(t, false);
}

DFM_TEST_AS(a_held_run_begins_when_released, dfm_standard(), dfm_driver_init(t, &c))
{
        dfm_hold_start(t->dfm);
        assert_false(dfm_is_ready(t->dfm));
        all_join(t);
        assert_true(dfm_run_view(t->dfm).is_held && dfm_is_ready(t->dfm));
        dfm_pass_ns(t, 3600 * NS_PER_S);
        all_join(t);
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
        assert_false(dfm_has_work(t->dfm));
        dfm_release_start(t->dfm, t->now_ns);
        assert_true(dfm_deadline_ns(t->dfm) <= t->now_ns);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        /* It is too late to hold it. */
        dfm_hold_start(t->dfm);
        assert_false(dfm_run_view(t->dfm).is_held);
}

/* The last node joined long ago: that alone must not start a run without the others. */
DFM_TEST_AS(missing_nodes_get_their_time_from_the_release_on, dfm_standard(), dfm_driver_init(t, &c),
            c.start_timeout_ns = 5 * NS_PER_S)
{
        dfm_hold_start(t->dfm);
        ros_says_alive(t, 0, RUN_RUNNING, 0);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        dfm_says_with(t, false);
        dfm_pass_ns(t, 60 * NS_PER_S);
        dfm_release_start(t->dfm, t->now_ns);
        dfm_says_with(t, false);
        dfm_pass_ns(t, 5 * NS_PER_S - 1);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
        dfm_pass_ns(t, 1);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
}

static struct dfm_config takeover(void)
{
        struct dfm_config c = dfm_standard();

        c.cookie = TRACE_COOKIE + 1; /* TRACE_COOKIE is the resumed run's */
        c.run_is_free = true;
        c.push = false;
        c.keep_alive_ns = NS_PER_S;
        return c;
}

/* Its operator has started it: the DFM that takes over does not ask again. */
DFM_TEST_AS(a_resumed_run_is_not_held, takeover(), dfm_driver_init(t, &c))
{
        dfm_hold_start(t->dfm);
        for (uint16_t i = 0; i < 4; i++)
                node_follows(t, 0xF0, i < 2 ? ROLE_ROS : ROLE_SFI, i % 2, 0, 0);
        sfi_reports_bits(t, 0, 0, 0, 0, 0);
        sfi_reports_bits(t, 1, 0, 0, 0, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_false(dfm_run_view(t->dfm).is_held);
}

/* Both ROSs come, and then `n_sfi` SFIs; the run waits for the others, and is stopped. */
static void stop_a_takeover(struct dfm_driver *t, const struct dfm_config *c, uint16_t n_sfi)
{
        dfm_driver_init(t, c);
        assert_false(dfm_is_in_run(t->dfm));
        for (uint16_t i = 0; i < 2; i++)
                node_follows(t, 0xF0, ROLE_ROS, i, 0, 6);
        for (uint16_t i = 0; i < n_sfi; i++)
                node_follows(t, 0xF0, ROLE_SFI, i, 0, 6);
        assert_dfm_says(t, n_sfi > 0 ? "sfi0: Inquiry from 0" : "");
        assert_true(dfm_is_in_run(t->dfm) && !dfm_has_begun(t->dfm));
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
        dfm_stop(t->dfm, t->now_ns);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
}

/* Each trigger ended once; only the previous DFM knew the assignments. */
static void check_takeover(struct dfm_driver *t, uint64_t complete, uint64_t lost)
{
        const struct dfm_counts *k = dfm_counts(t->dfm);
        struct dfm_notice n;

        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_counts(k, triggers, 6, complete, complete, lost, lost);
        while (dfm_pop_notice(t->dfm, &n))
                assert_int_not_equal(n.kind, NOTICE_BEGUN);
}

/* An SFI of the run does not come. A stop accounts for the run with what the others know. */
DFM_TEST_AS(a_stopped_takeover_accounts_for_the_run, takeover(), stop_a_takeover(t, &c, 1))
{
        sfi_reports_bits(t, 0, 6, 2, 0x3, 0x4); /* built 0 and 1, has 2 */
        /* The other one has a moment to come. */
        assert_dfm_says_after(t, 3 * NS_PER_S - 1, "");
        assert_false(dfm_has_begun(t->dfm));
        assert_dfm_says_after(t, 1, "");
        assert_true(dfm_has_begun(t->dfm));
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        assert_int_equal(dfm_counts(t->dfm)->complete, 2);
        assert_int_equal(dfm_open_events(t->dfm), 4);
        sfi_grants(t, 0, 4);
        assert_dfm_says(t, "sfi0: Build e3>sfi0#0 e4>sfi0#1 e5>sfi0#2");
        for (uint64_t event = 2; event < 6; event++)
                sfi_ends(t, 0, event, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        check_takeover(t, 6, 0);
}

/* Nothing is left to build the events: what is not known counts as lost. */
DFM_TEST_AS(a_stopped_takeover_ends_without_an_sfi, takeover(), stop_a_takeover(t, &c, 0))
{
        dfm_pass_ns(t, 3 * NS_PER_S);
        dfm_says_with(t, false);
        dfm_says_with(t, false);
        check_takeover(t, 0, 6);
}

/* An SFI gets no event before it has the metadata, whether it is there at the start or comes later. */
DFM_TEST_AS(sfis_get_the_metadata_before_events, dfm_standard(), dfm_driver_init(t, &c))
{
        static const struct metadata_entry entries[] = {{"Shift", "7"}, {"Beam", "on"}};

        dfm_hold_start(t->dfm);
        all_join(t);
        sfi_grants(t, 0, 9);
        dfm_set_metadata(t->dfm, t->now_ns, entries, 2);
        assert_dfm_says(t, "sfi0: Metadata v1 0/2 Shift=7 | sfi0: Metadata v1 1/2 Beam=on"
                           " | sfi1: Metadata v1 0/2 Shift=7 | sfi1: Metadata v1 1/2 Beam=on");
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        dfm_release_start(t->dfm, t->now_ns);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        /* The answer of SFI 1 was lost, so the message is repeated. */
        t->metadata = 1;
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        dfm_pass_ns(t, c.keep_alive_ns);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        trace_clear(&t->trace);
        assert_non_null(strstr(dfm_says_with(t, false), "sfi1: Metadata v1 0/2 Shift=7"));
        assert_non_null(strstr(t->trace.text, "sfi0: Assign e0>sfi0#0"));
        assert_null(strstr(t->trace.text, "sfi0: Metadata"));
        assert_int_equal(dfm_counts(t->dfm)->triggers, 9);
        sfi_grants(t, 1, 2);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 9);
        sfi_says_alive(t, 1, RUN_RUNNING, 0);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 11);
        /* It is too late for others. */
        dfm_set_metadata(t->dfm, t->now_ns, entries, 1);
        dfm_pass_ns(t, c.keep_alive_ns);
        assert_null(strstr(dfm_says_with(t, false), "Metadata"));
}

/* Without names, earlier ones are taken back. */
DFM_TEST_AS(a_later_start_replaces_the_metadata, dfm_standard(), dfm_driver_init(t, &c))
{
        static const struct metadata_entry entry = {"Shift", "7"};

        dfm_hold_start(t->dfm);
        all_join(t);
        dfm_set_metadata(t->dfm, t->now_ns, NULL, 0);
        assert_dfm_says(t, "");
        dfm_set_metadata(t->dfm, t->now_ns, &entry, 1);
        assert_dfm_says(t, "sfi0: Metadata v1 0/1 Shift=7 | sfi1: Metadata v1 0/1 Shift=7");
        dfm_set_metadata(t->dfm, t->now_ns, NULL, 0);
        assert_dfm_says(t, "sfi0: Metadata v2 0/0 = | sfi1: Metadata v2 0/0 =");
}

/* A trigger each 10 ms, with credits for all. */
static void start_schedule(struct dfm_driver *t)
{
        struct dfm_config c = dfm_standard();

        c.trigger_rate_millihertz = 100000;
        dfm_driver_start(t, &c);
        sfi0_takes(t, 50);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 1);
}

static uint64_t triggers_after_ns(struct dfm_driver *t, uint64_t ns)
{
        dfm_pass_ns(t, ns);
        dfm_says_with(t, false);
        return dfm_counts(t->dfm)->triggers;
}

DFM_TEST_AS(the_schedule_stands_still_in_a_pause, dfm_standard(), start_schedule(t))
{
        assert_int_equal(triggers_after_ns(t, 4 * NS_PER_MS), 1);
        dfm_pause(t->dfm, t->now_ns, true);
        assert_true(dfm_run_view(t->dfm).is_paused);
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        assert_int_equal(triggers_after_ns(t, 10 * NS_PER_S), 1);
        dfm_pause(t->dfm, t->now_ns, false);
        /* What was left of the interval passes first. */
        assert_int_equal(triggers_after_ns(t, 6 * NS_PER_MS - 1), 1);
        assert_int_equal(triggers_after_ns(t, 1), 2);
        assert_int_equal(triggers_after_ns(t, 10 * NS_PER_MS), 3);
        assert_counts(dfm_counts(t->dfm), paused_ns, 10 * NS_PER_S, busy_ns, 0);
}

/* Even if another rate was set in between. */
DFM_TEST_AS(a_new_rate_in_a_pause_makes_no_burst, dfm_standard(), start_schedule(t))
{
        const struct dfm_settings slow = {.trigger_rate_millihertz = 1000};

        dfm_pause(t->dfm, t->now_ns, true);
        dfm_pass_ns(t, 100 * NS_PER_S);
        dfm_change(t->dfm, t->now_ns, &slow);
        dfm_pass_ns(t, 100 * NS_PER_S);
        dfm_pause(t->dfm, t->now_ns, false);
        assert_int_equal(triggers_after_ns(t, NS_PER_S - 1), 1);
        assert_int_equal(triggers_after_ns(t, 1), 2);
}

DFM_TEST(busy_and_paused_time_are_apart, c.trigger_rate_millihertz = 100000)
{
        triggers_after_ns(t, 3 * NS_PER_S);
        dfm_pause(t->dfm, t->now_ns, true);
        assert_false(dfm_run_view(t->dfm).is_busy);
        triggers_after_ns(t, 5 * NS_PER_S);
        assert_counts(dfm_counts(t->dfm), busy_ns, 3 * NS_PER_S, paused_ns, 5 * NS_PER_S);
        dfm_pause(t->dfm, t->now_ns, false);
        dfm_says_with(t, false);
        triggers_after_ns(t, 2 * NS_PER_S);
        assert_counts(dfm_counts(t->dfm), busy_ns, 5 * NS_PER_S, paused_ns, 5 * NS_PER_S);
}

/* A long pause must not end the run as stalled. Open events still end, and may stall. */
DFM_TEST_AS(only_open_events_are_work_in_a_pause, dfm_standard(), start_schedule(t))
{
        dfm_pause(t->dfm, t->now_ns, true);
        dfm_says_with(t, false);
        assert_true(dfm_has_work(t->dfm));
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(t, false);
        assert_false(dfm_has_work(t->dfm));
}

DFM_TEST_AS(a_paused_run_can_be_stopped, dfm_standard(), start_schedule(t))
{
        dfm_pause(t->dfm, t->now_ns, true);
        triggers_after_ns(t, NS_PER_S);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_pass_ns(t, NS_PER_S);
        dfm_stop(t->dfm, t->now_ns);
        assert_false(dfm_run_view(t->dfm).is_paused);
        triggers_after_ns(t, NS_PER_S);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_int_equal(dfm_counts(t->dfm)->paused_ns, 2 * NS_PER_S);
        /* Neither a run that has ended nor one that has not begun has a pause. */
        dfm_pause(t->dfm, t->now_ns, true);
        assert_false(dfm_run_view(t->dfm).is_paused);
}

/* As the next KeepAlive says. */
static bool are_followed(struct dfm_driver *t)
{
        dfm_pass_ns(t, NS_PER_S);
        return keep_alive_flags(t) & KEEP_ALIVE_FOLLOWED;
}

OUTSIDE_TEST(triggers_from_outside_are_not_taken_in_a_pause, 8, 2)
{
        assert_int_equal(outside_offers(t, 101, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 102, 0), OFFER_QUEUED);
        dfm_pause(t->dfm, t->now_ns, true);
        assert_true(dfm_busy(t->dfm).busy);
        assert_int_equal(dfm_busy(t->dfm).reason, BUSY_PAUSED);
        assert_int_equal(outside_offers(t, 103, 0), OFFER_NOT_TAKEN);
        assert_int_equal(outside_offers(t, 103, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 104, 0), OFFER_NOT_TAKEN);
        /* Those that came before are taken. */
        assert_dfm_says(t, "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
        sfi_grants(t, 0, 9);
        assert_dfm_says(t, "sfi0: Assign e2>sfi0#2 | ross: Assign e2>sfi0");
        dfm_pause(t->dfm, t->now_ns, false);
        assert_false(dfm_busy(t->dfm).busy);
        assert_int_equal(outside_offers(t, 105, 0), OFFER_QUEUED);
        assert_dfm_says(t, "sfi0: Assign e3>sfi0#3 | ross: Assign e3>sfi0");
        assert_counts(offered(t), missing, 0, not_taken, 2, in_pauses, 2);
}

/* A ROS with frames after the last trigger knows whether they may be of later ones. */
OUTSIDE_TEST(triggers_after_the_last_one_are_reported, 8, 2)
{
        assert_int_equal(outside_offers(t, 101, 0), OFFER_QUEUED);
        assert_false(are_followed(t));
        dfm_pause(t->dfm, t->now_ns, true);
        assert_int_equal(outside_offers(t, 102, 0), OFFER_NOT_TAKEN);
        assert_true(are_followed(t));
        dfm_pause(t->dfm, t->now_ns, false);
        assert_int_equal(outside_offers(t, 103, 0), OFFER_QUEUED);
        assert_false(are_followed(t));
        dfm_stop(t->dfm, t->now_ns);
        assert_int_equal(outside_offers(t, 104, 0), OFFER_NOT_TAKEN);
        assert_true(are_followed(t));
}

DFM_TEST_AS(slices_of_a_pause_are_not_taken, outside_standard(8), dfm_driver_start(t, &c),
            c.trigger_source = DFM_TRIGGER_CLOCK, c.slice_ns = 10 * NS_PER_MS)
{
        ross_know(t, 1);
        sfi_grants(t, 0, 50);
        assert_int_equal(triggers_after_ns(t, 20 * NS_PER_MS), 2);
        dfm_pause(t->dfm, t->now_ns, true);
        assert_int_equal(triggers_after_ns(t, 5 * NS_PER_S), 2);
        dfm_pass_ns(t, 5 * NS_PER_S);
        dfm_pause(t->dfm, t->now_ns, false);
        assert_int_equal(triggers_after_ns(t, 10 * NS_PER_MS), 3);
        assert_counts(offered(t), not_taken, 1000, missing, 0, refused, 0);
}

/* Another DFM resumes a run of four triggers, of which two came into the record. Triggers with these numbers
 * come before it resumes, and after; 0: none. Then the run is stopped. */
static void resume_paused(const struct dfm_came *came, uint64_t before, uint64_t after, uint64_t missed,
                          uint64_t unclear)
{
        struct dfm_config c = outside_standard(16);
        struct dfm_driver t;

        c.previous_processes = outside_record(*came);
        outside_resumes(&t, &c);
        if (before > 0)
                assert_int_equal(outside_offers(&t, before, 0), OFFER_NOT_TAKEN);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        assert_int_equal(dfm_counts(t.dfm)->triggers, 4);
        if (after > 0)
                assert_int_equal(outside_offers(&t, after, 0), OFFER_QUEUED);
        dfm_stop(t.dfm, t.now_ns);
        dfm_says_with(&t, false);
        assert_counts(offered(&t), missed, missed, unclear, unclear);
        dfm_driver_fini(&t);
}

/* No triggers are accepted in a pause, so the next DFM has a record of all that should have been. If one
 * comes, its number shows how many came in between. */
TEST(no_trigger_of_a_pause_is_missed)
{
        struct dfm_came came = {.next = 13, .waiting = 2, .numbered = true, .paused = true, .seen = {0x1fff}};

        resume_paused(&came, 0, 0, 0, 0);
        resume_paused(&came, 0, 13, 0, 0);
        resume_paused(&came, 0, 15, 2, 0);
        resume_paused(&came, 13, 0, 0, 1);
        resume_paused(&came, 13, 14, 1, 0);
        came.waiting = 5; /* three of them ended with the DFM */
        resume_paused(&came, 0, 0, 3, 0);
        resume_paused(&came, 0, 14, 4, 0);
        came.paused = false;
        resume_paused(&came, 0, 0, 3, 1);
        resume_paused(&came, 0, 14, 4, 0);
        came.paused = true;
        came.waiting = 1; /* another one became an event, so there was no pause */
        resume_paused(&came, 0, 0, 0, 1);
        resume_paused(&came, 0, 14, 0, 0);
        came.numbered = false;
        resume_paused(&came, 0, 0, 0, 1);
}

/* The first trigger after a DFM has resumed the run overtook two others. They come once. */
DFM_TEST_AS(what_a_first_trigger_overtook_is_not_missed, outside_standard(16), outside_resumes(t, &c),
            c.previous_processes = outside_record((struct dfm_came){
                    .next = 13, .waiting = 2, .numbered = true, .seen = {0x1fff}}))
{
        dfm_says_with(t, false);
        assert_int_equal(outside_offers(t, 16, 0), OFFER_QUEUED);
        assert_int_equal(offered(t)->missed, 3);
        assert_int_equal(outside_offers(t, 14, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 19, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 15, 0), OFFER_QUEUED);
        assert_counts(offered(t), missed, 1, missing, 2);
        assert_int_equal(outside_offers(t, 18, 0), OFFER_QUEUED);
        assert_int_equal(offered(t)->missing, 1);
        for (uint64_t number = 14; number < 17; number++)
                assert_int_equal(outside_offers(t, number, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 12, 0), OFFER_REPEATED); /* the previous DFM had it */
        assert_int_equal(offered(t)->missed, 1);
}

/* The box skipped 6 and 7. When the record was made, 12 waited; it became an event, and then 13 did.
 * The box does not know this, and repeats what it sent last. */
DFM_TEST_AS(a_repeated_trigger_is_no_second_event_of_another_dfm, outside_standard(16),
            outside_resumes(t, &c),
            c.previous_processes = outside_record((struct dfm_came){
                    .offered.missing = 2, .next = 13, .waiting = 1, .numbered = true, .seen = {0x1f3f}}))
{
        dfm_says_with(t, false);
        for (unsigned k = 0; k < 2; k++) {
                assert_int_equal(outside_offers(t, 5, 0), OFFER_REPEATED);
                for (uint64_t number = 8; number < 14; number++)
                        assert_int_equal(outside_offers(t, number, 0), OFFER_REPEATED);
        }
        assert_counts(offered(t), repeated, 14, missing, 2, missed, 0, unclear, 0);
        assert_int_equal(outside_offers(t, 7, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 15, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 13, 0), OFFER_REPEATED);
        assert_counts(offered(t), missing, 1, missed, 1, unclear, 0);
        assert_int_equal(outside_offers(t, 14, 0), OFFER_QUEUED);
        assert_counts(offered(t), missing, 1, missed, 0);
}

/* 14 and 18 were skipped. 16 and 17 became events, 19 and 20 were lost with the previous DFM. */
DFM_TEST_AS(what_waited_in_the_previous_dfm_is_missed, outside_standard(16), outside_resumes(t, &c),
            c.previous_processes = outside_record((struct dfm_came){
                    .offered.missing = 2, .next = 21, .waiting = 4, .numbered = true, .seen = {0x1bbfff}}))
{
        dfm_says_with(t, false);
        assert_counts(offered(t), missing, 2, missed, 2);
        for (uint64_t number = 16; number < 21; number++)
                assert_int_equal(outside_offers(t, number, 0), number == 18 ? OFFER_QUEUED : OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 22, 0), OFFER_QUEUED);
        assert_counts(offered(t), missing, 1, missed, 3, unclear, 0);
}

/* The run was stopped with some triggers in the queue, two of which became events. No other one was
 * expected. */
TEST_EACH(triggers_that_waited_in_a_stopped_run_are_missed, i, 4)
{
        bool comes = i % 2, misses = i / 2;

        static struct dfm_processes record;
        struct dfm_config c = outside_standard(16);
        struct dfm_driver t;

        outside_begins(&t, &c, 1);
        outside_offers(&t, 101, 0);
        outside_offers(&t, 102, 0);
        if (misses)
                outside_offers(&t, 103, 0);
        dfm_stop(t.dfm, t.now_ns);
        dfm_processes_fill(t.dfm, &record);
        dfm_driver_fini(&t);
        c.previous_processes = outside_record(record.came);
        outside_resumes(&t, &c);
        if (comes)
                assert_int_equal(outside_offers(&t, 104, 0), OFFER_NOT_TAKEN);
        dfm_says_with(&t, false);
        assert_true(dfm_has_begun(t.dfm));
        assert_int_equal(dfm_state(t.dfm), RUN_DRAINING);
        assert_counts(offered(&t), not_taken, comes, missed, misses, unclear, 0);
        dfm_driver_fini(&t);
}

/* The counters were reset while no DFM ran. */
DFM_TEST_AS(a_number_far_back_follows_a_missed_reset, outside_standard(16), outside_resumes(t, &c),
            c.previous_processes = outside_record((struct dfm_came){
                    .offered.missing = 9999, .next = 5000, .waiting = 2, .numbered = true}))
{
        dfm_says_with(t, false);
        assert_int_equal(outside_offers(t, 3, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(t, 3, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(t, 4, 0), OFFER_QUEUED);
        assert_counts(offered(t), missing, 9999, missed, 0, unclear, 1);
}

/* Trigger 101 comes after 102, and waits. If no record had it, the next DFM would count it as missing in the
 * numbers of the box; if it becomes an event, the next DFM must refuse it. */
OUTSIDE_TEST(an_overtaken_trigger_is_recorded, 16, 1)
{
        static struct dfm_processes record;
        uint64_t version;

        assert_int_equal(outside_offers(t, 102, 0), OFFER_QUEUED);
        version = dfm_processes_version(t->dfm);
        assert_int_equal(outside_offers(t, 101, 0), OFFER_QUEUED);
        assert_true(dfm_processes_version(t->dfm) > version);
        dfm_processes_fill(t->dfm, &record);
        assert_fields(&record.came, next, 103, waiting, 1);
        assert_counts(&record.came.offered, missing, 0, missed, 1);
        assert_false(bits_get(record.came.seen, 101));
        sfi_grants(t, 0, 3);
        version = dfm_processes_version(t->dfm);
        dfm_says_with(t, false);
        assert_true(dfm_processes_version(t->dfm) > version);
        dfm_processes_fill(t->dfm, &record);
        assert_fields(&record.came, next, 103, waiting, 0);
        assert_counts(&record.came.offered, missing, 0, missed, 0);
        assert_true(bits_get(record.came.seen, 101) && bits_get(record.came.seen, 102));
}

/* It is stored before a node receives a later event. */
OUTSIDE_TEST(a_pause_is_recorded, 16, 4)
{
        static struct dfm_processes record;
        uint64_t version;

        for (int on = 1; on >= 0; on--) {
                version = dfm_processes_version(t->dfm);
                dfm_pause(t->dfm, t->now_ns, on);
                assert_true(dfm_processes_version(t->dfm) > version);
                dfm_processes_fill(t->dfm, &record);
                assert_int_equal(record.came.paused, on);
        }
}
