/* Level 2: decisions about events, their time-out, and their bounds. */
#include "../dfm_driver.h"

/* All nodes are present, without credits, and the triggers are taken as far as possible. */
static void start(struct dfm_driver *t, const struct dfm_config *config)
{
        dfm_driver_init(t, config);
        all_say_alive(t);
        assert_dfm_says(t, "");
        assert_true(dfm_has_begun(t->dfm));
}

/* Five triggers; undecided events are rejected after 500 ms. */
#define LEVEL2_TEST_EACH(name, i, n, ...)                                                                    \
        DFM_TEST_EACH_AS(                                                                                    \
                name, i, n, dfm_standard(), start(t, &c), c.events = 5, c.clear_group = 2,                   \
                c.level2 =                                                                                   \
                        (struct dfm_level2_config){.on = true, .timeout_ns = 500 * NS_PER_MS, .window = 64}, \
                ##__VA_ARGS__)
#define LEVEL2_TEST(name, ...) LEVEL2_TEST_EACH(name, once, 1, ##__VA_ARGS__)

static bool decides(struct dfm_driver *t, uint64_t event, enum decision_verdict verdict)
{
        return dfm_decide(t->dfm, t->now_ns,
                          &(struct decision_entry){.event = event, .verdict = (uint8_t)verdict});
}

/* "e0 e2": the undecided events from number *from on. */
static const char *lists(struct dfm_driver *t, uint64_t *from)
{
        struct undecided_entry entries[2];
        uint64_t before;

        trace_clear(&t->trace);
        do {
                before = *from;
                size_t n = dfm_list_undecided(t->dfm, from, entries, ARRAY_SIZE(entries));

                for (size_t k = 0; k < n; k++)
                        trace_add(&t->trace, "%se%llu", t->trace.n > 0 ? " " : "",
                                  (unsigned long long)entries[k].event);
        } while (*from != before);
        return t->trace.text;
}

static const char *lists_all(struct dfm_driver *t)
{
        uint64_t from = 0;

        return lists(t, &from);
}

static void assert_level2(struct dfm_driver *t, const char *expected)
{
        const struct dfm_level2_counts *c = dfm_level2_counts(t->dfm);

        trace_clear(&t->trace);
        trace_add(&t->trace,
                  "%llu accepted, %llu rejected, %llu timed out; %llu late, %llu repeated, %llu unknown",
                  (unsigned long long)c->accepted, (unsigned long long)c->rejected,
                  (unsigned long long)c->timed_out, (unsigned long long)c->late,
                  (unsigned long long)c->repeated, (unsigned long long)c->unknown);
        assert_string_equal(t->trace.text, expected);
}

LEVEL2_TEST_EACH(an_event_waits_for_its_decision, push, 2, c.push = push)
{
        sfi_grants(t, 0, 10);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 5);
        assert_int_equal(dfm_run_view(t->dfm).undecided, 5);
        assert_string_equal(lists_all(t), "e0 e1 e2 e3 e4");

        assert_true(decides(t, 3, DECISION_ACCEPT));
        assert_dfm_says(t, push ? "sfi0: Assign e3>sfi0#0 | ross: Assign e3>sfi0" : "sfi0: Assign e3>sfi0#0");
        assert_true(decides(t, 1, DECISION_REJECT));
        assert_true(decides(t, 0, DECISION_REJECT));
        assert_dfm_says(t, "ross: Clear #0 oldest 2: e1 e0");
        assert_string_equal(lists_all(t), "e2 e4");
        assert_counts(dfm_counts(t->dfm), rejected, 2, fragments_expected, 0);
        assert_int_equal(dfm_latency_ns(t->dfm)->count, 0);
        assert_level2(t, "1 accepted, 2 rejected, 0 timed out; 0 late, 0 repeated, 0 unknown");
}

/* Frames of undecided events wait in the ROSs: the smallest buffer limits them, in events of its frames'
 * size. */
LEVEL2_TEST(no_more_events_are_undecided_than_the_ross_can_hold, c.events = c.events_max = 256,
            c.has_front_ends = true)
{
        static const struct {
                uint16_t ros;
                enum run_state state;
                uint32_t room, undecided;
        } reports[] = {{0, RUN_RUNNING, 30, 30},
                       {1, RUN_RUNNING, 20, 20},
                       {1, RUN_ENDED, 0, 30},
                       {0, RUN_RUNNING, 1000, 64}};

        assert_int_equal(dfm_run_view(t->dfm).undecided, 16); /* the size of frames is not known yet */
        for (size_t i = 0; i < ARRAY_SIZE(reports); i++) {
                t->room = reports[i].room;
                ros_says_alive(t, reports[i].ros, reports[i].state, 0);
                for (uint64_t event = 0; i == 1 && event < 15; event++)
                        assert_true(decides(t, event, DECISION_REJECT));
                dfm_says_with(t, false);
                assert_int_equal(dfm_run_view(t->dfm).undecided, reports[i].undecided);
        }
}

