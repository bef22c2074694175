/* A DFM that resumes the run of a previous one: its inquiries, its use of the answers, and SFIs that join
 * late. */
#include "dfm_driver.h"

#define PREVIOUS UINT64_C(0xF0)

static struct dfm_config resume_standard(void)
{
        struct dfm_config c = dfm_standard();

        c.cookie = TRACE_COOKIE + 1; /* TRACE_COOKIE is the resumed run's */
        c.run = TRACE_RUN + 1;
        c.run_is_free = true;
        c.push = false;
        c.node_timeout_ns = 10 * NS_PER_S;
        c.keep_alive_ns = 1000 * NS_PER_S;
        return c;
}

#define RESUME_TEST(name, begin, ...) DFM_TEST_AS(name, resume_standard(), begin(t, &c), ##__VA_ARGS__)

static void comes(struct dfm_driver *t, enum node_role role, uint16_t index, uint64_t oldest, uint64_t newest)
{
        node_follows(t, PREVIOUS, role, index, oldest, newest);
}

static void ross_come(struct dfm_driver *t, uint64_t newest)
{
        comes(t, ROLE_ROS, 0, 0, newest);
        comes(t, ROLE_ROS, 1, 0, newest);
}

RESUME_TEST(unknown_events_are_reassigned, dfm_driver_init)
{
        ross_come(t, 6);
        comes(t, ROLE_SFI, 0, 0, 6);
        assert_dfm_says(t, "sfi0: Inquiry from 0");
        comes(t, ROLE_SFI, 1, 0, 5);
        assert_dfm_says(t, "sfi1: Inquiry from 0");
        assert_int_equal(dfm_run(t->dfm), TRACE_RUN);
        assert_int_equal(dfm_cookie(t->dfm), TRACE_COOKIE);
        sfi_reports_bits(t, 0, 6, 2, 0x3, 0x4); /* built 0 and 1, has 2 */
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
        sfi_reports_bits(t, 1, 5, 1, 0x8, 0); /* built 3 */
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_int_equal(dfm_open_events(t->dfm), 3);
        assert_counts(dfm_counts(t->dfm), triggers, 6, complete, 3);
        sfi_grants(t, 1, 3);
        assert_dfm_says(t, "sfi1: Build e4>sfi1#0 e5>sfi1#1 | sfi1: Assign e6>sfi1#2");
}

static uint32_t transaction_of_welcome(struct dfm_driver *t)
{
        while (dfm_makes(t)) {
                if (t->message.header.type == MESSAGE_WELCOME)
                        return t->message.header.transaction;
        }
        return UINT32_MAX;
}

/* Otherwise a node that receives the first Welcome late could not tell which one is newer. */
RESUME_TEST(a_welcome_shows_whether_the_run_is_resumed, dfm_driver_init)
{
        driver_join(t, ROLE_SFI, 0, 1);
        assert_int_equal(transaction_of_welcome(t), 0);
        driver_join_in_run(t, PREVIOUS, ROLE_ROS, 0, 0, 6);
        assert_int_equal(transaction_of_welcome(t), WELCOME_LATE | WELCOME_RESUMED);
        driver_join(t, ROLE_SFI, 0, 1);
        assert_int_equal(transaction_of_welcome(t), WELCOME_LATE | WELCOME_RESUMED);
}

DFM_TEST(a_welcome_shows_whether_the_run_has_begun)
{
        driver_join(t, ROLE_SFI, 1, 1);
        assert_int_equal(transaction_of_welcome(t), WELCOME_LATE);
}

/* The SFI still has them, and their credits, until it learns that they ended. */
RESUME_TEST(events_that_had_ended_keep_their_credits, dfm_driver_init)
{
        comes(t, ROLE_ROS, 0, 2, 3);
        comes(t, ROLE_ROS, 1, 2, 3);
        comes(t, ROLE_SFI, 0, 0, 3);
        comes(t, ROLE_SFI, 1, 2, 3);
        assert_dfm_says(t, "sfi0: Inquiry from 0 | sfi1: Inquiry from 0");
        sfi_reports_bits(t, 0, 3, 0, 0, 0x3); /* has 0 and 1 */
        sfi_reports_bits(t, 1, 3, 1, 0x4, 0);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_int_equal(dfm_open_events(t->dfm), 0);
        sfi_grants(t, 0, 2);
        assert_dfm_says(t, "");
        sfi_grants(t, 0, 3);
        assert_dfm_says(t, "sfi0: Assign e3>sfi0#0");
}

