/* The SFI and the run: presence of nodes, the end, and refused messages. */
#include "sfi_driver.h"

SFI_TEST(a_stopping_sfi_finishes_and_takes_no_new_events, 0)
{
        sfi_gets_assign(t, 0);
        sfi_stop(t->sfi, t->now_ns);
        assert_sfi_says(t, "dfm: Alive draining | dfm: Update granted 4 ack 1");
        assert_false(sfi_is_drained(t->sfi));
        sfi_gets_whole(t, 0);
        assert_sfi_writes(t, "e0 complete");
        assert_sfi_says(t, "dfm: Update granted 4 ack 1 #0:e0 complete 200 B");
        assert_false(sfi_is_drained(t->sfi)); /* the DFM has not acknowledged yet */
        sfi_gets_ack(t, 1);
        assert_true(sfi_is_drained(t->sfi));
        sfi_set_ended(t->sfi, t->now_ns);
        assert_sfi_says(t, "dfm: Alive ended");
        assert_int_equal(sfi_gets_fragment(t, 0, 1), SFI_LATE);
}

/* ... unless the run drains: then its last events may need this SFI. */
SFI_TEST(a_stopping_sfi_builds_the_last_events, 0)
{
        sfi_gets_assign(t, 0);
        sfi_stop(t->sfi, t->now_ns);
        sfi_gets_whole(t, 0);
        assert_sfi_writes(t, "e0 complete");
        assert_sfi_says(t, "dfm: Alive draining | dfm: Update granted 4 ack 1 #0:e0 complete 200 B");
        sfi_gets_ack(t, 1);
        sfi_gets_keep_alive(t, RUN_DRAINING, 0, 3);
        assert_sfi_says_after(t, c.keep_alive_ns, "dfm: Alive draining | dfm: Update granted 5 ack 1");
        sfi_set_ended(t->sfi, t->now_ns);
        assert_int_equal(sfi_credits(t->sfi), 0);
}

/* All messages that say that an SFI leaves may be lost: it repeats them while the DFM counts it as present.
 */
SFI_TEST(a_leaving_sfi_knows_whether_the_dfm_knows, 0)
{
        t->sfi_live = 1u << c.index;
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        assert_false(sfi_is_awaited(t->sfi, t->now_ns));
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 3);
        sfi_set_ended(t->sfi, t->now_ns);
        assert_true(sfi_is_awaited(t->sfi, t->now_ns + 59 * NS_PER_MS));
        assert_false(sfi_is_awaited(t->sfi, t->now_ns + 60 * NS_PER_MS)); /* the DFM has ended */
        t->sfi_live = ~UINT64_C(0) ^ 1u << c.index;
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 3);
        assert_false(sfi_is_awaited(t->sfi, t->now_ns));
}

SFI_TEST(no_event_waits_for_a_departed_ros, 0)
{
        sfi_gets_assign(t, 0);
        sfi_gets_assign(t, 1);
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_keep_alive(t, RUN_STARTING, 0, 1); /* shows only the nodes that joined so far */
        assert_sfi_writes(t, "");
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        assert_sfi_writes(t, "e0 partial");
        sfi_gets_assign(t, 2);
        sfi_gets_fragment(t, 1, 2); /* sent before it left */
        assert_sfi_writes(t, "");
        sfi_gets_fragment(t, 0, 2);
        assert_sfi_writes(t, "e2 complete");
        sfi_gets_assign(t, 3);
        sfi_gets_fragment(t, 0, 3);
        assert_sfi_writes(t, "e3 partial");
        /* It returns: the other event waits for it again. */
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        sfi_gets_fragment(t, 0, 1);
        assert_sfi_writes(t, "");
        sfi_gets_fragment(t, 1, 1);
        assert_sfi_writes(t, "e1 complete");
}

