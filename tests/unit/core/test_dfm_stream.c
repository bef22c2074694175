/* The DFM's streams to and from the SFIs: credits, entries told and told again, finished events taken in
 * order. */
#include "dfm_driver.h"

static void credits_are_never_exceeded(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        sfi_grants(&t, 0, 3);
        assert_dfm_says(&t, "all: Assign e0>sfi0#0 e1>sfi0#1 e2>sfi0#2");
        sfi_acks(&t, 0, 3);
        assert_dfm_says(&t, "");
        /* Less than before is an overtaken message, not a credit taken back. */
        sfi_grants(&t, 0, 4);
        sfi_grants(&t, 0, 2);
        assert_dfm_says(&t, "all: Assign e3>sfi0#3");
        assert_int_equal(dfm_counts(t.dfm)->triggers, 4);
        assert_int_equal(dfm_open_events(t.dfm), 4);
        dfm_driver_fini(&t);
}

static void without_a_credit_it_is_busy_and_counts_the_time(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.trigger_rate_millihertz = 1000000; /* one a millisecond */
        dfm_driver_start(&t, &c);
        assert_true(dfm_is_busy(t.dfm));
        dfm_pass_ns(&t, 5 * NS_PER_MS);
        assert_dfm_says(&t, "");
        assert_int_equal(dfm_counts(t.dfm)->busy_ns, 5 * NS_PER_MS);
        sfi_grants(&t, 0, 10);
        dfm_pass_ns(&t, 2 * NS_PER_MS);
        /* What was held back is one trigger, not one for each millisecond. */
        assert_dfm_says(&t, "all: Assign e0>sfi0#0");
        assert_int_equal(dfm_counts(t.dfm)->busy_ns, 7 * NS_PER_MS);
        assert_false(dfm_is_busy(t.dfm));
        assert_int_equal(dfm_deadline_ns(t.dfm), t.now_ns + NS_PER_MS);
        dfm_pass_ns(&t, NS_PER_MS);
        assert_dfm_says(&t, "all: Assign e1>sfi0#1");
        assert_int_equal(dfm_counts(t.dfm)->busy_ns, 7 * NS_PER_MS);
        dfm_driver_fini(&t);
}

static void open_events_have_a_bound(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.events_max = 4;
        c.clear_group = 1;
        dfm_driver_start(&t, &c);
        sfi_grants(&t, 0, 10);
        assert_dfm_says(&t, "all: Assign e0>sfi0#0 e1>sfi0#1 e2>sfi0#2 e3>sfi0#3");
        assert_true(dfm_is_busy(t.dfm));
        sfi_acks(&t, 0, 4);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        /* The place is free when the event is cleared: first the Clear, then the next one. */
        dfm_says_with(&t, false);
        assert_int_equal(dfm_counts(t.dfm)->triggers, 5);
        assert_int_equal(dfm_open_events(t.dfm), 4);
        dfm_driver_fini(&t);
}

static void the_policy_chooses(void **state)
{
        /* Held and free: SFI 0 4 and 6, SFI 1 2 and 2, SFI 2 1 and 1; SFI 0 was chosen last. */
        static const char *const expected[POLICIES] = {
                [POLICY_CREDITS] = "sfi0: Assign e7>sfi0#4",
                [POLICY_ROUND_ROBIN] = "sfi1: Assign e7>sfi1#2",
                [POLICY_LEAST_LOADED] = "sfi2: Assign e7>sfi2#1",
        };
        static const uint16_t order[] = {1, 2, 0};
        static const uint64_t held[] = {4, 2, 1}, granted[] = {10, 4, 2};

        (void)state;
        for (int p = 0; p < POLICIES; p++) {
                struct dfm_config c = dfm_standard();
                struct dfm_driver t;

                c.policy = (enum policy_id)p;
                c.n_sfi = 3;
                c.push = false;
                c.events = 8;
                dfm_driver_start(&t, &c);
                for (size_t i = 0; i < 3; i++) {
                        sfi_grants(&t, order[i], held[order[i]]);
                        dfm_says_with(&t, false);
                }
                for (uint16_t i = 0; i < 3; i++) {
                        t.sfis[i].ack = (uint32_t)held[i];
                        sfi_grants(&t, i, granted[i]);
                }
                assert_dfm_says(&t, expected[p]);
                dfm_driver_fini(&t);
        }
}