RESUME_TEST(an_unanswered_inquiry_is_repeated, dfm_driver_init)
{
        /* It asks about events that the SFI has not forgotten. */
        comes(t, ROLE_ROS, 0, EVB_EVENTS_KEPT + 70, EVB_EVENTS_KEPT + 100);
        comes(t, ROLE_ROS, 1, 0, 100);
        comes(t, ROLE_SFI, 0, 0, 100);
        comes(t, ROLE_SFI, 1, 0, 0);
        assert_dfm_says(t, "sfi0: Inquiry from 64 | sfi1: Inquiry from 64");
        sfi_reports(t, 1, 64, 0, (struct node_totals){}, 0, NULL);
        assert_dfm_says_after(t, 20 * NS_PER_MS, "sfi0: Inquiry from 64");
        /* An answer to an earlier Inquiry counts once. The next part is requested at once. */
        sfi_reports(t, 0, 64, 200, (struct node_totals){.complete = 9}, 1, &(struct inventory_entry){});
        sfi_reports(t, 0, 64, 200, (struct node_totals){.complete = 9}, 1, &(struct inventory_entry){});
        assert_dfm_says(t, "sfi0: Inquiry from 128");
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
}

/* Between its Join and the Welcome, an SFI may learn of more events and end them. */
RESUME_TEST(events_known_only_after_the_join_are_not_new, dfm_driver_init)
{
        ross_come(t, 4);
        comes(t, ROLE_SFI, 0, 0, 4);
        comes(t, ROLE_SFI, 1, 0, 4);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 1, 4, 0, 0, 0);
        sfi_reports_bits(t, 0, 6, 6, 0x3f, 0);
        assert_dfm_says(t, "");
        assert_counts(dfm_counts(t->dfm), triggers, 6, complete, 6);
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, "sfi1: Assign e6>sfi1#0");
}

/* The resumption ends, whatever an SFI reports as its last event. */
RESUME_TEST(an_impossible_newest_event_is_bounded, dfm_driver_init, c.n_sfi = 1)
{
        struct inventory_entry none[MESSAGE_ENTRIES_MAX] = {};
        uint64_t from = 0;

        ross_come(t, 4);
        comes(t, ROLE_SFI, 0, 0, 4);
        dfm_says_with(t, false);
        for (int i = 0; i < 1000 && dfm_state(t->dfm) == RUN_STARTING;
             i++, from += 64 * MESSAGE_ENTRIES_MAX) {
                sfi_reports(t, 0, from, UINT64_MAX, (struct node_totals){}, MESSAGE_ENTRIES_MAX, none);
                while (dfm_step(t->dfm, t->now_ns, &(struct message_to){}, &t->message))
                        ;
        }
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_int_equal(from, EVB_EVENT_WINDOW);
}

/* One of two SFIs is present when the run resumes. The other one's events must neither be built again nor
 * lost. */
static void begin_without_sfi1(struct dfm_driver *t, const struct dfm_config *c)
{
        dfm_driver_init(t, c);
        ross_come(t, 8);
        comes(t, ROLE_SFI, 0, 2, 8);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 8, 3, 0x4, 0x8); /* built 0, 1 and 2; has 3 */
        for (uint64_t ns = 0; ns <= c->node_timeout_ns; ns += NS_PER_S) {
                for (uint16_t i = 0; i < 2; i++)
                        ros_says_alive(t, i, RUN_RUNNING, 0);
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                dfm_says_with(t, false);
                if (dfm_state(t->dfm) == RUN_RUNNING)
                        break;
                dfm_pass_ns(t, NS_PER_S);
        }
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_int_equal(dfm_open_events(t->dfm), 5); /* 3 is present, 4 to 7 are unknown */
}

/* SFI 1 does not come. */
static void run_begins(struct dfm_driver *t)
{
        for (int i = 0; i < 12 && dfm_state(t->dfm) != RUN_RUNNING; i++) {
                for (uint16_t k = 0; k < 2; k++)
                        ros_says_alive(t, k, RUN_RUNNING, 0);
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                dfm_says_with(t, false);
                dfm_pass_ns(t, NS_PER_S);
        }
}

/* The same, and the previous DFM had cleared the events below 4, of which SFI 0 had ended one. It has those
 * of `open`. */
static void begin_with(struct dfm_driver *t, const struct dfm_config *c, uint64_t open)
{
        dfm_driver_init(t, c);
        ross_come(t, 8);
        comes(t, ROLE_SFI, 0, 4, 8);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 8, 1, 1, open);
        run_begins(t);
}

