/* What an operator holds back: the start of a run, and its triggers. */
#include "../dfm_outside.h"

static void all_join(struct dfm_driver *t)
{
        for (uint16_t i = 0; i < t->config.n_ros; i++)
                ros_says_alive(t, i, RUN_RUNNING, 0);
        for (uint16_t i = 0; i < t->config.n_sfi; i++)
                sfi_says_alive(t, i, RUN_RUNNING, 0);
        dfm_says_with(t, false);
}

DFM_TEST(a_held_run_begins_when_released, dfm_standard())
{
        dfm_driver_init(&t, &c);
        dfm_hold_start(t.dfm);
        assert_false(dfm_is_ready(t.dfm));
        all_join(&t);
        assert_true(dfm_is_held(t.dfm) && dfm_is_ready(t.dfm));
        dfm_pass_ns(&t, 3600 * NS_PER_S);
        all_join(&t);
        assert_int_equal(dfm_state(t.dfm), RUN_STARTING);
        assert_false(dfm_has_work(t.dfm));
        dfm_release_start(t.dfm, t.now_ns);
        assert_true(dfm_deadline_ns(t.dfm) <= t.now_ns);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        /* It is too late to hold it. */
        dfm_hold_start(t.dfm);
        assert_false(dfm_is_held(t.dfm));
        dfm_driver_fini(&t);
}

/* The last node joined long ago: that alone must not start a run without the others. */
DFM_TEST(missing_nodes_get_their_time_from_the_release_on, dfm_standard())
{
        c.start_timeout_ns = 5 * NS_PER_S;
        dfm_driver_init(&t, &c);
        dfm_hold_start(t.dfm);
        ros_says_alive(&t, 0, RUN_RUNNING, 0);
        sfi_says_alive(&t, 0, RUN_RUNNING, 0);
        dfm_says_with(&t, false);
        dfm_pass_ns(&t, 60 * NS_PER_S);
        dfm_release_start(t.dfm, t.now_ns);
        dfm_says_with(&t, false);
        dfm_pass_ns(&t, 5 * NS_PER_S - 1);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_STARTING);
        dfm_pass_ns(&t, 1);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        dfm_driver_fini(&t);
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

/* The node was in the run of another DFM, which had `newest` events. */
static void joins_in_run(struct dfm_driver *t, enum node_role role, uint16_t index, uint64_t newest)
{
        struct message m = {.header = {.cookie = TRACE_COOKIE,
                                       .type = MESSAGE_JOIN,
                                       .sender_role = role,
                                       .sender_index = index},
                            .dfm = 0xF0};

        m.join.incarnation = 1;
        m.join.run = TRACE_RUN;
        m.join.newest = newest;
        dfm_receive(t->dfm, t->now_ns, &m);
        if (role == ROLE_ROS) {
                t->ros_joined[index] = true;
                ros_says_alive(t, index, RUN_RUNNING, 0);
        } else {
                t->sfis[index].joined = 1;
                sfi_says_alive(t, index, RUN_RUNNING, 0);
        }
}

/* The SFI built the events of the first set of bits, and has those of the second. */
static void reports(struct dfm_driver *t, uint16_t sfi, uint64_t end, uint64_t ended, uint64_t open)
{
        t->message.n = 1;
        t->message.inventory = (__typeof__(t->message.inventory)){.incarnation = 1, .end = end};
        t->message.inventory.totals.complete = (uint64_t)__builtin_popcountll(ended);
        t->message.inventory.entries[0] = (struct inventory_entry){ended, open};
        assert_true(driver_say(t, ROLE_SFI, sfi, MESSAGE_INVENTORY, 0));
}

/* Its operator has started it: the DFM that takes over does not ask again. */
DFM_TEST(a_resumed_run_is_not_held, takeover())
{
        dfm_driver_init(&t, &c);
        dfm_hold_start(t.dfm);
        for (uint16_t i = 0; i < 4; i++)
                joins_in_run(&t, i < 2 ? ROLE_ROS : ROLE_SFI, i % 2, 0);
        reports(&t, 0, 0, 0, 0);
        reports(&t, 1, 0, 0, 0);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        assert_false(dfm_is_held(t.dfm));
        dfm_driver_fini(&t);
}

