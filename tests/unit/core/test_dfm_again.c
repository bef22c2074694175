/* The DFM and events that their SFI does not finish in time, and SFIs that leave, return or restart. */
#include "dfm_driver.h"

DFM_TEST_EACH(events_of_a_lost_sfi_go_to_another, push, 2, c.node_timeout_ns = NS_PER_S, c.push = push)
{
        sfi0_takes(t, 2);
        dfm_pass_with_ros_ns(t, 0, 900 * NS_PER_MS);
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, push ? "sfi1: Assign e2>sfi1#0 | ross: Assign e2>sfi1" : "sfi1: Assign e2>sfi1#0");
        sfi_acks(t, 1, 1);
        assert_dfm_says_after(t, 200 * NS_PER_MS, "");
        assert_int_equal(dfm_live(t->dfm, ROLE_SFI), 1);
        /* They are assigned first, and delay new events. */
        sfi_grants(t, 1, 2);
        assert_dfm_says(t, push ? "sfi1: Build e0>sfi1#1 | all: Build e0>sfi1" : "sfi1: Build e0>sfi1#1");
        sfi_grants(t, 1, 4);
        assert_string_equal(strstr(dfm_says_with(t, false), "Build e1"),
                            push ? "Build e1>sfi1#2 | sfi1: Assign e3>sfi1#3 | all: Build e1>sfi1 | "
                                   "ross: Assign e3>sfi1"
                                 : "Build e1>sfi1#2 | sfi1: Assign e3>sfi1#3");
        assert_int_equal(dfm_counts(t->dfm)->reassigned, 2);
}

DFM_TEST(an_unfinished_event_goes_to_another_sfi)
{
        sfi0_takes(t, 1);
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, "sfi1: Assign e1>sfi1#0 | ross: Assign e1>sfi1");
        sfi_acks(t, 1, 1);
        sfi_ends(t, 1, 1, EVENT_COMPLETE, 0);
        dfm_pass_ns(t, c.event_timeout_ns - 1);
        dfm_says_with(t, false);
        assert_int_equal(dfm_open_events(t->dfm), 1);
        assert_dfm_says_after(t, 1, "");
        sfi_grants(t, 1, 2);
        assert_dfm_says(t, "sfi1: Build e0>sfi1#1 | all: Build e0>sfi1");
        /* An end from the first SFI counts, and the second one's is surplus. */
        sfi_acks(t, 1, 2);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(t, 1, 0, EVENT_PARTIAL, 1);
        assert_counts(dfm_counts(t->dfm), complete, 2, partial, 0, ended_again, 1);
}

DFM_TEST(reassignment_prefers_another_sfi, c.push = false, c.events = 2, c.reassign_max = 2)
{
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0");
        dfm_pass_with_ros_ns(t, 0, NS_PER_S);
        sfi_acks(t, 0, 1);
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, "sfi1: Assign e1>sfi1#0");
        sfi_acks(t, 1, 1);
        /* It would be SFI 0's turn: it has most credits. */
        sfi_grants(t, 0, 8);
        sfi_grants(t, 1, 2);
        dfm_pass_with_ros_ns(t, 0, c.event_timeout_ns - NS_PER_S);
        assert_dfm_says(t, "sfi1: Build e0>sfi1#1");
        sfi_acks(t, 1, 2);
        dfm_pass_with_ros_ns(t, 0, NS_PER_S);
        assert_dfm_says(t, "sfi0: Build e1>sfi0#1");
        sfi_acks(t, 0, 2);
        /* If no other SFI has a credit, the event returns to the same one. */
        dfm_pass_ns(t, c.event_timeout_ns);
        sfi_grants(t, 0, 8);
        assert_dfm_says(t, "sfi0: Build e0>sfi0#2 e1>sfi0#3");
}