static void begin_with_ended(struct dfm_driver *t, const struct dfm_config *c)
{
        begin_with(t, c, 0xf0);
}

RESUME_TEST(events_of_a_late_sfi_count, begin_without_sfi1, c.event_timeout_ns = 100 * NS_PER_S)
{
        comes(t, ROLE_SFI, 1, 2, 8);
        assert_dfm_says(t, "sfi1: Inquiry from 0");
        sfi_grants(t, 1, 4);
        assert_dfm_says(t, "");                   /* its inventory comes first */
        sfi_reports_bits(t, 1, 8, 2, 0x30, 0x40); /* built 4 and 5, has 6 */
        assert_dfm_says(t, "");
        assert_counts(dfm_counts(t->dfm), complete, 5, lost, 0, ended_again, 0);
        assert_int_equal(dfm_open_events(t->dfm), 3);
        sfi_grants(t, 1, 3);
        assert_dfm_says(t, "sfi1: Build e7>sfi1#0 | sfi1: Assign e8>sfi1#1");
        sfi_acks(t, 1, 2);
        sfi_ends(t, 1, 6, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t->dfm)->complete, 6);
}

/* No other process knew the events 8 to 11 of the previous DFM. */
RESUME_TEST(events_that_only_a_late_sfi_knows_are_not_new, begin_without_sfi1,
            c.event_timeout_ns = 100 * NS_PER_S)
{
        comes(t, ROLE_SFI, 1, 2, 12);
        assert_dfm_says(t, "sfi1: Inquiry from 0");
        sfi_reports_bits(t, 1, 12, 3, 0x910, 0x200); /* built 4, 8 and 11, has 9 */
        assert_dfm_says(t, "");
        assert_counts(dfm_counts(t->dfm), triggers, 12, complete, 6, lost, 0, ended_again, 0);
        assert_int_equal(dfm_open_events(t->dfm), 6);
        sfi_grants(t, 0, 6);
        assert_dfm_says(t, "sfi0: Build e5>sfi0#0 e6>sfi0#1 e7>sfi0#2 e10>sfi0#3 | sfi0: Assign e12>sfi0#4");
        sfi_ends(t, 1, 9, EVENT_COMPLETE, 0);
        assert_counts(dfm_counts(t->dfm), triggers, 13, complete, 7);
}

/* An SFI comes just before the end of the run. What it built was built again. */
RESUME_TEST(the_end_waits_for_the_report_of_a_late_sfi, begin_without_sfi1,
            c.event_timeout_ns = 100 * NS_PER_S, c.leave_timeout_ns = 0)
{
        dfm_stop(t->dfm, t->now_ns);
        sfi_grants(t, 0, 8);
        dfm_says_with(t, false);
        for (uint64_t event = 3; event < 8; event++)
                sfi_ends(t, 0, event, EVENT_COMPLETE, 0);
        comes(t, ROLE_SFI, 1, 2, 8);
        dfm_says_with(t, false);
        assert_int_equal(dfm_open_events(t->dfm), 0);
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        assert_true(dfm_view(t->dfm, ROLE_SFI, 1).vanished);
        sfi_reports(t, 1, 0, 8, (struct node_totals){.complete = 2}, 1,
                    &(struct inventory_entry){.ended = 0x30});
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_false(dfm_view(t->dfm, ROLE_SFI, 1).vanished);
        assert_counts(dfm_counts(t->dfm), complete, 8, ended_again, 2);
}

/* Its first Alive comes too late. */
RESUME_TEST(a_late_sfi_that_does_not_report_is_named, begin_without_sfi1, c.event_timeout_ns = 100 * NS_PER_S)
{
        dfm_stop(t->dfm, t->now_ns);
        sfi_grants(t, 0, 8);
        dfm_says_with(t, false);
        for (uint64_t event = 3; event < 8; event++)
                sfi_ends(t, 0, event, EVENT_COMPLETE, 0);
        driver_join_in_run(t, PREVIOUS, ROLE_SFI, 1, 2, 8);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        sfi_says_alive(t, 1, RUN_ENDED, 0);
        dfm_says_with(t, false);
        assert_true(dfm_view(t->dfm, ROLE_SFI, 1).vanished);
}

