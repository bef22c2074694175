/* The DFM and events that their SFI does not finish, or not in time; and SFIs that go, come back and begin
 * anew. */
#include "dfm_driver.h"

static void an_sfi_that_disappears_gives_its_events_back(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.node_timeout_ns = NS_PER_S;
        for (int push = 0; push < 2; push++) {
                c.push = push;
                dfm_driver_start(&t, &c);
                sfi0_takes(&t, 2);
                dfm_pass_ns(&t, 900 * NS_PER_MS);
                ros_says_alive(&t, 0, RUN_RUNNING, 0);
                ros_says_alive(&t, 1, RUN_RUNNING, 0);
                sfi_grants(&t, 1, 1);
                assert_dfm_says(&t, push ? "all: Assign e2>sfi1#0" : "sfi1: Assign e2>sfi1#0");
                sfi_acks(&t, 1, 1);
                dfm_pass_ns(&t, 200 * NS_PER_MS);
                assert_dfm_says(&t, "");
                assert_int_equal(dfm_live(t.dfm, ROLE_SFI), 1);
                /* They go first, and no new one as long as they wait. */
                sfi_grants(&t, 1, 2);
                assert_dfm_says(&t, push ? "all: Build e0>sfi1#1" : "sfi1: Build e0>sfi1#1");
                sfi_grants(&t, 1, 4);
                assert_string_equal(strstr(dfm_says_with(&t, false), "Build e1"),
                                    push ? "Build e1>sfi1#2 | all: Assign e3>sfi1#3"
                                         : "Build e1>sfi1#2 | sfi1: Assign e3>sfi1#3");
                assert_int_equal(dfm_counts(t.dfm)->reassigned, 2);
                dfm_driver_fini(&t);
        }
}

static void an_event_that_is_not_finished_goes_to_another(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        sfi0_takes(&t, 1);
        sfi_grants(&t, 1, 1);
        assert_dfm_says(&t, "all: Assign e1>sfi1#0");
        sfi_acks(&t, 1, 1);
        sfi_ends(&t, 1, 1, EVENT_COMPLETE, 0);
        dfm_pass_ns(&t, c.event_timeout_ns - 1);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_open_events(t.dfm), 1);
        dfm_pass_ns(&t, 1);
        assert_dfm_says(&t, "");
        sfi_grants(&t, 1, 2);
        assert_dfm_says(&t, "all: Build e0>sfi1#1");
        /* What the first one still makes of it counts, the second one's is one too many. */
        sfi_acks(&t, 1, 2);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(&t, 1, 0, EVENT_PARTIAL, 1);
        assert_int_equal(dfm_counts(t.dfm)->complete, 2);
        assert_int_equal(dfm_counts(t.dfm)->partial, 0);
        assert_int_equal(dfm_counts(t.dfm)->ended_again, 1);
        dfm_driver_fini(&t);
}

static void an_event_goes_to_another_sfi_than_before_where_one_has_a_credit(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.push = false;
        c.events = 2;
        c.reassign_max = 2;
        for (int p = 0; p < POLICIES; p++) {
                c.policy = (enum policy_id)p;
                dfm_driver_start(&t, &c);
                sfi_grants(&t, 0, 1);
                assert_dfm_says(&t, "sfi0: Assign e0>sfi0#0");
                dfm_pass_ns(&t, NS_PER_S);
                sfi_acks(&t, 0, 1);
                sfi_grants(&t, 1, 1);
                assert_dfm_says(&t, "sfi1: Assign e1>sfi1#0");
                sfi_acks(&t, 1, 1);
                /* By each policy it would be SFI 0's turn: it came before, holds nothing, has most credits.
                 */
                sfi_grants(&t, 0, 8);
                sfi_grants(&t, 1, 2);
                dfm_pass_ns(&t, c.event_timeout_ns - NS_PER_S);
                assert_dfm_says(&t, "sfi1: Build e0>sfi1#1");
                sfi_acks(&t, 1, 2);
                dfm_pass_ns(&t, NS_PER_S);
                assert_dfm_says(&t, "sfi0: Build e1>sfi0#1");
                sfi_acks(&t, 0, 2);
                /* Where the other one has no credit, the same one is better than nobody. */
                dfm_pass_ns(&t, c.event_timeout_ns);
                sfi_grants(&t, 0, 8);
                assert_dfm_says(&t, "sfi0: Build e0>sfi0#2 e1>sfi0#3");
                dfm_driver_fini(&t);
        }
}

