/* The DFM's streams to and from the SFIs: credits, resent entries, and finished events in order. */
#include "dfm_driver.h"

DFM_TEST(credits_are_never_exceeded)
{
        sfi_grants(t, 0, 3);
        assert_dfm_says(t,
                        "sfi0: Assign e0>sfi0#0 e1>sfi0#1 e2>sfi0#2 | ross: Assign e0>sfi0 e1>sfi0 e2>sfi0");
        sfi_acks(t, 0, 3);
        assert_dfm_says(t, "");
        /* A lower value comes from an overtaken message and takes no credit back. */
        sfi_grants(t, 0, 4);
        sfi_grants(t, 0, 2);
        assert_dfm_says(t, "sfi0: Assign e3>sfi0#3 | ross: Assign e3>sfi0");
        assert_int_equal(dfm_counts(t->dfm)->triggers, 4);
        assert_int_equal(dfm_open_events(t->dfm), 4);
}

DFM_TEST(without_credits_it_counts_busy_time, c.trigger_rate_millihertz = 1000000 /* one per millisecond */)
{
        assert_true(dfm_run_view(t->dfm).is_busy);
        assert_dfm_says_after(t, 5 * NS_PER_MS, "");
        assert_int_equal(dfm_counts(t->dfm)->busy_ns, 5 * NS_PER_MS);
        sfi_grants(t, 0, 10);
        dfm_pass_ns(t, 2 * NS_PER_MS);
        /* Only one trigger was held back, not one per millisecond. */
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        assert_int_equal(dfm_counts(t->dfm)->busy_ns, 7 * NS_PER_MS);
        assert_false(dfm_run_view(t->dfm).is_busy);
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + NS_PER_MS);
        assert_dfm_says_after(t, NS_PER_MS, "sfi0: Assign e1>sfi0#1 | ross: Assign e1>sfi0");
        assert_int_equal(dfm_counts(t->dfm)->busy_ns, 7 * NS_PER_MS);
}

DFM_TEST(open_events_are_bounded, c.events_max = 4, c.clear_group = 1)
{
        sfi_grants(t, 0, 10);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1 e2>sfi0#2 e3>sfi0#3 | ross: Assign e0>sfi0 "
                           "e1>sfi0 e2>sfi0 e3>sfi0");
        assert_true(dfm_run_view(t->dfm).is_busy);
        sfi_acks(t, 0, 4);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        /* The slot is free once the event is cleared: first the Clear, then the next event. */
        dfm_says_with(t, false);
        assert_int_equal(dfm_counts(t->dfm)->triggers, 5);
        assert_int_equal(dfm_open_events(t->dfm), 4);
}

/* Held and free: SFI 0 4 and 6, SFI 1 2 and 2, SFI 2 1 and 1. SFI 0 was chosen last. */
DFM_TEST(the_policy_chooses, c.n_sfi = 3, c.push = false, c.events = 8)
{
        static const uint16_t order[] = {1, 2, 0};
        static const uint64_t held[] = {4, 2, 1}, granted[] = {10, 4, 2};

        for (size_t i = 0; i < 3; i++) {
                sfi_grants(t, order[i], held[order[i]]);
                dfm_says_with(t, false);
        }
        for (uint16_t i = 0; i < 3; i++) {
                t->sfis[i].ack = (uint32_t)held[i];
                sfi_grants(t, i, granted[i]);
        }
        assert_dfm_says(t, "sfi0: Assign e7>sfi0#4");
}

DFM_TEST_EACH_AS(push_multicasts_assignments_and_pull_does_not, push, 2, dfm_standard(),
                 dfm_driver_init(t, &c), c.push = push)
{
        for (uint16_t i = 0; i < 2; i++) {
                ros_says_alive(t, i, RUN_RUNNING, 0);
                sfi_says_alive(t, i, RUN_RUNNING, 0);
                sfi_grants(t, i, 2);
        }
        if (push)
                assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e2>sfi0#1 | sfi1: Assign e1>sfi1#0 "
                                   "e3>sfi1#1 | ross: Assign e0>sfi0 e1>sfi1 e2>sfi0 e3>sfi1");
        else
                assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e2>sfi0#1 | sfi1: Assign e1>sfi1#0 e3>sfi1#1");
        dfm_driver_fini(t);
}