/* Events that it had ended, and the previous DFM had cleared, counted as lost until it joined. */
RESUME_TEST(lost_events_are_recovered_from_the_late_sfi, begin_with_ended,
            c.event_timeout_ns = 100 * NS_PER_S)
{
        assert_int_equal(dfm_counts(t->dfm)->lost, 3);
        comes(t, ROLE_SFI, 1, 4, 8);
        assert_dfm_says(t, "sfi1: Inquiry from 0");
        sfi_reports(t, 1, 0, 8,
                    (struct node_totals){.complete = 2, .partial = 2, .missing = 3, .payload_bytes = 200}, 1,
                    &(struct inventory_entry){});
        assert_counts(dfm_counts(t->dfm), lost, 0, complete, 2, partial, 2, fragments_lost, 3);
        assert_int_equal(dfm_counts(t->dfm)->ended_again, 1); /* more than were lost: one was built twice */
}

/* A build of an event that another SFI built is not one of the lost events. */
RESUME_TEST(copies_of_a_late_sfi_recover_no_lost_event, begin_with_ended, c.event_timeout_ns = 100 * NS_PER_S)
{
        comes(t, ROLE_SFI, 1, 4, 8);
        assert_dfm_says(t, "sfi1: Inquiry from 0");
        sfi_reports(t, 1, 0, 8, (struct node_totals){.complete = 2, .payload_bytes = 200}, 1,
                    &(struct inventory_entry){.ended = 0x3});
        assert_counts(dfm_counts(t->dfm), lost, 2, complete, 2, ended_again, 1);
}

/* Events 4 to 7 were assigned again, and lost again. */
RESUME_TEST(events_lost_since_are_recovered_from_the_late_sfi, begin_without_sfi1, c.reassign_max = 0,
            c.event_timeout_ns = NS_PER_S)
{
        dfm_pass_ns(t, 2 * NS_PER_S);
        dfm_says_with(t, false);
        assert_counts(dfm_counts(t->dfm), complete, 3, lost, 5);
        comes(t, ROLE_SFI, 1, 2, 8);
        dfm_says_with(t, false);
        sfi_reports(t, 1, 0, 8, (struct node_totals){.complete = 1, .partial = 1, .missing = 1}, 1,
                    &(struct inventory_entry){.ended = 0x30, .open = 0x20}); /* 4, and a part of 5 */
        assert_counts(dfm_counts(t->dfm), complete, 4, partial, 1, lost, 3, ended_again, 0);
        assert_int_equal(dfm_counts(t->dfm)->fragments_lost, 7);
}

/* Of the record of the previous DFM: it took no trigger before it stored it. */
static const struct dfm_processes *record(void)
{
        static struct dfm_processes p;

        p = (struct dfm_processes){
                .cookie = TRACE_COOKIE, .dfms = {PREVIOUS}, .has_all = true, .n_ros = 2, .n_sfi = 2};
        p.sfis[0].incarnation = p.sfis[1].incarnation = 1;
        return &p;
}

/* The previous DFM lost events 1, 2 and 5 because all SFIs were held up, and ended. Event 3 was open. */
static void begin_with_lost(struct dfm_driver *t, struct dfm_config *c)
{
        static struct dfm_processes p;

        p = *record();
        p.oldest = 3;
        p.next = 6;
        p.counted = (struct dfm_ends){.complete = 2, .lost = 3};
        p.sfis[0].ends.complete = 2;
        p.n_lost = p.n_words = 1;
        p.lost[0] = 0x26;
        p.words[0] = 0x37;
        c->previous_processes = &p;
        dfm_driver_init(t, c);
        ross_come(t, 6);
        comes(t, ROLE_SFI, 0, 3, 6);
        dfm_says_with(t, false);
        sfi_reports(t, 0, 0, 6, (struct node_totals){.complete = 3}, 1,
                    &(struct inventory_entry){.ended = 0x13, .open = 0x4}); /* built 1 after all; has 2 */
}