/* Both ROSs come, and then `n_sfi` SFIs; the run waits for the others, and is stopped. */
static void stop_a_takeover(struct dfm_driver *t, const struct dfm_config *c, uint16_t n_sfi)
{
        dfm_driver_init(t, c);
        assert_false(dfm_is_in_run(t->dfm));
        for (uint16_t i = 0; i < 2; i++)
                joins_in_run(t, ROLE_ROS, i, 6);
        for (uint16_t i = 0; i < n_sfi; i++)
                joins_in_run(t, ROLE_SFI, i, 6);
        assert_dfm_says(t, n_sfi > 0 ? "sfi0: Inquiry from 0" : "");
        assert_true(dfm_is_in_run(t->dfm) && !dfm_has_begun(t->dfm));
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
        dfm_stop(t->dfm, t->now_ns);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
}

/* Each trigger ended once; only the former DFM knew the assignments. */
static void fini_takeover(struct dfm_driver *t, uint64_t complete, uint64_t lost)
{
        const struct dfm_counts *k = dfm_counts(t->dfm);
        struct dfm_notice n;

        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_int_equal(k->triggers, 6);
        assert_int_equal(k->complete, complete);
        assert_int_equal(k->lost, lost);
        while (dfm_take_notice(t->dfm, &n))
                assert_int_not_equal(n.kind, NOTICE_BEGUN);
        dfm_free(t->dfm);
}

/* An SFI of the run does not come. A stop accounts for the run with what the others know. */
DFM_TEST(a_stopped_takeover_accounts_for_the_run, takeover())
{
        stop_a_takeover(&t, &c, 1);
        reports(&t, 0, 6, 0x3, 0x4); /* built 0 and 1, has 2 */
        /* The other one has a moment to come. */
        dfm_pass_ns(&t, 3 * NS_PER_S - 1);
        assert_dfm_says(&t, "");
        assert_false(dfm_has_begun(t.dfm));
        dfm_pass_ns(&t, 1);
        assert_dfm_says(&t, "");
        assert_true(dfm_has_begun(t.dfm));
        assert_int_equal(dfm_state(t.dfm), RUN_DRAINING);
        assert_int_equal(dfm_counts(t.dfm)->complete, 2);
        assert_int_equal(dfm_open_events(t.dfm), 4);
        sfi_grants(&t, 0, 4);
        assert_dfm_says(&t, "sfi0: Build e3>sfi0#0 e4>sfi0#1 e5>sfi0#2");
        for (uint64_t event = 2; event < 6; event++)
                sfi_ends(&t, 0, event, EVENT_COMPLETE, 0);
        dfm_says_with(&t, false);
        fini_takeover(&t, 6, 0);
}

/* Nothing is left to build the events: what is not known counts as lost. */
DFM_TEST(a_stopped_takeover_ends_without_an_sfi, takeover())
{
        stop_a_takeover(&t, &c, 0);
        dfm_pass_ns(&t, 3 * NS_PER_S);
        dfm_says_with(&t, false);
        dfm_says_with(&t, false);
        fini_takeover(&t, 0, 6);
}

/* An SFI gets no event before it has the metadata, whether it is there at the start or comes later. */
DFM_TEST(sfis_get_the_metadata_before_events, dfm_standard())
{
        static const struct metadata_entry entries[] = {{"Shift", "7"}, {"Beam", "on"}};

        dfm_driver_init(&t, &c);
        dfm_hold_start(t.dfm);
        all_join(&t);
        sfi_grants(&t, 0, 9);
        dfm_set_metadata(t.dfm, t.now_ns, entries, 2);
        assert_dfm_says(&t, "sfi0: Metadata v1 0/2 Shift=7 | sfi0: Metadata v1 1/2 Beam=on"
                            " | sfi1: Metadata v1 0/2 Shift=7 | sfi1: Metadata v1 1/2 Beam=on");
        assert_true(dfm_deadline_ns(t.dfm) > t.now_ns);
        dfm_release_start(t.dfm, t.now_ns);
        assert_dfm_says(&t, "");
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        /* The answer of SFI 1 was lost, so it hears again. */
        t.metadata = 1;
        sfi_says_alive(&t, 0, RUN_RUNNING, 0);
        dfm_pass_ns(&t, c.keep_alive_ns);
        sfi_says_alive(&t, 0, RUN_RUNNING, 0);
        trace_clear(&t.trace);
        assert_non_null(strstr(dfm_says_with(&t, false), "sfi1: Metadata v1 0/2 Shift=7"));
        assert_non_null(strstr(t.trace.text, "sfi0: Assign e0>sfi0#0"));
        assert_null(strstr(t.trace.text, "sfi0: Metadata"));
        assert_int_equal(dfm_counts(t.dfm)->triggers, 9);
        sfi_grants(&t, 1, 2);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_counts(t.dfm)->triggers, 9);
        sfi_says_alive(&t, 1, RUN_RUNNING, 0);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_counts(t.dfm)->triggers, 11);
        /* It is too late for others. */
        dfm_set_metadata(t.dfm, t.now_ns, entries, 1);
        dfm_pass_ns(&t, c.keep_alive_ns);
        assert_null(strstr(dfm_says_with(&t, false), "Metadata"));
        dfm_driver_fini(&t);
}