static void describe(void *ctx, uint64_t event, struct event_info *ret)
{
        *ret = (struct event_info){.global_id = event + 1000, .l1_id = (uint32_t)event + 50};
}

/* An entry with event information takes 58 bytes, the first one some 70. */
DFM_TEST_EACH(a_message_holds_as_many_entries_as_fit, push, 2, c.push = push, c.info = describe,
              c.message_bytes = MESSAGE_HEADER_BYTES + 32 + 150)
{
        sfi_grants(t, 0, 3);
        if (push)
                assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | sfi0: Assign e2>sfi0#2 | "
                                   "ross: Assign e0>sfi0 e1>sfi0 e2>sfi0");
        else
                assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | sfi0: Assign e2>sfi0#2");
}

/* An SFI that is lost in between leaves gaps in what is announced. */
DFM_TEST_EACH(all_announcements_that_do_not_fit_follow, lost, 2, c.events_max = 256,
              c.node_timeout_ns = NS_PER_S,
              c.message_bytes = MESSAGE_HEADER_BYTES + 32 + MESSAGE_ENTRY_BYTES_MAX + MESSAGE_INFO_BYTES)
{
        uint64_t event = 0, messages = 0;

        sfi_grants(t, 0, 100);
        sfi_grants(t, 1, 100);
        assert_true(dfm_makes(t));
        assert_int_equal(dfm_open_events(t->dfm), 200);
        dfm_pass_with_ros_ns(t, 0, 900 * NS_PER_MS);
        ros_says_alive(t, 1, RUN_RUNNING, 0);
        for (uint16_t i = 0; i < 2 - lost; i++)
                sfi_says_alive(t, i, RUN_RUNNING, 0);
        dfm_pass_ns(t, 200 * NS_PER_MS);
        while (dfm_makes(t)) {
                if (t->message.header.type != MESSAGE_ASSIGN || !t->message.assign.announces)
                        continue;
                messages++;
                for (size_t k = 0; k < t->message.n; k++, event += lost ? 2 : 1)
                        assert_int_equal(t->message.assign.entries[k].event, event);
        }
        assert_int_equal(event, 200);
        assert_int_equal(messages, lost ? 3 : 5);
}

DFM_TEST(an_entry_describes_its_trigger, c.utc_offset_ns = 3 * NS_PER_S)
{
        dfm_set_utc_offset(t->dfm, 9 * NS_PER_S); /* the run has begun: its time continues unchanged */
        sfi_grants(t, 0, 1);
        assert_true(dfm_makes(t));
        assert_fields(&t->message.assign.entries[0], time_ns, t->now_ns + 3 * NS_PER_S, l1_id, 0);
        assert_int_equal(t->message.assign.incarnation, 1);
        assert_int_equal(t->message.header.transaction, 0);
        assert_false(t->message.assign.with_info);
        dfm_driver_fini(t);

        c.info = describe;
        dfm_driver_start(t, &c);
        sfi_grants(t, 0, 1);
        assert_true(dfm_makes(t));
        assert_true(t->message.assign.with_info);
        assert_int_equal(t->message.assign.entries[0].l1_id, 50);
        assert_int_equal(t->message.assign.infos[0].global_id, 1000);
}