/* Nor for one that has not yet joined the restarted DFM. */
SFI_TEST(a_restarted_dfm_reports_no_node_as_gone, 0)
{
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        sfi_gets_assign(t, 0);
        sfi_gets_fragment(t, 0, 0);
        t->dfm = TRACE_DFM + 1;
        t->keep_alive_next = 0;
        sfi_gets_keep_alive(t, RUN_STARTING, 0, 1);
        t->now_ns += 100 * NS_PER_MS;
        sfi_says(t);
        sfi_gets_welcome(t, TRACE_DFM + 1, WELCOME_OK);
        sfi_gets_keep_alive(t, RUN_STARTING, 0, 1);
        assert_sfi_writes(t, "");
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 1);
        assert_sfi_writes(t, "e0 partial");
}

/* It was suspended, and another SFI built the event: the account of this one has no loss. */
SFI_TEST(an_event_that_ended_elsewhere_is_not_lost, 0)
{
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        sfi_gets_assign(t, 0);
        sfi_gets_keep_alive(t, RUN_RUNNING, 1, 3);
        assert_sfi_writes(t, "e0 lost");
        assert_int_equal(t->voids, 1);
        assert_counts(sfi_event_counts(t->sfi), lost, 0, fragments_lost, 0);
        assert_int_equal(sfi_open_events(t->sfi), 0);
}

SFI_TEST(a_restarted_dfm_forgets_a_stop, 0)
{
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        sfi_gets_keep_alive(t, RUN_DRAINING, 0, 3);
        assert_int_equal(sfi_run_state(t->sfi), RUN_DRAINING);
        t->dfm = TRACE_DFM + 1;
        t->keep_alive_next = 0;
        sfi_gets_keep_alive(t, RUN_STARTING, 0, 3);
        t->now_ns += 100 * NS_PER_MS;
        sfi_says(t);
        sfi_gets_welcome(t, TRACE_DFM + 1, WELCOME_OK);
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        assert_int_equal(sfi_run_state(t->sfi), RUN_RUNNING);
}

SFI_TEST(an_overtaken_keep_alive_is_ignored, 0)
{
        sfi_gets_assign(t, 0);
        sfi_gets_fragment(t, 0, 0);
        assert_int_equal(sfi_run_state(t->sfi), RUN_STARTING);
        t->keep_alive_next = 5;
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        t->keep_alive_next = 4;
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 1);
        assert_int_equal(sfi_run_state(t->sfi), RUN_RUNNING);
        assert_sfi_writes(t, "");
        assert_int_equal(sfi_member(t->sfi)->received_ns, t->now_ns);
}

SFI_TEST(the_end_of_the_run_closes_all_events, 0)
{
        sfi_gets_assign(t, 0);
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_fragment(t, 0, 1);
        assert_false(sfi_is_drained(t->sfi));
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 3);
        assert_false(sfi_is_drained(t->sfi));
        assert_sfi_writes(t, "e0 lost");
        assert_true(sfi_is_drained(t->sfi));
}

/* The DFM may have given up this SFI without knowing what it built. */
SFI_TEST(events_that_the_dfm_does_not_acknowledge_are_counted, 0)
{
        sfi_gets_assigns(t, 0, 3);
        sfi_gets_whole(t, 0);
        sfi_gets_whole(t, 1);
        sfi_gets_entry(t, MESSAGE_BUILD, 2, 0, 0, 0); /* it goes to another SFI */
        assert_sfi_writes(t, "e0 complete | e1 complete | e2 lost");
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 3);
        assert_true(sfi_is_drained(t->sfi));
        assert_int_equal(sfi_unacknowledged(t->sfi), 2);
        sfi_says(t);
        sfi_gets_ack(t, 1);
        assert_int_equal(sfi_unacknowledged(t->sfi), 1);
        sfi_gets_ack(t, 2);
        assert_int_equal(sfi_unacknowledged(t->sfi), 0);
}