LEVEL2_TEST(the_run_ends_once_all_events_have)
{
        sfi_grants(t, 0, 10);
        for (uint64_t event = 0; event < 5; event++)
                decides(t, event, event == 2 ? DECISION_ACCEPT : DECISION_REJECT);
        dfm_says_with(t, false);
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        sfi_ends(t, 0, 2, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "ross: Clear #2 oldest 5: e2 | sfi0: UpdateAck 1");
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_counts(dfm_counts(t->dfm), complete, 1, rejected, 4, fragments_expected, 2);
}

LEVEL2_TEST_EACH(undecided_events_time_out, accept, 2, c.level2.accept_undecided = accept, c.events = 2)
{
        sfi_grants(t, 0, 10);
        assert_dfm_says(t, "");
        assert_dfm_says_after(t, c.level2.timeout_ns - 1, "");
        assert_true(dfm_deadline_ns(t->dfm) <= t->now_ns + 1);
        assert_dfm_says_after(t, 1,
                              accept ? "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | ross: Assign e0>sfi0 e1>sfi0"
                                     : "ross: Clear #0 oldest 2: e0 e1");
        assert_int_equal(dfm_counts(t->dfm)->rejected, accept ? 0 : 2);
        assert_false(decides(t, 1, DECISION_ACCEPT));
        assert_level2(t, "0 accepted, 0 rejected, 2 timed out; 1 late, 0 repeated, 0 unknown");
        assert_int_equal(dfm_level2_latency_ns(t->dfm)->count, 0);
}

/* A client may repeat itself, contradict itself or another client, and invent events. */
LEVEL2_TEST(decisions_without_effect_are_counted)
{
        sfi_grants(t, 0, 10);
        dfm_says_with(t, false);
        assert_true(decides(t, 0, DECISION_ACCEPT));
        assert_false(decides(t, 0, DECISION_REJECT));
        assert_true(decides(t, 1, DECISION_REJECT));
        assert_false(decides(t, 1, DECISION_ACCEPT));
        assert_false(decides(t, 5, DECISION_ACCEPT));
        assert_false(decides(t, UINT64_MAX, DECISION_ACCEPT));
        assert_false(decides(t, ASSIGN_VOID_EVENT, DECISION_REJECT));
        assert_dfm_says(t, "ross: Clear #0 oldest 0: e1 | sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_false(decides(t, 0, DECISION_REJECT));
        assert_level2(t, "1 accepted, 1 rejected, 0 timed out; 0 late, 3 repeated, 3 unknown");
}

/* The bit of a decision serves each event whose number differs by a whole window. */
LEVEL2_TEST(a_decision_is_not_that_of_the_event_a_window_later, c.events = 0, c.level2.window = 1 << 15)
{
        uint64_t event = 3;

        assert_true(decides(t, event, DECISION_REJECT));
        while (dfm_counts(t->dfm)->triggers <= EVB_EVENT_WINDOW + c.level2.window) {
                dfm_pass_with_ros_ns(t, 0, c.level2.timeout_ns);
                while (dfm_makes(t))
                        ;
        }
        assert_false(decides(t, EVB_EVENT_WINDOW + event, DECISION_REJECT));
        assert_false(decides(t, event, DECISION_REJECT));
        assert_counts(dfm_level2_counts(t->dfm), repeated, 0, late, 2);
}

DFM_TEST_AS(without_level_2_decisions_have_no_effect, dfm_standard(), start(t, &c))
{
        sfi0_takes(t, 2);
        assert_false(decides(t, 0, DECISION_REJECT));
        assert_string_equal(lists_all(t), "");
        assert_false(dfm_run_view(t->dfm).waits_for_level2);
}

LEVEL2_TEST(accepted_events_wait_for_credits_and_hold_triggers_back, c.events = 0, c.level2.window = 4,
            c.level2.timeout_ns = 3600 * NS_PER_S)
{
        assert_dfm_says(t, "");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 4);
        assert_true(dfm_run_view(t->dfm).is_busy && dfm_run_view(t->dfm).waits_for_level2);
        decides(t, 0, DECISION_ACCEPT);
        decides(t, 1, DECISION_ACCEPT);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 4);
        assert_true(dfm_run_view(t->dfm).is_busy && !dfm_run_view(t->dfm).waits_for_level2);
        /* They have no time-out, as triggers that are held back have none. */
        assert_dfm_says_after(t, 10 * c.event_timeout_ns, "");
        assert_int_equal(dfm_counts(t->dfm)->lost, 0);
        sfi_grants(t, 1, 1);
        assert_dfm_says(t, "sfi1: Assign e0>sfi1#0 | ross: Assign e0>sfi1");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 4);
        sfi_grants(t, 1, 2);
        assert_dfm_says(t, "sfi1: Assign e1>sfi1#1 | ross: Assign e1>sfi1");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 6);
}