DFM_TEST_AS(events_that_an_earlier_dfm_lost_are_recovered, resume_standard(), (void)t,
            c.event_timeout_ns = 100 * NS_PER_S)
{
        static struct dfm_processes next;

        begin_with_lost(t, &c);
        run_begins(t);
        assert_counts(dfm_counts(t->dfm), triggers, 6, complete, 3, lost, 2, ended_again, 0);
        dfm_processes_fill(t->dfm, &next);
        assert_int_equal(next.n_lost, 1);
        assert_int_equal(next.lost[0], 0x24);
        sfi_grants(t, 0, 3);
        dfm_says_with(t, false);
        sfi_ends(t, 0, 2, EVENT_PARTIAL, 1);
        assert_counts(dfm_counts(t->dfm), complete, 3, partial, 1, lost, 1, ended_again, 0);
        /* SFI 1 was held up for longer. */
        comes(t, ROLE_SFI, 1, 3, 6);
        dfm_says_with(t, false);
        sfi_reports(t, 1, 0, 6, (struct node_totals){.complete = 2}, 1,
                    &(struct inventory_entry){.ended = 0x22}); /* 5, and 1, too */
        assert_counts(dfm_counts(t->dfm), complete, 4, partial, 1, lost, 0, ended_again, 1);
        assert_int_equal(dfm_counts(t->dfm)->fragments_lost, 1);
        dfm_processes_fill(t->dfm, &next);
        assert_int_equal(next.n_lost, 0);
}

/* The triggers 4 to 6 became events that only SFI 1 knows. Nobody received 7 and 8. */
DFM_TEST_EACH_AS(triggers_of_events_that_only_a_late_sfi_knows_are_not_missed, came, 2, resume_standard(),
                 (void)t, c.event_timeout_ns = 100 * NS_PER_S, c.trigger_source = DFM_TRIGGER_OFFERED,
                 c.trigger_queue = 8)
{
        const struct trigger_entry next = {.number = 9};
        static struct dfm_processes p;

        p = *record();
        p.oldest = p.next = p.counted.complete = p.sfis[0].ends.complete = 4;
        p.came = (struct dfm_came){.offered.triggers = 4, .next = 4, .numbered = true};
        c.previous_processes = &p;
        dfm_driver_init(t, &c);
        ross_come(t, 4);
        comes(t, ROLE_SFI, 0, 4, 4);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 4, 4, 0xf, 0);
        run_begins(t);
        if (came) {
                dfm_offer(t->dfm, t->now_ns, &next);
                assert_int_equal(dfm_counts(t->dfm)->offered.missed, 5);
        }
        comes(t, ROLE_SFI, 1, 4, 7);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 1, 7, 3, 0x70, 0);
        if (!came)
                dfm_offer(t->dfm, t->now_ns, &next);
        dfm_says_with(t, false);
        assert_counts(dfm_counts(t->dfm), triggers, 7, complete, 7, lost, 0, ended_again, 0);
        assert_int_equal(dfm_counts(t->dfm)->offered.missed, 2);
        dfm_check_offered(t, dfm_counts(t->dfm));
}

/* SFI 1 was away at an earlier restart, and its builds then counted as lost. The record does not name them,
 * so its build of an event that another SFI built, too, may be one of them. */
DFM_TEST_AS(a_build_of_no_certain_event_is_a_guess, resume_standard(), (void)t,
            c.event_timeout_ns = 100 * NS_PER_S)
{
        static struct dfm_processes p;

        p = *record();
        p.oldest = p.next = 4;
        p.counted = (struct dfm_ends){.complete = 3, .unreported = 1};
        p.sfis[0].ends.complete = 3;
        c.previous_processes = &p;
        dfm_driver_init(t, &c);
        ross_come(t, 4);
        comes(t, ROLE_SFI, 0, 4, 4);
        dfm_says_with(t, false);
        sfi_reports(t, 0, 0, 4, (struct node_totals){.complete = 3}, 1,
                    &(struct inventory_entry){.ended = 0x7});
        run_begins(t);
        assert_counts(dfm_counts(t->dfm), complete, 3, lost, 1);
        assert_false(dfm_run_view(t->dfm).has_guessed);
        comes(t, ROLE_SFI, 1, 4, 4);
        assert_true(trace_begins(dfm_says_with(t, false), "sfi1: Inquiry from 0"));
        sfi_reports(t, 1, 0, 4, (struct node_totals){.complete = 1}, 1,
                    &(struct inventory_entry){.ended = 0x1});
        assert_counts(dfm_counts(t->dfm), complete, 4, lost, 0, ended_again, 0);
        assert_true(dfm_run_view(t->dfm).has_guessed);
}

