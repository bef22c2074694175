/* The SFI and its assignments: out of order, repeated, void, for others, and beyond its capacity. */
#include "sfi_driver.h"
#include "core/sfi/sfi_internal.h"

SFI_TEST(an_acknowledgement_waits_for_finished_events, 0)
{
        sfi_gets_assign(t, 0);
        t->now_ns += NS_PER_MS;
        sfi_gets_assign(t, 1);
        assert_sfi_says_after(t, NS_PER_MS - 1, "");
        assert_sfi_says_after(t, 1, "dfm: Update granted 4 ack 2");
        assert_sfi_says_after(t, NS_PER_MS, "");
}

SFI_TEST(assignments_arrive_in_any_order_and_count_once, 0)
{
        sfi_gets_entry(t, MESSAGE_ASSIGN, 6, 1, 2, 0);
        sfi_gets_entry(t, MESSAGE_ASSIGN, 5, 1, 1, 0);
        sfi_gets_entry(t, MESSAGE_ASSIGN, 6, 1, 2, 0);
        assert_sfi_says_after(t, 2 * NS_PER_MS, "dfm: Update granted 4 ack 0");
        sfi_gets_entry(t, MESSAGE_ASSIGN, 4, 1, 0, 0);
        assert_sfi_says_after(t, 2 * NS_PER_MS, "dfm: Update granted 4 ack 3");
        assert_int_equal(sfi_counts(t->sfi).assigned, 3);
        assert_int_equal(sfi_open_events(t->sfi), 3);
}

SFI_TEST(a_repeated_assignment_is_acknowledged_again, 0)
{
        sfi_gets_assign(t, 0);
        assert_sfi_says_after(t, 2 * NS_PER_MS, "dfm: Update granted 4 ack 1");
        sfi_gets_entry(t, MESSAGE_ASSIGN, 0, 1, 0, 0); /* that Update was lost */
        assert_sfi_says_after(t, 2 * NS_PER_MS, "dfm: Update granted 4 ack 1");
        assert_int_equal(sfi_counts(t->sfi).assigned, 1);
}

SFI_TEST(an_assignment_for_another_incarnation_is_ignored, 0)
{
        t->config.member.incarnation = 2;
        sfi_gets_assign(t, 0);
        assert_int_equal(sfi_open_events(t->sfi), 0);
        t->config.member.incarnation = 3;
        sfi_gets_entry(t, MESSAGE_ASSIGN, 0, 0, 0, 0); /* nor an assignment of another SFI */
        assert_int_equal(sfi_open_events(t->sfi), 0);
        assert_int_equal(sfi_counts(t->sfi).assigned, 0);
}

SFI_TEST(in_push_fragments_may_precede_their_assignment, 0)
{
        sfi_gets_whole(t, 0);
        assert_sfi_writes(t, "");
        assert_int_equal(sfi_open_events(t->sfi), 1);
        sfi_gets_assign(t, 0);
        assert_sfi_writes(t, "e0 complete");
}

SFI_TEST(an_assignment_restarts_the_event_timer, 0, c.retries_max = 0)
{
        sfi_gets_fragment(t, 0, 0);
        t->now_ns += 1500 * NS_PER_MS;
        sfi_gets_assign(t, 0);
        t->now_ns += c.timeout_ns - NS_PER_MS;
        sfi_says(t);
        assert_sfi_writes(t, "");
        t->now_ns += NS_PER_MS;
        sfi_says(t);
        assert_sfi_writes(t, "e0 partial");
}

SFI_TEST(an_assignment_beyond_the_window_is_ignored, 0)
{
        const uint32_t window = 16384; /* beyond the DFM's window */

        sfi_gets_entry(t, MESSAGE_ASSIGN, 0, 1, window, 0);
        assert_int_equal(sfi_open_events(t->sfi), 0);
        sfi_gets_entry(t, MESSAGE_ASSIGN, 0, 1, window - 1, 0);
        assert_int_equal(sfi_open_events(t->sfi), 1);
}

SFI_TEST(fragments_without_an_assignment_end_as_late, 0)
{
        sfi_gets_whole(t, 0);
        assert_sfi_says_after(t, c.timeout_ns, "");
        assert_sfi_writes(t, "");
        assert_int_equal(sfi_open_events(t->sfi), 0);
        assert_int_equal(sfi_counts(t->sfi).late, 2);
}

SFI_TEST(a_void_assignment_only_returns_its_credit, 0)
{
        sfi_gets_entry(t, MESSAGE_ASSIGN, 3, 1, t->assign_next++, ASSIGN_VOID);
        t->voids++;
        assert_int_equal(sfi_open_events(t->sfi), 0);
        assert_sfi_writes(t, "");
        assert_sfi_says(t, "dfm: Update granted 5 ack 1 #0:e3 lost -2");
}

SFI_TEST(an_event_assigned_elsewhere_is_given_up, 0)
{
        sfi_gets_assign(t, 0);
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_fragment(t, 0, 1); /* of an event that is not assigned here */
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 0, 9, 0);
        sfi_gets_entry(t, MESSAGE_ASSIGN, 1, 0, 10, 0);
        assert_sfi_writes(t, "e0 lost");
        assert_sfi_says(t, "dfm: Update granted 5 ack 1 #0:e0 lost -2");
        assert_int_equal(sfi_open_events(t->sfi), 0);
}