DFM_TEST(a_void_entry_does_not_end_a_returned_event, c.n_sfi = 1, c.push = false, c.events = 1)
{
        struct message_to to;
        uint64_t void_event;

        sfi_grants(t, 0, 2);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0");
        dfm_pass_ns(t, c.event_timeout_ns);            /* the SFI has received nothing so far */
        dfm_step(t->dfm, t->now_ns, &to, &t->message); /* KeepAlive */
        assert_true(dfm_step(t->dfm, t->now_ns, &to, &t->message));
        trace_clear(&t->trace);
        trace_message(&t->trace, to, &t->message);
        assert_string_equal(t->trace.text, "sfi0: Assign void>sfi0#0");
        void_event = t->message.assign.entries[0].event;
        assert_dfm_says(t, "sfi0: Build e0>sfi0#1");
        sfi_acks(t, 0, 2);
        sfi_ends(t, 0, void_event, EVENT_LOST, 2);
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t->dfm)->complete, 1);
}

/* The event went back and forth. An SFI that has received the new assignment does not end the event with a
 * report on the previous one. */
DFM_TEST(an_event_that_returned_twice_is_built, c.push = false, c.events = 1, c.reassign_max = 2)
{
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0");
        sfi_acks(t, 0, 1);
        sfi_grants(t, 1, 1);
        assert_dfm_says_after(t, c.event_timeout_ns, "sfi1: Build e0>sfi1#0");
        sfi_acks(t, 1, 1);
        sfi_grants(t, 0, 2);
        assert_dfm_says_after(t, c.event_timeout_ns, "sfi0: Build e0>sfi0#1");
        sfi_acks(t, 0, 2);
        sfi_ends(t, 0, ASSIGN_VOID_EVENT, EVENT_LOST, 2);
        sfi_ends(t, 1, 0, EVENT_LOST, 2);
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t->dfm)->complete, 1);
}

DFM_TEST(a_report_on_a_previous_assignment_ends_nothing, c.n_sfi = 1, c.push = false, c.events = 1)
{
        sfi0_takes(t, 1);
        sfi_grants(t, 0, 2);
        assert_dfm_says_after(t, c.event_timeout_ns, "sfi0: Build e0>sfi0#1");
        sfi_ends(t, 0, 0, EVENT_LOST, 2); /* of the first assignment */
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        sfi_acks(t, 0, 2);
        sfi_ends(t, 0, 0, EVENT_LOST, 2);
        assert_int_equal(dfm_counts(t->dfm)->lost, 1);
}

/* The SFI had not yet received the new assignment when it sent the report, which a later Update overtakes. */
DFM_TEST(an_overtaken_report_on_a_previous_assignment_ends_nothing, c.n_sfi = 1, c.push = false, c.events = 1)
{
        const struct finished_entry lost = {.event = 0, .end = EVENT_LOST, .missing = 2};

        sfi0_takes(t, 1);
        sfi_grants(t, 0, 2);
        assert_dfm_says_after(t, c.event_timeout_ns, "sfi0: Build e0>sfi0#1");
        t->sfis[0].ack = 2;
        sfi_says_update(t, 0, 1, 0, NULL);
        t->sfis[0].ack = 1;
        sfi_says_update(t, 0, 0, 1, &lost);
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        t->sfis[0].ack = 2;
        sfi_says_update(t, 0, 0, 1, &lost); /* repeated; it has counted already */
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        sfi_says_update(t, 0, 1, 1, &lost);
        assert_int_equal(dfm_counts(t->dfm)->lost, 1);
}

DFM_TEST(a_loss_reported_by_the_first_sfi_leaves_the_event_to_the_second)
{
        sfi0_takes(t, 1);
        assert_dfm_says_after(t, c.event_timeout_ns, "");
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, "sfi1: Build e0>sfi1#0 | all: Build e0>sfi1");
        sfi_ends(t, 0, 0, EVENT_LOST, 2);
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        sfi_ends(t, 1, 0, EVENT_COMPLETE, 0);
        assert_counts(dfm_counts(t->dfm), complete, 1, ended_again, 0);
}