LEVEL2_TEST(undecided_events_count_as_open, c.events = 0, c.events_max = 8, c.clear_group = 100)
{
        sfi_grants(t, 0, 100);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_open_events(t->dfm), 8);
        assert_true(dfm_run_view(t->dfm).is_busy);
        /* A rejected event takes its place until it is cleared. */
        decides(t, 5, DECISION_REJECT);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 8);
        dfm_pass_ns(t, c.clear_after_ns);
        dfm_says_with(t, false);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 9);
}

LEVEL2_TEST(xoff_holds_triggers_back_and_not_decisions, c.events = 0, c.level2.window = 3)
{
        sfi_grants(t, 0, 100);
        assert_dfm_says(t, "");
        ros_says_switch(t, 0, false);
        decides(t, 0, DECISION_ACCEPT);
        decides(t, 1, DECISION_REJECT);
        decides(t, 2, DECISION_REJECT);
        assert_dfm_says(t, "ross: Clear #0 oldest 0: e1 e2 | sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 3);
        ros_says_switch(t, 0, true);
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 6);
}

LEVEL2_TEST(the_decision_describes_the_event, c.utc_offset_ns = 1700000000 * NS_PER_S, c.push = false,
            c.events = 2, c.level2.accept_undecided = true)
{
        sfi_grants(t, 0, 10);
        dfm_says_with(t, false);
        dfm_decide(t->dfm, t->now_ns,
                   &(struct decision_entry){
                           .event = 1, .verdict = DECISION_ACCEPT, .stream = 7, .l2_info = 0xABCD});
        assert_true(dfm_makes(t));
        assert_int_equal(t->message.header.type, MESSAGE_ASSIGN);
        assert_true(t->message.assign.with_info);
        const struct event_info *i = &t->message.assign.infos[0];

        assert_fields(i, global_id, 1, l1_id, 1, run, TRACE_RUN, time_s,
                      1700000000 + TRACE_BEGIN_NS / NS_PER_S, l2_info, 0xABCD);
        assert_int_equal(i->ef_info[0], 7);
        /* The other event times out. */
        sfi_acks(t, 0, 1);
        dfm_pass_ns(t, c.level2.timeout_ns);
        while (dfm_makes(t) && t->message.header.type != MESSAGE_ASSIGN)
                ;
        assert_fields(i, global_id, 0, l2_info, 0);
        assert_int_equal(i->ef_info[0], 0);
}

static void boards_number(void *ctx, uint64_t event, struct event_info *ret)
{
        *ret = (struct event_info){.global_id = 1000 + 3 * event, .l1_id = (uint32_t)(1000 + 3 * event)};
}

/* A ROS that matches frames by number must find those of events that were never announced to it. */
LEVEL2_TEST_EACH(clear_names_the_l1_ids, other, 2, c.info = other ? boards_number : NULL)
{
        decides(t, 4, DECISION_REJECT);
        decides(t, 2, DECISION_REJECT);
        assert_true(dfm_makes(t));
        assert_int_equal(t->message.header.type, MESSAGE_CLEAR);
        assert_int_equal(t->message.n, 2);
        assert_true(t->message.clear.with_l1_ids);
        assert_int_equal(t->message.clear.l1_ids[0], other ? 1012 : 4);
        assert_int_equal(t->message.clear.l1_ids[1], other ? 1006 : 2);
}