SFI_TEST(an_event_assigned_twice_is_built_once, 0)
{
        sfi_gets_assign(t, 0);
        sfi_gets_fragment(t, 0, 0);
        /* The DFM timed out and found no other SFI. */
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 1, t->assign_next++, 0);
        assert_sfi_says_after(t, 2 * NS_PER_MS, "dfm: Update granted 4 ack 2");
        sfi_gets_fragment(t, 1, 0);
        assert_sfi_writes(t, "e0 complete");
        /* Both assignments get an end, and the actual one is reported first. */
        t->voids++;
        assert_sfi_says(t, "dfm: Update granted 6 ack 2 #0:e0 complete 200 B #1:e0 lost -2");
}

SFI_TEST_EACH(an_event_reassigned_during_writing_is_built_once, pull, 2, 0, c.pull = pull)
{
        uint32_t slot;

        sfi_gets_assign(t, 0);
        sfi_gets_whole(t, 0);
        assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 1);
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 1, t->assign_next++, 0);
        t->voids++;
        assert_int_equal(sfi_open_events(t->sfi), 1);
        sfi_written(t->sfi, t->now_ns, slot, false);
        assert_sfi_says(t, "dfm: Update granted 6 ack 2 #0:e0 complete 200 B #1:e0 lost -2");
}

/* The DFM takes an end for that of the returned event only if all assignments up to it are acknowledged. */
SFI_TEST(a_returned_event_waits_for_earlier_assignments, 0, c.pull = true)
{
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 1, 1, 0);
        assert_int_equal(sfi_open_events(t->sfi), 0);
        assert_sfi_says_after(t, c.timeout_ns, ""); /* so it does not end, either */
        assert_sfi_writes(t, "");
        sfi_gets_assign(t, 7);
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 1, 1, 0); /* the DFM repeats what is not acknowledged */
        assert_int_equal(sfi_open_events(t->sfi), 2);
        assert_int_equal(sfi_counts(t->sfi).assigned, 2);
}

/* The event went to another SFI, or nothing arrived in time. Then it returns here, whatever was reported of
 * it before. */
SFI_TEST_EACH(a_returned_event_is_built, when, 6, 0, c.pull = when % 2)
{
        uint32_t slot;

        sfi_gets_assign(t, 0);
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 0, 9, 0);
        if (when / 2 > 0)
                assert_sfi_writes(t, "e0 lost");
        if (when / 2 > 1)
                assert_sfi_says(t, "dfm: Update granted 5 ack 1 #0:e0 lost -2");
        assert_int_equal(sfi_gets_fragment(t, 1, 0), SFI_LATE);
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 1, t->assign_next++, 0);
        if (when / 2 == 0) {
                assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 1);
                sfi_written(t->sfi, t->now_ns, slot, false);
                t->voids++;
        }
        if (c.pull)
                requests_after(t, 0);
        sfi_gets_whole(t, 0);
        assert_sfi_writes(t, "e0 complete again");
        t->now_ns += 20 * NS_PER_MS;
        if (!c.pull || when / 2 > 1)
                assert_sfi_says(t, "dfm: Update granted 6 ack 2 #0:e18446744073709551614 lost -2 "
                                   "#1:e0 complete 200 B");
        sfi_driver_fini(t);
}

SFI_TEST(an_event_that_expired_empty_is_built_when_it_returns, 0)
{
        sfi_gets_assign(t, 0);
        t->now_ns += c.timeout_ns;
        requests_after(t, 0);
        assert_sfi_writes(t, "e0 lost");
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 1, t->assign_next++, 0);
        sfi_gets_whole(t, 0);
        assert_sfi_writes(t, "e0 complete again");
        /* A built event stays built. */
        t->voids++;
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 1, t->assign_next++, 0);
        assert_int_equal(sfi_open_events(t->sfi), 0);
}

SFI_TEST(an_assignment_without_a_slot_is_not_acknowledged, 0)
{
        sfi_gets_assigns(t, 10, 10 + c.slots);
        sfi_gets_entry(t, MESSAGE_ASSIGN, 0, 1, c.slots, 0);
        assert_int_equal(sfi_counts(t->sfi).assigned, c.slots);
        sfi_gets_whole(t, 12);
        assert_sfi_writes(t, "e12 complete");
        sfi_gets_entry(t, MESSAGE_ASSIGN, 0, 1, c.slots, 0);
        assert_int_equal(sfi_counts(t->sfi).assigned, c.slots + 1);
        assert_int_equal(sfi_open_events(t->sfi), c.slots);
}

/* The wire's sequence numbers wrap; credits and ends do not. */
TEST(credits_outlast_the_sequence_numbers)
{
        struct sfi_updates u = {
                .assign_next = UINT32_MAX - 1,
                .finished_total = UINT32_MAX - 4,
                .granted = UINT64_C(1) << 32 | 7,
        };

        for (uint32_t k = 0; k < 4; k++) {
                assert_false(sfi_updates_has_assignment(&u, UINT32_MAX - 1 + k));
                sfi_updates_record_assignment(&u, UINT32_MAX - 1 + k);
                assert_true(sfi_updates_has_assignment(&u, UINT32_MAX - 1 + k));
        }
        assert_int_equal(sfi_updates_open(&u), 7);
        assert_int_equal(sfi_updates_free_credits(&u), 5);
}