DFM_TEST_EACH(unacknowledged_entries_are_resent_with_backoff, push, 2, c.keep_alive_ns = 1000 * NS_PER_S,
              c.push = push)
{
        static const uint64_t distances_ms[] = {20, 40, 80, 160, 320, 320};

        sfi_grants(t, 0, 2);
        assert_dfm_says(t, push ? "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | ross: Assign e0>sfi0 e1>sfi0"
                                : "sfi0: Assign e0>sfi0#0 e1>sfi0#1");
        for (size_t i = 0; i < ARRAY_SIZE(distances_ms); i++) {
                assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + distances_ms[i] * NS_PER_MS);
                assert_dfm_says_after(t, distances_ms[i] * NS_PER_MS - 1, "");
                assert_dfm_says_after(t, 1, "sfi0: Assign e0>sfi0#0 e1>sfi0#1");
        }
        /* After progress, the rest starts again with the shortest pause. */
        sfi_acks(t, 0, 1);
        assert_dfm_says_after(t, 20 * NS_PER_MS, "sfi0: Assign e1>sfi0#1");
        sfi_acks(t, 0, 2);
        assert_dfm_says_after(t, NS_PER_S, "");
}

DFM_TEST(an_impossible_acknowledgement_is_ignored)
{
        sfi_grants(t, 0, 2);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | ross: Assign e0>sfi0 e1>sfi0");
        sfi_acks(t, 0, 3);
        assert_dfm_says_after(t, 20 * NS_PER_MS, "sfi0: Assign e0>sfi0#0 e1>sfi0#1");
        sfi_acks(t, 0, 2);
        sfi_acks(t, 0, 1); /* overtaken */
        assert_dfm_says_after(t, 400 * NS_PER_MS, "");
}

DFM_TEST(finished_events_count_once_and_in_order)
{
        const struct finished_entry entries[] = {
                {.event = 0, .end = EVENT_COMPLETE, .payload_bytes = 100},
                {.event = 1, .end = EVENT_PARTIAL, .missing = 1},
                {.event = 2, .end = EVENT_LOST, .missing = 2},
        };
        const struct dfm_counts *n;

        n = dfm_counts(t->dfm);
        sfi_grants(t, 0, 3);
        assert_dfm_says(t,
                        "sfi0: Assign e0>sfi0#0 e1>sfi0#1 e2>sfi0#2 | ross: Assign e0>sfi0 e1>sfi0 e2>sfi0");
        t->sfis[0].ack = 3;
        /* The first Update was lost, so neither events nor credits of the next one count. */
        t->sfis[0].granted = 9;
        sfi_says_update(t, 0, 1, 2, entries + 1);
        assert_dfm_says(t, "");
        assert_int_equal(n->partial + n->complete + n->lost, 0);
        assert_int_equal(n->triggers, 3);
        sfi_says_update(t, 0, 0, 2, entries);
        t->sfis[0].granted = 3;
        assert_counts(n, triggers, 3, complete, 1, partial, 1);
        /* A repetition is acknowledged again, but counted once. */
        sfi_says_update(t, 0, 0, 2, entries);
        sfi_says_update(t, 0, 0, 3, entries);
        sfi_says_update(t, 0, 1, 1, entries + 1);
        assert_counts(n, complete, 1, partial, 1, lost, 1, fragments_received, 3, fragments_lost, 3,
                      payload_bytes, 100);
        assert_int_equal(n->ended_again, 0);
        assert_true(dfm_makes(t));
        assert_int_equal(t->message.header.type, MESSAGE_ASSIGN);
        assert_int_equal(t->message.assign.finished_ack, 3);
}

DFM_TEST(an_acknowledgement_goes_with_assignments_or_waits, c.push = false, c.clear_group = 100)
{
        sfi_grants(t, 0, 2);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1");
        t->sfis[0].ack = 2;
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_dfm_says(t, "");
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + 5 * NS_PER_MS);
        assert_dfm_says_after(t, 5 * NS_PER_MS, "sfi0: UpdateAck 1");

        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        sfi_grants(t, 0, 3);
        assert_true(dfm_makes(t));
        assert_int_equal(t->message.header.type, MESSAGE_ASSIGN);
        assert_int_equal(t->message.assign.finished_ack, 2);
        assert_dfm_says_after(t, 5 * NS_PER_MS, "");
}