SFI_TEST(totals_are_complete_when_every_living_ros_reported, 0)
{
        assert_true(sfi_has_totals(t->sfi)); /* nothing arrived from any ROS */
        sfi_count_datagram(t->sfi, 0, 0);
        sfi_count_datagram(t->sfi, 1, 0);
        t->message.totals.datagrams = 1;
        to_sfi(t, ROLE_ROS, 0, MESSAGE_TOTALS, 0); /* while the run continues, they are not final */
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 3);
        assert_false(sfi_has_totals(t->sfi));
        t->message.totals.datagrams = 1;
        to_sfi(t, ROLE_ROS, 1, MESSAGE_TOTALS, 0);
        assert_false(sfi_has_totals(t->sfi));
        to_sfi(t, ROLE_ROS, 0, MESSAGE_TOTALS, 0);
        assert_true(sfi_has_totals(t->sfi));
        sfi_driver_fini(t);

        sfi_driver_init(t, &c);
        sfi_count_datagram(t->sfi, 0, 0);
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 3);
        assert_false(sfi_has_totals(t->sfi));
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 2); /* it left and reports nothing more */
        assert_true(sfi_has_totals(t->sfi));
}

/* Control and data have different sockets, and data may wait in queues. */
SFI_TEST(totals_that_overtake_datagrams_wait_for_them, 0)
{
        sfi_count_datagram(t->sfi, 0, 0);
        sfi_gets_keep_alive(t, RUN_ENDED, 0, 3);
        t->message.totals.datagrams = 3;
        to_sfi(t, ROLE_ROS, 0, MESSAGE_TOTALS, 0);
        assert_false(sfi_has_totals(t->sfi));
        sfi_count_datagram(t->sfi, 0, 1);
        assert_false(sfi_has_totals(t->sfi));
        sfi_count_datagram(t->sfi, 0, 2);
        assert_true(sfi_has_totals(t->sfi));
        assert_int_equal(sfi_counts(t->sfi).datagrams_lost, 0);
}

SFI_TEST(malformed_messages_are_refused, 0)
{
        struct sfi_config wrong[] = {c, c, c, c, c, c, c};
        struct sfi *s = NULL;

        t->message.n = 0;
        assert_false(to_sfi(t, ROLE_ROS, 0, MESSAGE_ASSIGN, 0));
        assert_false(to_sfi(t, ROLE_SFI, 0, MESSAGE_KEEP_ALIVE, 0));
        assert_false(to_sfi(t, ROLE_ROS, 0, MESSAGE_UPDATE_ACK, 0));
        assert_false(to_sfi(t, ROLE_SFI, 0, MESSAGE_REQUEST, 0));
        assert_false(to_sfi(t, ROLE_DFM, 0, MESSAGE_CLEAR, 0)); /* for the ROSs alone */

        wrong[0].n_ros = 0;
        wrong[1].index = EVB_SFI_MAX;
        wrong[2].slots = 3;
        wrong[3].credits = c.slots + 1;
        wrong[4].timeout_ns = 0;
        wrong[5].buffer_bytes = EVB_FRAGMENT_MAX_BYTES - 1;
        wrong[6].message_bytes = 32 + 8 + 32 * MESSAGE_ENTRY_BYTES_MAX - 1;
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_true(sfi_new(&s, &wrong[i], 0) < 0);
        assert_null(s);
        assert_null(sfi_free(NULL));
}

/* Lost events take four bytes each, of which a small Update has no room for all. */
SFI_TEST(an_update_holds_as_many_events_as_fit, 0, c.slots = 512, c.credits = 256, c.retries_max = 0,
         c.message_bytes = 32 + 8 + 32 * MESSAGE_ENTRY_BYTES_MAX)
{
        uint8_t bytes[1472];
        uint32_t next = 0, messages = 0;

        sfi_gets_assigns(t, 0, 256);
        t->now_ns += c.timeout_ns;
        sfi_says(t);
        while (*sfi_writes_with(t, false))
                ;
        while (sfi_makes(t)) {
                if (t->message.header.type != MESSAGE_UPDATE || t->message.n == 0)
                        continue;
                messages++;
                assert_int_equal(t->message.update.first, next);
                for (size_t k = 0; k < t->message.n; k++)
                        assert_int_equal(t->message.update.entries[k].event, next++);
                assert_in_range(message_encode(&t->message, bytes, c.message_bytes), 1, c.message_bytes);
        }
        assert_int_equal(next, 256);
        assert_int_equal(messages, 2);
}