static void push_tells_all_at_once_pull_each_its_own(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        for (int push = 0; push < 2; push++) {
                c.push = push;
                dfm_driver_init(&t, &c);
                for (uint16_t i = 0; i < 2; i++) {
                        ros_says_alive(&t, i, RUN_RUNNING, 0);
                        sfi_says_alive(&t, i, RUN_RUNNING, 0);
                        sfi_grants(&t, i, 2);
                }
                if (push)
                        assert_dfm_says(&t, "all: Assign e0>sfi0#0 e1>sfi1#0 e2>sfi0#1 e3>sfi1#1");
                else
                        assert_dfm_says(
                                &t, "sfi0: Assign e0>sfi0#0 e2>sfi0#1 | sfi1: Assign e1>sfi1#0 e3>sfi1#1");
                dfm_driver_fini(&t);
        }
}

static void a_message_holds_what_fits(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        for (int push = 0; push < 2; push++) {
                c.push = push;
                c.message_bytes = MESSAGE_HEADER_BYTES + 8 + 2 * 32 + 31;
                dfm_driver_start(&t, &c);
                sfi_grants(&t, 0, 3);
                if (push)
                        assert_dfm_says(&t, "all: Assign e0>sfi0#0 e1>sfi0#1 | all: Assign e2>sfi0#2");
                else
                        assert_dfm_says(&t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | sfi0: Assign e2>sfi0#2");
                dfm_driver_fini(&t);
        }
}

static void tell_info(void *ctx, uint64_t event, struct event_info *ret)
{
        (void)ctx;
        *ret = (struct event_info){.global_id = event + 1000, .l1_id = (uint32_t)event + 50};
}

static void an_entry_carries_what_the_trigger_knows(void **state)
{
        struct dfm_config c = dfm_standard();
        struct message_to to;
        struct dfm_driver t;

        (void)state;
        c.utc_offset_ns = 3 * NS_PER_S;
        dfm_driver_start(&t, &c);
        dfm_set_utc_offset(t.dfm, 9 * NS_PER_S); /* the run has begun: its time goes on as it is */
        sfi_grants(&t, 0, 1);
        assert_true(dfm_step(t.dfm, t.now_ns, &to, &t.message));
        assert_int_equal(t.message.assign.entries[0].time_ns, t.now_ns + 3 * NS_PER_S);
        assert_int_equal(t.message.assign.entries[0].l1_id, 0);
        assert_int_equal(t.message.assign.entries[0].incarnation, 1);
        assert_int_equal(t.message.header.transaction, 0);
        assert_false(t.message.assign.with_info);
        dfm_driver_fini(&t);

        c.info = tell_info;
        dfm_driver_start(&t, &c);
        sfi_grants(&t, 0, 1);
        assert_true(dfm_step(t.dfm, t.now_ns, &to, &t.message));
        assert_true(t.message.assign.with_info);
        assert_int_equal(t.message.assign.entries[0].l1_id, 50);
        assert_int_equal(t.message.assign.infos[0].global_id, 1000);
        dfm_driver_fini(&t);
}

static void what_is_not_acknowledged_is_told_again_at_growing_distances(void **state)
{
        static const uint64_t distances_ms[] = {20, 40, 80, 160, 320, 320};
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        c.keep_alive_ns = 1000 * NS_PER_S;
        for (int push = 0; push < 2; push++) {
                c.push = push;
                dfm_driver_start(&t, &c);
                sfi_grants(&t, 0, 2);
                assert_dfm_says(&t, push ? "all: Assign e0>sfi0#0 e1>sfi0#1"
                                         : "sfi0: Assign e0>sfi0#0 e1>sfi0#1");
                for (size_t i = 0; i < ARRAY_SIZE(distances_ms); i++) {
                        assert_int_equal(dfm_deadline_ns(t.dfm), t.now_ns + distances_ms[i] * NS_PER_MS);
                        dfm_pass_ns(&t, distances_ms[i] * NS_PER_MS - 1);
                        assert_dfm_says(&t, "");
                        dfm_pass_ns(&t, 1);
                        assert_dfm_says(&t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1");
                }
                /* Progress: what is left begins anew with the shortest distance. */
                sfi_acks(&t, 0, 1);
                dfm_pass_ns(&t, 20 * NS_PER_MS);
                assert_dfm_says(&t, "sfi0: Assign e1>sfi0#1");
                sfi_acks(&t, 0, 2);
                dfm_pass_ns(&t, NS_PER_S);
                assert_dfm_says(&t, "");
                dfm_driver_fini(&t);
        }
}

static void an_impossible_acknowledgement_is_ignored(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        sfi_grants(&t, 0, 2);
        assert_dfm_says(&t, "all: Assign e0>sfi0#0 e1>sfi0#1");
        sfi_acks(&t, 0, 3);
        dfm_pass_ns(&t, 20 * NS_PER_MS);
        assert_dfm_says(&t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1");
        sfi_acks(&t, 0, 2);
        sfi_acks(&t, 0, 1); /* overtaken */
        dfm_pass_ns(&t, 400 * NS_PER_MS);
        assert_dfm_says(&t, "");
        dfm_driver_fini(&t);
}

static void finished_events_count_once_and_in_order(void **state)
{
        const struct finished_entry entries[] = {
                {.event = 0, .end = EVENT_COMPLETE, .payload_bytes = 100},
                {.event = 1, .end = EVENT_PARTIAL, .missing = 1},
                {.event = 2, .end = EVENT_LOST, .missing = 2},
        };
        const struct dfm_counts *n;
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        n = dfm_counts(t.dfm);
        sfi_grants(&t, 0, 3);
        assert_dfm_says(&t, "all: Assign e0>sfi0#0 e1>sfi0#1 e2>sfi0#2");
        t.sfis[0].ack = 3;
        /* The first Update was lost: neither its successor's events nor its credits count. */
        t.sfis[0].granted = 9;
        sfi_says_update(&t, 0, 1, 2, entries + 1);
        assert_dfm_says(&t, "sfi0: UpdateAck 0");
        assert_int_equal(n->partial + n->complete + n->lost, 0);
        assert_int_equal(n->triggers, 3);
        sfi_says_update(&t, 0, 0, 2, entries);
        t.sfis[0].granted = 3;
        assert_int_equal(n->triggers, 3);
        assert_int_equal(n->complete, 1);
        assert_int_equal(n->partial, 1);
        /* Twice: acknowledged again, counted once. */
        sfi_says_update(&t, 0, 0, 2, entries);
        sfi_says_update(&t, 0, 0, 3, entries);
        sfi_says_update(&t, 0, 1, 1, entries + 1);
        assert_int_equal(n->complete, 1);
        assert_int_equal(n->partial, 1);
        assert_int_equal(n->lost, 1);
        assert_int_equal(n->fragments_received, 3);
        assert_int_equal(n->fragments_lost, 3);
        assert_int_equal(n->payload_bytes, 100);
        assert_int_equal(n->ended_again, 0);
        assert_non_null(strstr(dfm_says_with(&t, false), "sfi0: UpdateAck 3"));
        dfm_driver_fini(&t);
}

static void latency_is_from_trigger_to_end(void **state)
{
        struct dfm_config c = dfm_standard();
        struct dfm_driver t;

        (void)state;
        dfm_driver_start(&t, &c);
        sfi_grants(&t, 0, 2);
        assert_dfm_says(&t, "all: Assign e0>sfi0#0 e1>sfi0#1");
        t.sfis[0].ack = 2;
        dfm_pass_ns(&t, 3 * NS_PER_MS);
        sfi_ends(&t, 0, 0, EVENT_COMPLETE, 0);
        dfm_pass_ns(&t, 4 * NS_PER_MS);
        sfi_ends(&t, 0, 1, EVENT_COMPLETE, 0);
        assert_int_equal(dfm_counts(t.dfm)->first_complete_ns, TRACE_BEGIN_NS + 3 * NS_PER_MS);
        assert_int_equal(dfm_counts(t.dfm)->last_complete_ns, TRACE_BEGIN_NS + 7 * NS_PER_MS);
        assert_in_range(histogram_quantile(dfm_latency_ns(t.dfm), 1.0), 69 * NS_PER_MS / 10,
                        72 * NS_PER_MS / 10);
        dfm_driver_fini(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(credits_are_never_exceeded),
                cmocka_unit_test(without_a_credit_it_is_busy_and_counts_the_time),
                cmocka_unit_test(open_events_have_a_bound),
                cmocka_unit_test(the_policy_chooses),
                cmocka_unit_test(push_tells_all_at_once_pull_each_its_own),
                cmocka_unit_test(a_message_holds_what_fits),
                cmocka_unit_test(an_entry_carries_what_the_trigger_knows),
                cmocka_unit_test(what_is_not_acknowledged_is_told_again_at_growing_distances),
                cmocka_unit_test(an_impossible_acknowledgement_is_ignored),
                cmocka_unit_test(finished_events_count_once_and_in_order),
                cmocka_unit_test(latency_is_from_trigger_to_end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