/* A full share delays messages, and the next one contains the entries added since. */
DFM_TEST(messages_keep_to_their_share, c.events_max = 4096,
         c.control = (struct budget_plan){
                 .share_bps = 1000000, .assign_bps = 1000000, .announce_bps = 2000000, .header_bytes = 42})
{
        uint64_t sent_bytes[2] = {}, start_ns = t->now_ns;
        unsigned messages[2] = {}, entries = 0;
        struct message_to to;

        /* Far more events than the share allows: each waits, none is lost. */
        sfi_grants(t, 0, 4000);
        for (int i = 0; i < 10000 && entries < 4000; i++) {
                bool made = dfm_step(t->dfm, t->now_ns, &to, &t->message);

                if (!made) {
                        /* In the past if more triggers are due: the DFM takes some at a time. */
                        t->now_ns = MAX(dfm_deadline_ns(t->dfm), t->now_ns);
                        continue;
                }
                bool to_sfi = to.role == ROLE_SFI && to.index == 0;

                if (to.index == MESSAGE_TO_ALL || to.index == MESSAGE_TO_ROSS || to_sfi) {
                        sent_bytes[to_sfi] += message_bytes(&t->message) + 42;
                        messages[to_sfi]++;
                }
                if (t->message.header.type != MESSAGE_ASSIGN)
                        continue;
                if (to.index == MESSAGE_TO_ROSS)
                        entries += (unsigned)t->message.n;
                else
                        sfi_acks(t, 0, t->message.header.transaction + (uint32_t)t->message.n);
        }
        assert_int_equal(entries, 4000);
        assert_in_range(messages[1], 16, 40);
        assert_true(sent_bytes[1] * 8 <= (t->now_ns - start_ns) / 1000 + 2 * 1514 * 8 + 1514 * 8);
        assert_true(sent_bytes[0] * 8 <= (t->now_ns - start_ns) / 500 + 2 * 1514 * 8 + 1514 * 8);
        /* The share is also used. */
        assert_true(sent_bytes[1] * 8 >= (t->now_ns - start_ns) / 1000 / 2);
}

/* What is due and may not be sent yet must not wake the caller. */
DFM_TEST(an_exhausted_share_delays_an_acknowledgement,
         c.control = (struct budget_plan){
                 .share_bps = 8000, .assign_bps = 8000, .announce_bps = 8000000, .header_bytes = 42})
{
        sfi_grants(t, 0, 1);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 | ross: Assign e0>sfi0");
        sfi_acks(t, 0, 1);
        for (int i = 0; i < 20; i++) { /* KeepAlive alone takes more than the share */
                assert_dfm_says_after(t, c.keep_alive_ns, "");
        }
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        assert_dfm_says_after(t, 5 * NS_PER_MS, "");
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        dfm_pass_ns(t, NS_PER_S);
        assert_non_null(strstr(dfm_says_with(t, false), "ross: Clear #0 oldest 1: e0"));
}

DFM_TEST(latency_runs_from_trigger_to_end)
{
        sfi_grants(t, 0, 2);
        assert_dfm_says(t, "sfi0: Assign e0>sfi0#0 e1>sfi0#1 | ross: Assign e0>sfi0 e1>sfi0");
        t->sfis[0].ack = 2;
        dfm_pass_ns(t, 3 * NS_PER_MS);
        sfi_ends(t, 0, 0, EVENT_COMPLETE, 0);
        dfm_pass_ns(t, 4 * NS_PER_MS);
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        assert_counts(dfm_counts(t->dfm), first_trigger_ns, TRACE_BEGIN_NS, first_complete_ns,
                      TRACE_BEGIN_NS + 3 * NS_PER_MS, last_complete_ns, TRACE_BEGIN_NS + 7 * NS_PER_MS);
        assert_in_range(histogram_quantile(dfm_latency_ns(t->dfm), 1.0), 69 * NS_PER_MS / 10,
                        72 * NS_PER_MS / 10);
}