/* Announcements wait for their budget until they are full, and nothing is written behind them. */
LEVEL2_TEST(full_announcements_have_256_entries, c.events = 1000, c.events_max = c.level2.window = 2048,
            c.event_timeout_ns = c.level2.timeout_ns = 3600 * NS_PER_S, c.control.announce_bps = 8000)
{
        static struct {
                struct message m;
                uint8_t behind[256];
        } guarded;
        struct message_to to;
        size_t most = 0, announced = 0;

        memset(guarded.behind, 0xA5, sizeof guarded.behind);
        dfm_says_with(t, false);
        for (uint64_t event = 0; event < 1000; event++)
                assert_true(decides(t, event, DECISION_ACCEPT));
        sfi_grants(t, 0, 1000);
        for (int turn = 0; turn < 100 && announced < 1000; turn++) {
                while (dfm_step(t->dfm, t->now_ns, &to, &guarded.m)) {
                        if (guarded.m.header.type != MESSAGE_ASSIGN || !guarded.m.assign.announces)
                                continue;
                        most = MAX(most, guarded.m.n);
                        announced += guarded.m.n;
                }
                sfi_acks(t, 0, 1000);
                dfm_pass_ns(t, NS_PER_S);
        }
        assert_int_equal(most, MESSAGE_ENTRIES_MAX);
        assert_int_equal(announced, 1000);
        for (size_t i = 0; i < sizeof guarded.behind; i++)
                assert_int_equal(guarded.behind[i], 0xA5);
}

/* An SFI does not finish an accepted event: another one gets it, and no second decision is needed. */
LEVEL2_TEST(an_accepted_event_is_reassigned, c.events = 1, c.level2.timeout_ns = 2 * c.event_timeout_ns)
{
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "");
        decides(t, 0, DECISION_ACCEPT);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_acks(t, 0, 1);
        sfi_grants(t, 1, 1);
        assert_dfm_says_after(t, c.event_timeout_ns, "sfi1: Build e0>sfi1#0 | all: Build e0>sfi1");
        assert_false(decides(t, 0, DECISION_REJECT));
        sfi_ends(t, 1, 0, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t->dfm)->complete, 1);
}

LEVEL2_TEST(draining_waits_for_decisions_and_ends_without_an_sfi, c.events = 0, c.level2.window = 3)
{
        assert_dfm_says(t, "");
        dfm_stop(t->dfm, t->now_ns);
        assert_dfm_says(t, "");
        decides(t, 0, DECISION_ACCEPT);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_open_events(t->dfm), 3);
        assert_dfm_says_after(t, c.level2.timeout_ns, "ross: Clear #0 oldest 0: e1 e2");
        dfm_pass_ns(t, c.event_timeout_ns - c.level2.timeout_ns);
        assert_true(dfm_deadline_ns(t->dfm) <= t->now_ns);
        assert_dfm_says(t, "ross: Clear #1 oldest 3: e0");
        assert_counts(dfm_counts(t->dfm), lost, 1, rejected, 2);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
}

/* A client that comes late, or again, learns of what still waits; a listing is bounded. */
LEVEL2_TEST(the_list_continues_where_it_ended, c.utc_offset_ns = 1700000000 * NS_PER_S)
{
        struct undecided_entry entries[2];
        uint64_t from = 0;

        assert_dfm_says(t, "");
        assert_int_equal(dfm_list_undecided(t->dfm, &from, entries, 2), 2);
        assert_fields(&entries[1], event, 1, number, 1, time_ns, 1700000000 * NS_PER_S + TRACE_BEGIN_NS);
        decides(t, 3, DECISION_REJECT);
        assert_string_equal(lists(t, &from), "e2 e4");
        assert_string_equal(lists(t, &from), "");
        assert_string_equal(lists_all(t), "e0 e1 e2 e4");
        from = UINT64_MAX;
        assert_string_equal(lists(t, &from), "");
}

/* A ROS that missed the last Clears may be full of frames of rejected events, and then no trigger follows. */
LEVEL2_TEST(the_last_clears_are_repeated, c.has_front_ends = true)
{
        uint32_t n = 0;

        for (uint64_t event = 0; event < 5; event++)
                decides(t, event, DECISION_REJECT);
        dfm_says_with(t, false);
        for (int k = 0; k < 20; k++) {
                dfm_pass_ns(t, c.keep_alive_ns);
                all_say_alive(t);
                while (dfm_makes(t)) {
                        if (t->message.header.type != MESSAGE_CLEAR)
                                continue;
                        assert_true(t->message.clear.with_l1_ids);
                        assert_int_equal(t->message.clear.events[0], 2 * (n % 3));
                        assert_int_equal(t->message.clear.l1_ids[0], 2 * (n++ % 3));
                }
        }
        assert_int_equal(n, 8 * 3);
}