/* Without names, earlier ones are taken back. */
DFM_TEST(a_later_start_replaces_the_metadata, dfm_standard())
{
        static const struct metadata_entry entry = {"Shift", "7"};

        dfm_driver_init(&t, &c);
        dfm_hold_start(t.dfm);
        all_join(&t);
        dfm_set_metadata(t.dfm, t.now_ns, NULL, 0);
        assert_dfm_says(&t, "");
        dfm_set_metadata(t.dfm, t.now_ns, &entry, 1);
        assert_dfm_says(&t, "sfi0: Metadata v1 0/1 Shift=7 | sfi1: Metadata v1 0/1 Shift=7");
        dfm_set_metadata(t.dfm, t.now_ns, NULL, 0);
        assert_dfm_says(&t, "sfi0: Metadata v2 0/0 = | sfi1: Metadata v2 0/0 =");
        dfm_driver_fini(&t);
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

TEST(the_schedule_stands_still_in_a_pause)
{
        struct dfm_driver t;

        start_schedule(&t);
        assert_int_equal(triggers_after_ns(&t, 4 * NS_PER_MS), 1);
        dfm_pause(t.dfm, t.now_ns, true);
        assert_true(dfm_is_paused(t.dfm));
        assert_true(dfm_deadline_ns(t.dfm) > t.now_ns);
        assert_int_equal(triggers_after_ns(&t, 10 * NS_PER_S), 1);
        dfm_pause(t.dfm, t.now_ns, false);
        /* What was left of the interval passes first. */
        assert_int_equal(triggers_after_ns(&t, 6 * NS_PER_MS - 1), 1);
        assert_int_equal(triggers_after_ns(&t, 1), 2);
        assert_int_equal(triggers_after_ns(&t, 10 * NS_PER_MS), 3);
        assert_int_equal(dfm_counts(t.dfm)->paused_ns, 10 * NS_PER_S);
        assert_int_equal(dfm_counts(t.dfm)->busy_ns, 0);
        dfm_driver_fini(&t);
}

/* Even if another rate was set meanwhile. */
TEST(a_new_rate_in_a_pause_makes_no_burst)
{
        const struct dfm_settings slow = {
                .trigger_rate_millihertz = 1000, .trigger_burst = 1, .event_timeout_ns = 10 * NS_PER_S};
        struct dfm_driver t;

        start_schedule(&t);
        dfm_pause(t.dfm, t.now_ns, true);
        dfm_pass_ns(&t, 100 * NS_PER_S);
        dfm_change(t.dfm, t.now_ns, &slow);
        dfm_pass_ns(&t, 100 * NS_PER_S);
        dfm_pause(t.dfm, t.now_ns, false);
        assert_int_equal(triggers_after_ns(&t, NS_PER_S - 1), 1);
        assert_int_equal(triggers_after_ns(&t, 1), 2);
        dfm_driver_fini(&t);
}

DFM_TEST(busy_and_paused_time_are_apart, dfm_standard())
{
        c.trigger_rate_millihertz = 100000;
        dfm_driver_start(&t, &c); /* without credits: busy from the first trigger on */
        triggers_after_ns(&t, 3 * NS_PER_S);
        dfm_pause(t.dfm, t.now_ns, true);
        assert_false(dfm_is_busy(t.dfm));
        triggers_after_ns(&t, 5 * NS_PER_S);
        assert_int_equal(dfm_counts(t.dfm)->busy_ns, 3 * NS_PER_S);
        assert_int_equal(dfm_counts(t.dfm)->paused_ns, 5 * NS_PER_S);
        dfm_pause(t.dfm, t.now_ns, false);
        dfm_says_with(&t, false);
        triggers_after_ns(&t, 2 * NS_PER_S);
        assert_int_equal(dfm_counts(t.dfm)->busy_ns, 5 * NS_PER_S);
        assert_int_equal(dfm_counts(t.dfm)->paused_ns, 5 * NS_PER_S);
        dfm_driver_fini(&t);
}

/* A long pause must not end the run as stalled. Open events still end, and may stall. */
TEST(only_open_events_are_work_in_a_pause)
{
        struct dfm_driver t;

        start_schedule(&t);
        dfm_pause(t.dfm, t.now_ns, true);
        dfm_says_with(&t, false);
        assert_true(dfm_has_work(t.dfm));
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(&t, false);
        assert_false(dfm_has_work(t.dfm));
        dfm_driver_fini(&t);
}

TEST(a_paused_run_can_be_stopped)
{
        struct dfm_driver t;

        start_schedule(&t);
        dfm_pause(t.dfm, t.now_ns, true);
        triggers_after_ns(&t, NS_PER_S);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        dfm_pass_ns(&t, NS_PER_S);
        dfm_stop(t.dfm, t.now_ns);
        assert_false(dfm_is_paused(t.dfm));
        triggers_after_ns(&t, NS_PER_S);
        assert_int_equal(dfm_state(t.dfm), RUN_ENDED);
        assert_int_equal(dfm_counts(t.dfm)->paused_ns, 2 * NS_PER_S);
        /* Neither a run that has ended nor one that has not begun has a pause. */
        dfm_pause(t.dfm, t.now_ns, true);
        assert_false(dfm_is_paused(t.dfm));
        dfm_driver_fini(&t);
}

/* As the next KeepAlive says. */
static bool are_followed(struct dfm_driver *t)
{
        struct message_to to;
        bool found = false;

        dfm_pass_ns(t, NS_PER_S);
        while (dfm_step(t->dfm, t->now_ns, &to, &t->message)) {
                if (t->message.header.type == MESSAGE_KEEP_ALIVE)
                        found = t->message.keep_alive.flags & KEEP_ALIVE_FOLLOWED;
        }
        return found;
}

DFM_TEST(triggers_from_outside_are_not_taken_in_a_pause, outside_standard(8))
{
        outside_begins(&t, &c, 2);
        assert_int_equal(outside_offers(&t, 101, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(&t, 102, 0), OFFER_QUEUED);
        dfm_pause(t.dfm, t.now_ns, true);
        assert_true(dfm_busy(t.dfm).busy);
        assert_int_equal(dfm_busy(t.dfm).reason, BUSY_PAUSED);
        assert_int_equal(outside_offers(&t, 103, 0), OFFER_NOT_TAKEN);
        assert_int_equal(outside_offers(&t, 103, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(&t, 104, 0), OFFER_NOT_TAKEN);
        /* Those that came before are taken. */
        assert_dfm_says(&t, "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
        sfi_grants(&t, 0, 9);
        assert_dfm_says(&t, "sfi0: Assign e2>sfi0#2 | ross: Assign e2>sfi0");
        dfm_pause(t.dfm, t.now_ns, false);
        assert_false(dfm_busy(t.dfm).busy);
        assert_int_equal(outside_offers(&t, 105, 0), OFFER_QUEUED);
        assert_dfm_says(&t, "sfi0: Assign e3>sfi0#3 | ross: Assign e3>sfi0");
        assert_int_equal(offered(&t)->missing, 0);
        assert_int_equal(offered(&t)->not_taken, 2);
        assert_int_equal(offered(&t)->in_pauses, 2);
        outside_ends(&t);
}

/* A ROS with frames after the last trigger knows whether they may be of later ones. */
DFM_TEST(triggers_after_the_last_one_are_reported, outside_standard(8))
{
        outside_begins(&t, &c, 2);
        assert_int_equal(outside_offers(&t, 101, 0), OFFER_QUEUED);
        assert_false(are_followed(&t));
        dfm_pause(t.dfm, t.now_ns, true);
        assert_int_equal(outside_offers(&t, 102, 0), OFFER_NOT_TAKEN);
        assert_true(are_followed(&t));
        dfm_pause(t.dfm, t.now_ns, false);
        assert_int_equal(outside_offers(&t, 103, 0), OFFER_QUEUED);
        assert_false(are_followed(&t));
        dfm_stop(t.dfm, t.now_ns);
        assert_int_equal(outside_offers(&t, 104, 0), OFFER_NOT_TAKEN);
        assert_true(are_followed(&t));
        outside_ends(&t);
}

DFM_TEST(slices_of_a_pause_are_not_taken, outside_standard(8))
{
        c.trigger_source = DFM_TRIGGER_CLOCK;
        c.slice_ns = 10 * NS_PER_MS;
        dfm_driver_start(&t, &c);
        ross_know(&t, 1);
        sfi_grants(&t, 0, 50);
        assert_int_equal(triggers_after_ns(&t, 20 * NS_PER_MS), 2);
        dfm_pause(t.dfm, t.now_ns, true);
        assert_int_equal(triggers_after_ns(&t, 5 * NS_PER_S), 2);
        dfm_pass_ns(&t, 5 * NS_PER_S);
        dfm_pause(t.dfm, t.now_ns, false);
        assert_int_equal(triggers_after_ns(&t, 10 * NS_PER_MS), 3);
        assert_int_equal(offered(&t)->not_taken, 1000);
        assert_int_equal(offered(&t)->missing, 0);
        assert_int_equal(offered(&t)->refused, 0);
        outside_ends(&t);
}

/* Another DFM resumes a run of four triggers, of which two came into the record. Triggers with these numbers
 * come before it resumes, and after; 0: none. Then the run is stopped. */
static void resume_paused(const struct dfm_came *came, uint64_t before, uint64_t after, uint64_t missed,
                          uint64_t unclear)
{
        static struct dfm_processes record;
        struct dfm_config c = outside_standard(16);
        struct dfm_driver t;

        record = (struct dfm_processes){
                .cookie = TRACE_COOKIE,
                .dfms = {0xF0},
                .has_all = true,
                .n_sfi = 2,
                .sfis = {{.incarnation = 1}, {.incarnation = 1}},
                .came = *came,
                .next = 2,
        };
        c.former_processes = &record;
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
        assert_int_equal(offered(&t)->missed, missed);
        assert_int_equal(offered(&t)->unclear, unclear);
        outside_ends(&t);
}

/* A pause takes no triggers, so the next DFM knows all that were to be taken. If one comes, its number shows
 * how many came in between. */
TEST(no_trigger_of_a_pause_is_missed)
{
        struct dfm_came came = {.next = 13, .waiting = 2, .numbered = true, .paused = true};

        resume_paused(&came, 0, 0, 0, 0);
        resume_paused(&came, 0, 13, 0, 0);
        resume_paused(&came, 0, 15, 2, 0);
        resume_paused(&came, 13, 0, 0, 1);
        resume_paused(&came, 13, 14, 1, 0);
        came.waiting = 5; /* three of them ended with the DFM */
        resume_paused(&came, 0, 0, 3, 0);
        resume_paused(&came, 0, 14, 4, 0);
        came.paused = false;
        resume_paused(&came, 0, 0, 0, 1);
        resume_paused(&came, 0, 14, 4, 0);
        came.paused = true;
        came.waiting = 1; /* another one became an event, so there was no pause */
        resume_paused(&came, 0, 0, 0, 1);
        resume_paused(&came, 0, 14, 0, 0);
        came.numbered = false;
        resume_paused(&came, 0, 0, 0, 1);
}

/* The first trigger after a DFM has resumed the run overtook two others. They come once. */
DFM_TEST(what_a_first_trigger_overtook_is_not_missed, outside_standard(16))
{
        static struct dfm_processes record = {
                .cookie = TRACE_COOKIE,
                .dfms = {0xF0},
                .has_all = true,
                .n_sfi = 2,
                .sfis = {{.incarnation = 1}, {.incarnation = 1}},
                .came = {.next = 13, .waiting = 2, .numbered = true},
                .next = 2,
        };

        c.former_processes = &record;
        outside_resumes(&t, &c);
        dfm_says_with(&t, false);
        assert_int_equal(outside_offers(&t, 16, 0), OFFER_QUEUED);
        assert_int_equal(offered(&t)->missed, 3);
        assert_int_equal(outside_offers(&t, 14, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(&t, 19, 0), OFFER_QUEUED);
        assert_int_equal(outside_offers(&t, 15, 0), OFFER_QUEUED);
        assert_int_equal(offered(&t)->missed, 1);
        assert_int_equal(offered(&t)->missing, 2);
        assert_int_equal(outside_offers(&t, 18, 0), OFFER_QUEUED);
        assert_int_equal(offered(&t)->missing, 1);
        for (uint64_t number = 14; number < 17; number++)
                assert_int_equal(outside_offers(&t, number, 0), OFFER_REPEATED);
        assert_int_equal(outside_offers(&t, 12, 0), OFFER_REPEATED); /* the former DFM had it */
        assert_int_equal(offered(&t)->missed, 1);
        outside_ends(&t);
}

/* It is stored before a node hears of an event that comes after it. */
DFM_TEST(a_pause_is_recorded, outside_standard(16))
{
        static struct dfm_processes record;
        uint64_t version;

        outside_begins(&t, &c, 4);
        for (int on = 1; on >= 0; on--) {
                version = dfm_processes_version(t.dfm);
                dfm_pause(t.dfm, t.now_ns, on);
                assert_true(dfm_processes_version(t.dfm) > version);
                dfm_processes_take(t.dfm, &record);
                assert_int_equal(record.came.paused, on);
        }
        outside_ends(&t);
}