static void an_event_that_comes_back_to_its_sfi_is_not_ended_by_the_void_entry(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;
        struct message_to to;
        uint64_t void_event;

        (void)state;
        c.n_sfi = 1;
        c.push = false;
        c.events = 1;
        dfm_driver_start(&t, &c);
        sfi_grants(&t, 0, 2);
        assert_dfm_says(&t, "sfi0: Assign e0>sfi0#0");
        dfm_pass_ns(&t, c.event_timeout_ns);        /* the SFI has heard of nothing so far */
        dfm_step(t.dfm, t.now_ns, &to, &t.message); /* KeepAlive */
        assert_true(dfm_step(t.dfm, t.now_ns, &to, &t.message));
        trace_clear(&t.trace);
        trace_message(&t.trace, to, &t.message);
        assert_string_equal(t.trace.text, "sfi0: Assign void>sfi0#0");
        void_event = t.message.assign.entries[0].event;
        assert_dfm_says(&t, "sfi0: Build e0>sfi0#1");
        sfi_acks(&t, 0, 2);
        sfi_ends(&t, 0, void_event, EVENT_LOST, 2);
        assert_int_equal(dfm_counts(t.dfm)->lost, 0);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t.dfm)->complete, 1);
        dfm_driver_fini(&t);
}

/* Given back and forth: what an SFI reports of a former assignment after it has heard of the new one concerns
 * no event. */
static void an_event_that_came_back_twice_is_built(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.push = false;
        c.events = 1;
        c.reassign_max = 2;
        dfm_driver_start(&t, &c);
        sfi_grants(&t, 0, 1);
        assert_dfm_says(&t, "sfi0: Assign e0>sfi0#0");
        sfi_acks(&t, 0, 1);
        sfi_grants(&t, 1, 1);
        dfm_pass_ns(&t, c.event_timeout_ns);
        assert_dfm_says(&t, "sfi1: Build e0>sfi1#0");
        sfi_acks(&t, 1, 1);
        sfi_grants(&t, 0, 2);
        dfm_pass_ns(&t, c.event_timeout_ns);
        assert_dfm_says(&t, "sfi0: Build e0>sfi0#1");
        sfi_acks(&t, 0, 2);
        sfi_ends(&t, 0, ASSIGN_VOID_EVENT, EVENT_LOST, 2);
        sfi_ends(&t, 1, 0, EVENT_LOST, 2);
        assert_int_equal(dfm_counts(t.dfm)->lost, 0);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t.dfm)->complete, 1);
        dfm_driver_fini(&t);
}

static void an_event_that_came_back_is_not_ended_by_who_does_not_know_of_it(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.n_sfi = 1;
        c.push = false;
        c.events = 1;
        dfm_driver_start(&t, &c);
        sfi0_takes(&t, 1);
        sfi_grants(&t, 0, 2);
        dfm_pass_ns(&t, c.event_timeout_ns);
        assert_dfm_says(&t, "sfi0: Build e0>sfi0#1");
        sfi_ends(&t, 0, 0, EVENT_LOST, 2); /* of the first assignment */
        assert_int_equal(dfm_counts(t.dfm)->lost, 0);
        sfi_acks(&t, 0, 2);
        sfi_ends(&t, 0, 0, EVENT_LOST, 2);
        assert_int_equal(dfm_counts(t.dfm)->lost, 1);
        dfm_driver_fini(&t);
}

static void an_event_given_up_by_its_first_sfi_is_still_the_second_ones(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        sfi0_takes(&t, 1);
        dfm_pass_ns(&t, c.event_timeout_ns);
        assert_dfm_says(&t, "");
        sfi_grants(&t, 1, 1);
        assert_dfm_says(&t, "all: Build e0>sfi1#0");
        sfi_ends(&t, 0, 0, EVENT_LOST, 2);
        assert_int_equal(dfm_counts(t.dfm)->lost, 0);
        sfi_ends(&t, 1, 0, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t.dfm)->complete, 1);
        assert_int_equal(dfm_counts(t.dfm)->ended_again, 0);
        dfm_driver_fini(&t);
}