/* With level 2, open events are decided again, except those of an SFI that joins late. */
RESUME_TEST(open_events_of_a_late_sfi_are_not_decided_again, begin_without_sfi1,
            c.event_timeout_ns = 100 * NS_PER_S, c.level2 = level2_with_window(4))
{
        assert_int_equal(dfm_run_view(t->dfm).undecided, 4); /* again, as decisions are not known */
        comes(t, ROLE_SFI, 1, 2, 8);
        assert_dfm_says(t, "sfi1: Inquiry from 0");
        sfi_reports_bits(t, 1, 8, 1, 0x10, 0x40); /* built 4, has 6 */
        assert_dfm_says(t, "");
        assert_int_equal(dfm_run_view(t->dfm).undecided, 4); /* 5, 7, and the next two triggers */
        assert_int_equal(dfm_counts(t->dfm)->triggers, 10);
        sfi_grants(t, 1, 3);
        assert_true(dfm_decide(t->dfm, t->now_ns,
                               &(struct decision_entry){.event = 7, .verdict = DECISION_ACCEPT}));
        assert_dfm_says(t, "sfi1: Build e7>sfi1#0");
        assert_false(dfm_decide(t->dfm, t->now_ns,
                                &(struct decision_entry){.event = 6, .verdict = DECISION_REJECT}));
}

/* The absent SFI may have built any of them. Without a record, they may also be lost. */
static void unreported_events_are_lost(bool has_record)
{
        struct dfm_config c = resume_standard();
        struct dfm_driver t;

        c.event_timeout_ns = 100 * NS_PER_S;
        c.level2 = level2_with_window(8);
        c.previous_processes = has_record ? record() : NULL;
        begin_with_ended(&t, &c);
        assert_counts(dfm_counts(t.dfm), rejected, 0, lost, 3, fragments_lost, 6);
        comes(&t, ROLE_SFI, 1, 4, 8);
        assert_dfm_says(&t, "sfi1: Inquiry from 0");
        sfi_reports(&t, 1, 0, 8, (struct node_totals){.complete = 1, .partial = 1, .missing = 1}, 1,
                    &(struct inventory_entry){.ended = 0x6, .open = 0x4});
        assert_counts(dfm_counts(t.dfm), rejected, has_record, lost, !has_record, complete, 2, partial, 1,
                      fragments_lost, has_record ? 1 : 3, fragments_received, 5);
        assert_int_equal(dfm_run_view(t.dfm).has_guessed, !has_record);
        dfm_driver_fini(&t);
}

TEST(unreported_events_are_lost_until_all_sfis_report)
{
        unreported_events_are_lost(true);
        unreported_events_are_lost(false);
}

/* The numbers of the triggers that waited for a decision are unknown. If the DFM restarts again, this is
 * recorded for all of them. */
DFM_TEST_AS(undecided_triggers_from_outside_are_forgotten, resume_standard(), begin_with(t, &c, 0x30),
            c.level2 = level2_with_window(8), c.trigger_source = DFM_TRIGGER_OFFERED, c.trigger_queue = 16,
            c.previous_processes = record())
{
        static struct dfm_processes stored;

        assert_int_equal(dfm_open_events(t->dfm), 2);
        assert_int_equal(dfm_counts(t->dfm)->lost, 3 + 2);
        assert_int_equal(dfm_run_view(t->dfm).forgotten, 2);
        dfm_processes_fill(t->dfm, &stored);
        dfm_driver_fini(t);
        c.previous_processes = &stored;
        begin_with(t, &c, 0x10);
        assert_int_equal(dfm_counts(t->dfm)->lost, 3 + 2 + 1);
        assert_int_equal(dfm_run_view(t->dfm).forgotten, 2 + 1);
}

/* SFI 1 is away when the DFM restarts, and reports at the next restart, or after it. Of the events that were
 * forgotten, it has built one; level 2 did not reject the other one. All open events end before the next
 * restart, or none does. */
DFM_TEST_EACH_AS(forgotten_events_are_not_rejected_after_another_restart, i, 4, resume_standard(),
                 begin_with(t, &c, 0x30), c.event_timeout_ns = 100 * NS_PER_S,
                 c.level2 = level2_with_window(8), c.trigger_source = DFM_TRIGGER_OFFERED,
                 c.trigger_queue = 16, c.previous_processes = record())
{
        static struct dfm_processes stored;
        uint64_t ended = i / 2 ? 2 : 0;
        bool late = i % 2;

        for (uint64_t event = 4; event < 4 + ended; event++)
                sfi_ends(t, 0, event, EVENT_COMPLETE, 0);
        dfm_processes_fill(t->dfm, &stored);
        assert_int_equal(stored.oldest, ended ? 8 : 4);
        dfm_driver_fini(t);
        c.previous_processes = &stored;
        dfm_driver_init(t, &c);
        ross_come(t, 8);
        comes(t, ROLE_SFI, 0, stored.oldest, 8);
        if (!late)
                comes(t, ROLE_SFI, 1, 2, 8);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 8, 1 + ended, ended ? 0x31 : 0x1, ended ? 0 : 0x30);
        if (late) {
                run_begins(t);
                assert_counts(dfm_counts(t->dfm), complete, 1 + ended, rejected, 0, lost, 3 + 2);
                assert_int_equal(dfm_run_view(t->dfm).forgotten, 2);
                comes(t, ROLE_SFI, 1, 2, 8);
                dfm_says_with(t, false);
        }
        sfi_reports_bits(t, 1, 8, 2, 0x44, 0); /* built 2 and 6 */
        run_begins(t);
        assert_counts(dfm_counts(t->dfm), complete, 3 + ended, rejected, 2, lost, 1, ended_again, 0);
        assert_int_equal(dfm_run_view(t->dfm).forgotten, 1);
        assert_int_equal(dfm_open_events(t->dfm), 2 - ended);
}