/* The SFI was held up for longer than the DFM waits, and then finishes its events. */
DFM_TEST(lost_events_that_an_sfi_built_after_all_are_built, c.reassign_max = 0)
{
        uint64_t version;

        sfi0_takes(t, 3);
        dfm_pass_ns(t, c.event_timeout_ns);
        dfm_says_with(t, false);
        assert_counts(dfm_counts(t->dfm), lost, 3, complete, 0);
        assert_int_equal(dfm_lost(t->dfm, 0, DFM_LOSS_OVERDUE), 3);
        version = dfm_processes_version(t->dfm);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 1, EVENT_PARTIAL, 1);
        sfi_ends(t, 0, 2, EVENT_LOST, 2);
        /* The record must not keep it as lost once the SFI forgets it. */
        assert_true(dfm_processes_version(t->dfm) > version);
        assert_counts(dfm_counts(t->dfm), lost, 1, complete, 1, partial, 1, ended_again, 0);
        assert_counts(dfm_counts(t->dfm), fragments_lost, 3, payload_bytes, 100);
        assert_int_equal(dfm_lost(t->dfm, 0, DFM_LOSS_OVERDUE), 1);
        assert_int_equal(dfm_lost(t->dfm, UINT16_MAX, DFM_LOSS_OVERDUE), 1);
        /* It counts once. */
        sfi_ends(t, 1, 0, EVENT_COMPLETE, 0);
        assert_counts(dfm_counts(t->dfm), lost, 1, complete, 1, ended_again, 1);
}

DFM_TEST(an_event_taken_back_is_no_longer_held, c.push = false)
{
        sfi0_takes(t, 2);
        assert_dfm_says_after(t, c.event_timeout_ns, "");
        sfi_grants(t, 1, 3);
        assert_dfm_says(t, "sfi1: Build e0>sfi1#0 e1>sfi1#1 | sfi1: Assign e2>sfi1#2");
        sfi_acks(t, 1, 3);
        /* SFI 0 holds none, SFI 1 three. */
        sfi_grants(t, 0, 4);
        sfi_grants(t, 1, 4);
        assert_dfm_says(t, "sfi0: Assign e3>sfi0#2 e4>sfi0#3 | sfi1: Assign e5>sfi1#3");
}

DFM_TEST_EACH(an_event_taken_back_is_void_in_the_stream, push, 2, c.keep_alive_ns = 1000 * NS_PER_S,
              c.push = push)
{
        sfi_grants(t, 0, 2);
        dfm_says_with(t, false);
        sfi_acks(t, 0, 0);
        assert_dfm_says_after(t, c.event_timeout_ns, "sfi0: Assign void>sfi0#0 void>sfi0#1");
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, push ? "sfi1: Build e0>sfi1#0 | all: Build e0>sfi1" : "sfi1: Build e0>sfi1#0");
}

DFM_TEST(another_incarnation_starts_afresh)
{
        sfi0_takes(t, 2);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        t->sfis[0] = (struct played_sfi){.incarnation = 2};
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says(t, "");
        /* Its stream restarts, with the events that the previous process did not finish. */
        sfi_grants(t, 0, 2);
        assert_dfm_says(
                t,
                "sfi0: Build e1>sfi0#0 | sfi0: Assign e2>sfi0#1 | all: Build e1>sfi0 | ross: Assign e2>sfi0");
        sfi_acks(t, 0, 2);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_counts(t->dfm)->complete, 2);
}