static void what_was_taken_back_is_not_held_any_more(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.policy = POLICY_LEAST_LOADED;
        c.push = false;
        dfm_driver_start(&t, &c);
        sfi0_takes(&t, 2);
        dfm_pass_ns(&t, c.event_timeout_ns);
        assert_dfm_says(&t, "");
        sfi_grants(&t, 1, 3);
        assert_dfm_says(&t, "sfi1: Build e0>sfi1#0 e1>sfi1#1 | sfi1: Assign e2>sfi1#2");
        sfi_acks(&t, 1, 3);
        /* SFI 0 holds none, SFI 1 three. */
        sfi_grants(&t, 0, 4);
        sfi_grants(&t, 1, 4);
        assert_dfm_says(&t, "sfi0: Assign e3>sfi0#2 e4>sfi0#3 | sfi1: Assign e5>sfi1#3");
        dfm_driver_fini(&t);
}

static void what_was_taken_back_is_void_in_the_stream(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.keep_alive_ns = 1000 * NS_PER_S;
        for (int push = 0; push < 2; push++) {
                c.push = push;
                dfm_driver_start(&t, &c);
                sfi_grants(&t, 0, 2);
                dfm_says_with(&t, false);
                sfi_acks(&t, 0, 0);
                dfm_pass_ns(&t, c.event_timeout_ns);
                assert_dfm_says(&t, "sfi0: Assign void>sfi0#0 void>sfi0#1");
                sfi_grants(&t, 1, 1);
                assert_dfm_says(&t, push ? "all: Build e0>sfi1#0" : "sfi1: Build e0>sfi1#0");
                dfm_driver_fini(&t);
        }
}

static void another_incarnation_has_forgotten_all(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        sfi0_takes(&t, 2);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        t.sfis[0] = (struct played_sfi){.incarnation = 2};
        sfi_says_alive(&t, 0, RUN_RUNNING, 0);
        assert_dfm_says(&t, "");
        /* Its stream begins anew, with what the one before did not finish. */
        sfi_grants(&t, 0, 2);
        assert_dfm_says(&t, "all: Build e1>sfi0#0 | all: Assign e2>sfi0#1");
        sfi_acks(&t, 0, 2);
        sfi_ends(&t, 0, 1, EVENT_COMPLETE, 0);
        assert_dfm_says(&t, "sfi0: UpdateAck 1");
        assert_int_equal(dfm_counts(t.dfm)->complete, 2);
        dfm_driver_fini(&t);
}

static void an_sfi_that_was_only_silent_goes_on_where_it_was(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.n_sfi = 1;
        c.node_timeout_ns = NS_PER_S;
        for (int push = 0; push < 2; push++) {
                c.push = push;
                dfm_driver_start(&t, &c);
                sfi0_takes(&t, 2);
                sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
                sfi_grants(&t, 0, 3);
                assert_dfm_says(&t, push ? "all: Assign e2>sfi0#2 | sfi0: UpdateAck 1"
                                         : "sfi0: Assign e2>sfi0#2 | sfi0: UpdateAck 1");
                dfm_pass_ns(&t, 1100 * NS_PER_MS);
                dfm_says_with(&t, false);
                assert_int_equal(dfm_live(t.dfm, ROLE_SFI), 0);
                /* It has forgotten nothing: what it was told and tells is numbered as before. */
                sfi_says_alive(&t, 0, RUN_RUNNING, 0);
                sfi_grants(&t, 0, 3);
                assert_dfm_says(&t, "sfi0: Assign void>sfi0#2");
                sfi_acks(&t, 0, 3);
                sfi_ends(&t, 0, 1, EVENT_COMPLETE, 0);
                assert_dfm_says(&t, "sfi0: UpdateAck 2");
                assert_int_equal(dfm_counts(t.dfm)->complete, 2);
                sfi_grants(&t, 0, 4);
                assert_dfm_says(&t, push ? "all: Build e2>sfi0#3" : "sfi0: Build e2>sfi0#3");
                dfm_driver_fini(&t);
        }
}

/* Its one credit would else be used up by an event that nobody ever mentions. */
static void an_sfi_that_was_silent_hears_of_what_it_was_never_told(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;
        struct message_to to;

        (void)state;
        c.n_sfi = 1;
        c.node_timeout_ns = NS_PER_S;
        dfm_driver_start(&t, &c);
        dfm_pass_ns(&t, c.keep_alive_ns);
        sfi_grants(&t, 0, 1);
        assert_true(dfm_step(t.dfm, t.now_ns, &to, &t.message));
        assert_int_equal(t.message.header.type, MESSAGE_KEEP_ALIVE);
        assert_int_equal(dfm_open_events(t.dfm), 1); /* assigned, and not yet announced */
        dfm_pass_ns(&t, 1100 * NS_PER_MS);
        assert_dfm_says(&t, "");
        sfi_says_alive(&t, 0, RUN_RUNNING, 0);
        assert_dfm_says(&t, "sfi0: Assign void>sfi0#0");
        dfm_driver_fini(&t);
}