/* It fell silent in the middle of its inventory, and the run resumed without it. */
RESUME_TEST(the_inquiry_continues_after_a_silence, dfm_driver_init, c.event_timeout_ns = 100 * NS_PER_S,
            c.keep_alive_ns = NS_PER_S)
{
        ross_come(t, 8);
        comes(t, ROLE_SFI, 0, 0, 8);
        comes(t, ROLE_SFI, 1, 0, 8);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 8, 4, 0xf, 0);
        for (int i = 0; i < 30 && dfm_state(t->dfm) != RUN_RUNNING; i++) {
                dfm_pass_ns(t, NS_PER_S);
                for (uint16_t k = 0; k < 2; k++)
                        ros_says_alive(t, k, RUN_RUNNING, 0);
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                dfm_says_with(t, false);
        }
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_int_equal(dfm_open_events(t->dfm), 4);
        sfi_says_alive(t, 1, RUN_RUNNING, 0);
        assert_dfm_says(t, "sfi1: Inquiry from 0");
        sfi_reports_bits(t, 1, 8, 3, 0x70, 0);
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, "sfi1: Build e7>sfi1#0");
        assert_int_equal(dfm_counts(t->dfm)->complete, 7);
}

/* The given SFIs and ROSs are present until the run resumes, or for some seconds. */
static void wait_with(struct dfm_driver *t, uint16_t n_ros, uint16_t first_sfi, unsigned seconds)
{
        for (unsigned k = 0; k < seconds && dfm_state(t->dfm) != RUN_RUNNING; k++) {
                dfm_pass_ns(t, NS_PER_S);
                for (uint16_t i = 0; i < n_ros; i++)
                        ros_says_alive(t, i, RUN_RUNNING, 0);
                for (uint16_t i = first_sfi; i < 2; i++)
                        sfi_says_alive(t, i, RUN_RUNNING, 0);
                dfm_says_with(t, false);
        }
}

/* The run waits for a ROS for longer than an event may take. */
RESUME_TEST(events_wait_until_the_run_resumes, dfm_driver_init, c.event_timeout_ns = 2 * NS_PER_S,
            c.reassign_max = 0)
{
        comes(t, ROLE_ROS, 0, 0, 3);
        comes(t, ROLE_SFI, 0, 0, 3);
        comes(t, ROLE_SFI, 1, 0, 3);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 3, 1, 0x1, 0x6);
        sfi_reports_bits(t, 1, 3, 0, 0, 0);
        wait_with(t, 1, 0, 20);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_int_equal(dfm_open_events(t->dfm), 2);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        assert_counts(dfm_counts(t->dfm), complete, 3, lost, 0, ended_again, 0);
}

/* An SFI that has events falls silent before the other one reports that it built one of them. */
RESUME_TEST(an_event_of_a_silent_sfi_ends_elsewhere, dfm_driver_init, c.event_timeout_ns = 100 * NS_PER_S,
            c.keep_alive_ns = NS_PER_S, c.reassign_max = 0)
{
        ross_come(t, 3);
        comes(t, ROLE_SFI, 0, 0, 3);
        comes(t, ROLE_SFI, 1, 0, 3);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 3, 1, 0x1, 0x6);
        wait_with(t, 2, 1, 12);
        assert_int_equal(dfm_state(t->dfm), RUN_STARTING);
        assert_false(dfm_view(t->dfm, ROLE_SFI, 0).live);
        sfi_reports_bits(t, 1, 3, 1, 0x2, 0);
        wait_with(t, 2, 1, 20);
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        assert_counts(dfm_counts(t->dfm), complete, 2, lost, 0);
        assert_int_equal(dfm_open_events(t->dfm), 1);
}