DFM_TEST_EACH(a_silent_sfi_continues_its_streams, push, 2, c.n_sfi = 1, c.node_timeout_ns = NS_PER_S,
              c.push = push)
{
        sfi0_takes(t, 2);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, push ? "sfi0: Assign e2>sfi0#2 | ross: Assign e2>sfi0" : "sfi0: Assign e2>sfi0#2");
        dfm_pass_ns(t, 1100 * NS_PER_MS);
        dfm_says_with(t, false);
        assert_int_equal(dfm_live(t->dfm, ROLE_SFI), 0);
        /* It lost nothing: both streams continue with their numbers. */
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, "sfi0: Assign void>sfi0#2");
        sfi_acks(t, 0, 3);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_counts(t->dfm)->complete, 2);
        sfi_grants(t, 0, 4);
        assert_dfm_says(t, push ? "sfi0: Build e2>sfi0#3 | all: Build e2>sfi0" : "sfi0: Build e2>sfi0#3");
}

/* Otherwise an event that no message mentions would use up its single credit. */
DFM_TEST(a_silent_sfi_learns_of_unannounced_assignments, c.n_sfi = 1, c.node_timeout_ns = NS_PER_S)
{
        dfm_pass_ns(t, c.keep_alive_ns);
        sfi_grants(t, 0, 1);
        assert_true(dfm_makes(t));
        assert_int_equal(t->message.header.type, MESSAGE_KEEP_ALIVE);
        assert_int_equal(dfm_open_events(t->dfm), 1); /* assigned, but not announced */
        assert_dfm_says_after(t, 1100 * NS_PER_MS, "");
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        assert_dfm_says(t, "sfi0: Assign void>sfi0#0");
}

/* The previous process had switched often, so its numbers are ahead of the new one's. */
DFM_TEST(a_late_xoff_of_a_dead_ros_has_no_effect)
{
        driver_join(t, ROLE_ROS, 0, 2);
        t->message.alive.state = RUN_RUNNING;
        t->message.alive.flags = 0;
        t->message.alive.incarnation = 2;
        assert_true(driver_say(t, ROLE_ROS, 0, MESSAGE_ALIVE, 0));
        t->message.xoff.incarnation = 1;
        assert_true(driver_say(t, ROLE_ROS, 0, MESSAGE_XOFF, 3000));
        assert_false(dfm_view(t->dfm, ROLE_ROS, 0).holds_back);
        t->message.xoff.incarnation = 2;
        assert_true(driver_say(t, ROLE_ROS, 0, MESSAGE_XOFF, 1));
        assert_true(dfm_view(t->dfm, ROLE_ROS, 0).holds_back);
        t->message.xoff.incarnation = 2;
        assert_true(driver_say(t, ROLE_ROS, 0, MESSAGE_XON, 2));
        assert_false(dfm_view(t->dfm, ROLE_ROS, 0).holds_back);
}

/* An Update entry without an end: the event is built and being written. */
static void sfi_writes(struct dfm_driver *t, uint16_t sfi, uint64_t event)
{
        struct finished_entry entry = {.event = event, .end = UPDATE_WRITING};

        sfi_says_update(t, sfi, t->sfis[sfi].finished++, 1, &entry);
}

DFM_TEST(an_event_being_written_does_not_time_out)
{
        sfi0_takes(t, 2);
        sfi_writes(t, 0, 0);
        sfi_writes(t, 0, 0); /* a repetition changes nothing */
        sfi_writes(t, 1, 1); /* it does not belong to that SFI */
        dfm_pass_ns(t, 5 * c.event_timeout_ns);
        dfm_says_with(t, false);
        sfi_grants(t, 1, 2);
        assert_dfm_says(
                t,
                "sfi1: Build e1>sfi1#0 | sfi1: Assign e2>sfi1#1 | all: Build e1>sfi1 | ross: Assign e2>sfi1");
        sfi_acks(t, 1, 2);
        assert_int_equal(dfm_counts(t->dfm)->reassigned, 1);
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t->dfm)->complete, 1);
}

DFM_TEST(an_event_that_a_dead_sfi_was_writing_is_reassigned)
{
        sfi0_takes(t, 1);
        sfi_writes(t, 0, 0);
        sfi_says_alive(t, 0, RUN_ENDED, 0);
        dfm_says_with(t, false);
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, "sfi1: Build e0>sfi1#0 | all: Build e0>sfi1");
}
