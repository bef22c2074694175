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

static void a_held_run_begins_when_released(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
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
static void missing_nodes_get_their_time_from_the_release_on(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
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

/* Its operator has started it: the DFM that takes over does not ask again. */
static void a_resumed_run_is_not_held(void **state)
{
        struct message m = {.header = {.cookie = TRACE_COOKIE, .type = MESSAGE_JOIN}, .dfm = 0xF0};
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.cookie = TRACE_COOKIE + 1;
        c.run_is_free = true;
        dfm_driver_init(&t, &c);
        dfm_hold_start(t.dfm);
        m.join.incarnation = 1;
        m.join.run = TRACE_RUN;
        for (uint16_t i = 0; i < 4; i++) {
                m.header.sender_role = i < 2 ? ROLE_ROS : ROLE_SFI;
                m.header.sender_index = i % 2;
                dfm_receive(t.dfm, t.now_ns, &m);
                t.ros_joined[i % 2] |= i < 2;
                t.sfis[i % 2].joined |= i >= 2;
        }
        all_join(&t);
        for (uint16_t i = 0; i < 2; i++) {
                t.message.n = 0;
                t.message.inventory = (__typeof__(t.message.inventory)){.incarnation = 1};
                assert_true(driver_say(&t, ROLE_SFI, i, MESSAGE_INVENTORY, 0));
        }
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        assert_false(dfm_is_held(t.dfm));
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

static void the_schedule_stands_still_in_a_pause(void **state)
{
        struct dfm_driver t;

        (void)state;
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
static void a_new_rate_in_a_pause_makes_no_burst(void **state)
{
        const struct dfm_settings slow = {
                .trigger_rate_millihertz = 1000, .trigger_burst = 1, .event_timeout_ns = 10 * NS_PER_S};
        struct dfm_driver t;

        (void)state;
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

static void busy_and_paused_time_are_apart(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
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
static void only_open_events_are_work_in_a_pause(void **state)
{
        struct dfm_driver t;

        (void)state;
        start_schedule(&t);
        dfm_pause(t.dfm, t.now_ns, true);
        dfm_says_with(&t, false);
        assert_true(dfm_has_work(t.dfm));
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        dfm_says_with(&t, false);
        assert_false(dfm_has_work(t.dfm));
        dfm_driver_fini(&t);
}

static void a_paused_run_can_be_stopped(void **state)
{
        struct dfm_driver t;

        (void)state;
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

static void triggers_from_outside_are_not_taken_in_a_pause(void **state)
{
        struct dfm_config c = outside_standard(8);
        struct dfm_driver t;

        (void)state;
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

static void slices_of_a_pause_are_not_taken(void **state)
{
        struct dfm_config c = outside_standard(8);
        struct dfm_driver t;

        (void)state;
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_held_run_begins_when_released),
                cmocka_unit_test(missing_nodes_get_their_time_from_the_release_on),
                cmocka_unit_test(a_resumed_run_is_not_held),
                cmocka_unit_test(the_schedule_stands_still_in_a_pause),
                cmocka_unit_test(a_new_rate_in_a_pause_makes_no_burst),
                cmocka_unit_test(busy_and_paused_time_are_apart),
                cmocka_unit_test(only_open_events_are_work_in_a_pause),
                cmocka_unit_test(a_paused_run_can_be_stopped),
                cmocka_unit_test(triggers_from_outside_are_not_taken_in_a_pause),
                cmocka_unit_test(slices_of_a_pause_are_not_taken),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