/* What the scenario says of the sources holds in a resumed run too. */
RESUME_TEST(a_resumed_run_waits_for_a_silent_source, dfm_driver_init)
{
        ross_come(t, 4);
        t->message.alive.reason = REASON_SILENT;
        t->message.alive.reason_ms = 9999;
        assert_true(driver_say(t, ROLE_ROS, 1, MESSAGE_ALIVE, t->ros_alive_next[1]++));
        assert_false(dfm_view(t->dfm, ROLE_ROS, 1).left_out);
        t->message.alive.reason_ms = 10000; /* node_timeout_ns */
        assert_true(driver_say(t, ROLE_ROS, 1, MESSAGE_ALIVE, t->ros_alive_next[1]++));
        assert_true(dfm_view(t->dfm, ROLE_ROS, 1).left_out);
}

/* A ROS process that was not in the run may have replaced one that was. The next DFM learns of it. */
RESUME_TEST(a_ros_that_restarted_without_a_dfm_is_known, dfm_driver_init,
            c.ros_rules = (const struct ros_rule[]){{.frames = true}, {.frames = true}},
            c.previous_processes = record())
{
        static struct dfm_processes stored;

        comes(t, ROLE_ROS, 0, 0, 4);
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        assert_false(dfm_view(t->dfm, ROLE_ROS, 0).replaced);
        assert_true(dfm_view(t->dfm, ROLE_ROS, 1).replaced);
        dfm_processes_fill(t->dfm, &stored);
        dfm_driver_fini(t);
        c.previous_processes = &stored;
        dfm_driver_init(t, &c);
        comes(t, ROLE_ROS, 0, 0, 4);
        comes(t, ROLE_ROS, 1, 0, 4);
        assert_false(dfm_view(t->dfm, ROLE_ROS, 0).replaced);
        assert_true(dfm_view(t->dfm, ROLE_ROS, 1).replaced);
}

/* The run is of this age when the DFM starts, and the nodes come some time later. */
static void resume_after(struct dfm_driver *t, uint64_t age_ns, uint64_t wait_ns)
{
        struct dfm_config c = resume_standard();

        c.duration_ns = 60 * NS_PER_S;
        c.previous = (struct dfm_previous){.known = true, .cookie = TRACE_COOKIE, .age_ns = age_ns};
        dfm_driver_init(t, &c);
        dfm_pass_ns(t, wait_ns);
        ross_come(t, 4);
        comes(t, ROLE_SFI, 0, 0, 4);
        comes(t, ROLE_SFI, 1, 0, 4);
        dfm_says_with(t, false);
        sfi_reports_bits(t, 0, 4, 4, 0xf, 0);
        sfi_reports_bits(t, 1, 4, 0, 0, 0);
        dfm_says_with(t, false);
        assert_true(dfm_has_begun(t->dfm));
        assert_int_equal(dfm_age_ns(t->dfm, t->now_ns), age_ns + wait_ns);
}

/* The machine started again in mid-run, so its clock is younger than the run. The wait for the nodes is part
 * of the duration. */
TEST(a_resumed_run_may_be_older_than_the_clock)
{
        struct dfm_driver t;

        assert_true(TRACE_BEGIN_NS < 50 * NS_PER_S);
        resume_after(&t, 50 * NS_PER_S, 4 * NS_PER_S);
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        dfm_pass_ns(&t, 6 * NS_PER_S - 1);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_RUNNING);
        dfm_pass_ns(&t, 1);
        assert_true(dfm_deadline_ns(t.dfm) <= t.now_ns);
        dfm_says_with(&t, false);
        assert_int_equal(dfm_state(t.dfm), RUN_ENDED);
        assert_false(dfm_run_view(t.dfm).is_overdue);
        dfm_driver_fini(&t);
}

DFM_TEST_AS(a_resumed_run_past_its_duration_is_reported, dfm_standard(),
            resume_after(t, 56 * NS_PER_S, 4 * NS_PER_S))
{
        struct dfm_notice n;
        bool noticed = false, begun = false;

        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_true(dfm_run_view(t->dfm).is_overdue);
        while (dfm_pop_notice(t->dfm, &n)) {
                noticed |= n.kind == NOTICE_OVERDUE && n.run == TRACE_RUN;
                begun |= n.kind == NOTICE_BEGUN;
        }
        assert_true(noticed && !begun);
}