/* The process before had switched often, so that its numbers run ahead of the new one's. */
static void a_late_xoff_of_a_ros_that_died_holds_nothing_back(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        driver_join(&t, ROLE_ROS, 0, 2);
        t.message.alive.state = RUN_RUNNING;
        t.message.alive.flags = 0;
        t.message.alive.incarnation = 2;
        assert_true(driver_say(&t, ROLE_ROS, 0, MESSAGE_ALIVE, 0));
        t.message.xoff.incarnation = 1;
        assert_true(driver_say(&t, ROLE_ROS, 0, MESSAGE_XOFF, 3000));
        assert_false(dfm_view(t.dfm, ROLE_ROS, 0).holds_back);
        t.message.xoff.incarnation = 2;
        assert_true(driver_say(&t, ROLE_ROS, 0, MESSAGE_XOFF, 1));
        assert_true(dfm_view(t.dfm, ROLE_ROS, 0).holds_back);
        t.message.xoff.incarnation = 2;
        assert_true(driver_say(&t, ROLE_ROS, 0, MESSAGE_XON, 2));
        assert_false(dfm_view(t.dfm, ROLE_ROS, 0).holds_back);
        dfm_driver_fini(&t);
}

/* An Update entry without an end: the event is built and being written. */
static void sfi_writes(struct dfm_driver *t, uint16_t sfi, uint64_t event)
{
        struct finished_entry entry = {.event = event, .end = UPDATE_WRITING};

        sfi_says_update(t, sfi, t->sfis[sfi].finished++, 1, &entry);
}

static void what_is_being_written_takes_its_time(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        sfi0_takes(&t, 2);
        sfi_writes(&t, 0, 0);
        sfi_writes(&t, 0, 0); /* once more changes nothing */
        sfi_writes(&t, 1, 1); /* it is not that SFI's */
        dfm_pass_ns(&t, 5 * c.event_timeout_ns);
        dfm_says_with(&t, false);
        sfi_grants(&t, 1, 2);
        assert_dfm_says(&t, "all: Build e1>sfi1#0 | all: Assign e2>sfi1#1");
        sfi_acks(&t, 1, 2);
        assert_int_equal(dfm_counts(t.dfm)->reassigned, 1);
        assert_true(dfm_deadline_ns(t.dfm) > t.now_ns);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t.dfm)->complete, 1);
        dfm_driver_fini(&t);
}

static void what_a_dead_sfi_was_writing_goes_to_another(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        sfi0_takes(&t, 1);
        sfi_writes(&t, 0, 0);
        sfi_says_alive(&t, 0, RUN_ENDED, 0);
        dfm_says_with(&t, false);
        sfi_grants(&t, 1, 1);
        assert_dfm_says(&t, "all: Build e0>sfi1#0");
        dfm_driver_fini(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_sfi_that_disappears_gives_its_events_back),
                cmocka_unit_test(an_event_that_is_not_finished_goes_to_another),
                cmocka_unit_test(an_event_goes_to_another_sfi_than_before_where_one_has_a_credit),
                cmocka_unit_test(an_event_that_comes_back_to_its_sfi_is_not_ended_by_the_void_entry),
                cmocka_unit_test(an_event_that_came_back_twice_is_built),
                cmocka_unit_test(an_event_that_came_back_is_not_ended_by_who_does_not_know_of_it),
                cmocka_unit_test(an_event_given_up_by_its_first_sfi_is_still_the_second_ones),
                cmocka_unit_test(what_was_taken_back_is_not_held_any_more),
                cmocka_unit_test(what_was_taken_back_is_void_in_the_stream),
                cmocka_unit_test(another_incarnation_has_forgotten_all),
                cmocka_unit_test(an_sfi_that_was_only_silent_goes_on_where_it_was),
                cmocka_unit_test(an_sfi_that_was_silent_hears_of_what_it_was_never_told),
                cmocka_unit_test(what_is_being_written_takes_its_time),
                cmocka_unit_test(what_a_dead_sfi_was_writing_goes_to_another),
                cmocka_unit_test(a_late_xoff_of_a_ros_that_died_holds_nothing_back),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
