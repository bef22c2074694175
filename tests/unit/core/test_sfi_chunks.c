/* The SFI's data path: chunks out of order, repeated, overlapping, contradictory, late, or without room. */
#include "sfi_driver.h"

SFI_TEST(chunks_arrive_in_any_order, 1, c.n_ros = 1)
{
        static const uint32_t offsets[] = {64, 0, 96, 32};
        uint64_t base = 0;

        for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
                struct sfi_chunk p = chunk_of(0, 0, offsets[i], MIN(32u, 100 - offsets[i]), 100);

                assert_sfi_writes(t, "");
                sfi_reserve(t->sfi, t->now_ns, &p, 1);
                assert_int_equal(p.verdict, SFI_STORE);
                base = i == 0 ? p.at - 64 : base;
                assert_int_equal(p.at, base + offsets[i]);
                sfi_commit(t->sfi, t->now_ns, &p, 1);
        }
        assert_sfi_writes(t, "e0 complete");
        assert_int_equal(sfi_counts(t->sfi).payload_bytes, 100);
}

SFI_TEST(a_repeated_chunk_does_not_complete_a_fragment, 2, c.n_ros = 1)
{
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, 64));
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, 64));
        assert_sfi_writes(t, "");
        assert_int_equal(sfi_counts(t->sfi).duplicate, 1);
        sfi_gets_chunk(t, chunk_of(0, 0, 32, 32, 64));
        assert_sfi_writes(t, "e0 complete");
}

SFI_TEST(a_repeated_fragment_is_counted_once, 1)
{
        assert_int_equal(sfi_gets_fragment(t, 0, 0), SFI_STORE);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 0, 64, 100)), SFI_DUPLICATE);
        assert_int_equal(sfi_counts(t->sfi).duplicate, 0);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 64, 36, 100)), SFI_DUPLICATE);
        assert_int_equal(sfi_counts(t->sfi).duplicate, 1);
}

SFI_TEST(chunks_may_overlap, 1, c.n_ros = 1)
{
        sfi_gets_chunk(t, chunk_of(0, 0, 32, 6400, 8000));
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 3200, 8000));
        assert_sfi_writes(t, "");
        sfi_gets_chunk(t, chunk_of(0, 0, 6400, 1600, 8000));
        assert_sfi_writes(t, "e0 complete");
        assert_int_equal(sfi_counts(t->sfi).duplicate, 0);
}

SFI_TEST(a_chunk_twice_in_one_batch_counts_once, 1)
{
        struct sfi_chunk p[] = {chunk_of(0, 0, 0, 100, 100), chunk_of(0, 0, 0, 100, 100),
                                chunk_of(1, 0, 64, 36, 100), chunk_of(1, 0, 0, 64, 100),
                                chunk_of(1, 0, 0, 64, 100)};

        sfi_reserve(t->sfi, t->now_ns, p, ARRAY_SIZE(p));
        sfi_commit(t->sfi, t->now_ns, p, ARRAY_SIZE(p));
        assert_sfi_writes(t, "e0 complete");
        assert_int_equal(sfi_counts(t->sfi).fragments_received, 2);
}

SFI_TEST(a_contradictory_chunk_is_malformed, 1)
{
        struct sfi_chunk p;

        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, 100));
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 32, 68, 101)), SFI_MALFORMED);
        p = chunk_of(0, 0, 32, 68, 100);
        p.chunk.form = FORM_ROS3;
        assert_int_equal(sfi_gets_chunk(t, p), SFI_MALFORMED);
        p = chunk_of(0, 0, 32, 68, 100);
        p.chunk.status = FRAGMENT_TRUNCATED;
        assert_int_equal(sfi_gets_chunk(t, p), SFI_MALFORMED);
        assert_int_equal(sfi_gets_fragment(t, 2, 0), SFI_MALFORMED); /* there is no such ROS */
        assert_int_equal(sfi_counts(t->sfi).malformed, 4);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 32, 68, 100)), SFI_STORE);
        sfi_gets_fragment(t, 1, 0);
        assert_sfi_writes(t, "e0 complete");
}

TEST(the_fragment_status_decides_the_end_of_the_event)
{
        static const struct {
                uint8_t status;
                const char *end;
        } cases[] = {
                {FRAGMENT_OK, "e0 complete"},        {FRAGMENT_NONE, "e0 complete"},
                {FRAGMENT_TRUNCATED, "e0 complete"}, {FRAGMENT_LOST, "e0 partial"},
                {FRAGMENT_DISCARDED, "e0 partial"},  {FRAGMENT_PENDING, "e0 partial"},
        };
        struct sfi_config c = sfi_standard();

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct sfi_chunk p = chunk_of(1, 0, 0, 0, 0);
                struct sfi_driver t = {};

                p.chunk.status = cases[i].status;
                sfi_driver_start(&t, &c, 1);
                sfi_gets_fragment(&t, 0, 0);
                assert_int_equal(sfi_gets_chunk(&t, p), SFI_STORE);
                assert_sfi_writes(&t, cases[i].end);
                sfi_driver_fini(&t);
        }
}

SFI_TEST_EACH(a_fragment_after_the_end_is_late, pull, 2, 1, c.pull = pull)
{
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_fragment(t, 1, 0);
        assert_sfi_writes(t, "e0 complete");
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 0, 64, 100)), SFI_LATE);
        assert_int_equal(sfi_counts(t->sfi).late, 0);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 64, 36, 100)), SFI_LATE);
        assert_int_equal(sfi_counts(t->sfi).late, 1);
        assert_int_equal(sfi_open_events(t->sfi), 0);
}

SFI_TEST(a_fragment_below_the_oldest_event_is_late, 0)
{
        sfi_gets_keep_alive(t, RUN_RUNNING, 5, 3);
        assert_int_equal(sfi_gets_fragment(t, 0, 4), SFI_LATE);
        assert_int_equal(sfi_gets_fragment(t, 0, 5), SFI_STORE);
}

SFI_TEST(in_pull_an_unassigned_fragment_is_late, 1, c.pull = true)
{
        assert_int_equal(sfi_gets_fragment(t, 0, 1), SFI_LATE);
        assert_int_equal(sfi_open_events(t->sfi), 1);
}

SFI_TEST(without_a_free_slot_there_is_no_room, 0)
{
        /* Unassigned events have half of so few slots. */
        for (uint64_t event = 0; event < c.slots / 2; event++)
                assert_int_equal(sfi_gets_fragment(t, 0, event), SFI_STORE);
        assert_int_equal(sfi_gets_fragment(t, 0, c.slots / 2), SFI_NO_ROOM);
        assert_int_equal(sfi_counts(t->sfi).no_room, 1);
}

SFI_TEST(when_memory_is_short_the_youngest_event_gives_way, 4)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two fill the buffer */

        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 3, 0, 32, big)), SFI_STORE);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 1, 0, 32, big)), SFI_STORE);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 0, big, big)),
                         SFI_STORE); /* 3 gives up its memory */
        assert_int_equal(sfi_counts(t->sfi).no_room, 1);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 2, 0, 32, big)),
                         SFI_NO_ROOM); /* no younger event exists */
        assert_int_equal(sfi_counts(t->sfi).no_room, 2);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(1, 0, 0, big, big)),
                         SFI_STORE); /* 1 gives up its memory */
        assert_sfi_writes(t, "e0 complete");
        assert_int_equal(sfi_buffer_used_bytes(t->sfi), 0);
        /* That event starts afresh: its first chunk must arrive again. */
        sfi_gets_chunk(t, chunk_of(0, 1, 32, big - 32, big));
        assert_int_equal(sfi_gets_chunk(t, chunk_of(1, 1, 0, big, big)), SFI_STORE);
        assert_sfi_writes(t, "");
        sfi_gets_chunk(t, chunk_of(0, 1, 0, 32, big));
        assert_sfi_writes(t, "e1 complete");
}

/* An assignment may overtake an earlier one. */
SFI_TEST(events_give_way_in_the_order_of_assignment, 0)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two fill the buffer */

        sfi_gets_assign(t, 1);
        sfi_gets_assign(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, big));
        sfi_gets_chunk(t, chunk_of(0, 1, 0, 32, big));
        assert_int_equal(sfi_gets_chunk(t, chunk_of(1, 1, 0, 32, big)), SFI_STORE);
        assert_int_equal(sfi_counts(t->sfi).no_room, 1);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, big)), SFI_NO_ROOM);
}

SFI_TEST(as_many_events_give_way_as_needed, 4)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES;

        sfi_gets_chunk(t, chunk_of(0, 2, 0, 32, big / 2));
        sfi_gets_chunk(t, chunk_of(0, 3, 0, 32, big / 2));
        sfi_gets_chunk(t, chunk_of(0, 1, 0, 32, big));
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, big)), SFI_STORE);
        assert_int_equal(sfi_counts(t->sfi).no_room, 2);
}

SFI_TEST(a_chunk_whose_memory_was_reassigned_is_not_committed, 2)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES;
        struct sfi_chunk p[] = {chunk_of(0, 1, 0, big, big), chunk_of(1, 1, 0, big, big),
                                chunk_of(0, 0, 0, big, big)};

        sfi_reserve(t->sfi, t->now_ns, p, ARRAY_SIZE(p));
        for (size_t i = 0; i < ARRAY_SIZE(p); i++)
                assert_int_equal(p[i].verdict, SFI_STORE);
        assert_false(sfi_is_reserved(t->sfi, &p[0]));
        assert_false(sfi_is_reserved(t->sfi, &p[1]));
        assert_true(sfi_is_reserved(t->sfi, &p[2]));
        sfi_commit(t->sfi, t->now_ns, p, ARRAY_SIZE(p));
        assert_sfi_writes(t, "");
        sfi_gets_fragment(t, 1, 0);
        assert_sfi_writes(t, "e0 complete");
}

SFI_TEST(a_reservation_does_not_pass_to_another_event, 0, c.n_ros = 1)
{
        struct sfi_chunk old = chunk_of(0, 0, 0, 100, 100), new = chunk_of(0, 1, 0, 100, 100);

        sfi_reserve(t->sfi, t->now_ns, &old, 1);
        sfi_gets_entry(t, MESSAGE_ASSIGN, 0, 0, 0, 0); /* it belongs to another SFI */
        sfi_gets_assign(t, 1);
        sfi_reserve(t->sfi, t->now_ns, &new, 1);
        assert_true(old.slot == new.slot &&old.at == new.at);
        assert_false(sfi_is_reserved(t->sfi, &old));
        sfi_commit(t->sfi, t->now_ns, &old, 1);
        assert_sfi_writes(t, "");
        sfi_commit(t->sfi, t->now_ns, &new, 1);
        assert_sfi_writes(t, "e1 complete");
}

SFI_TEST(recently_ended_events_are_remembered, 0, c.n_ros = 1)
{
        for (uint64_t event = 0; event < 100; event++) {
                sfi_gets_assign(t, event);
                sfi_gets_fragment(t, 0, event);
                sfi_writes_with(t, false);
                for (uint64_t k = 0; k < MIN(event + 1, UINT64_C(4) * c.slots); k++)
                        assert_int_equal(sfi_gets_fragment(t, 0, event - k), SFI_LATE);
        }
}

/* Over TCP, a connection can break between a chunk's header and its payload. */
SFI_TEST(a_reservation_without_payload_can_be_filled_in_chunks, 2, c.n_ros = 1)
{
        struct sfi_chunk p = chunk_of(0, 1, 0, 4096, 4096);

        /* A fragment in several chunks used the memory before. */
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 2048, 4096));
        sfi_gets_chunk(t, chunk_of(0, 0, 2048, 2048, 4096));
        assert_sfi_writes(t, "e0 complete");
        sfi_reserve(t->sfi, t->now_ns, &p, 1);
        assert_int_equal(p.verdict, SFI_STORE);
        sfi_gets_chunk(t, chunk_of(0, 1, 0, 2048, 4096));
        assert_sfi_writes(t, "");
        sfi_gets_chunk(t, chunk_of(0, 1, 2048, 2048, 4096));
        assert_sfi_writes(t, "e1 complete");
        assert_int_equal(sfi_counts(t->sfi).duplicate, 0);
}

SFI_TEST(datagrams_are_counted_by_sequence_number, 0)
{
        static const uint32_t numbers[] = {100, 101, 104,
                                           103, 105, 105}; /* 102 is lost, 103 late, 105 repeated */

        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                assert_int_equal(sfi_count_datagram(t->sfi, 0, numbers[i]), i != 3 && i != 5);
        assert_false(sfi_count_datagram(t->sfi, 9, 0)); /* from an unknown ROS */
        sfi_record_queued(t->sfi, t->now_ns, 9, 1);
        assert_int_equal(sfi_counts(t->sfi).datagrams_received, 7);
        assert_int_equal(sfi_counts(t->sfi).datagrams_lost, 1); /* the repeated one does not offset it */
        t->message.totals.datagrams = 109;                      /* 106 to 108 may still arrive */
        assert_true(to_sfi(t, ROLE_ROS, 0, MESSAGE_TOTALS, 0));
        assert_int_equal(sfi_counts(t->sfi).datagrams_lost, 1);
        sfi_count_datagram(t->sfi, 0, 107); /* overtook 106 */
        assert_int_equal(sfi_counts(t->sfi).datagrams_lost, 2);
        assert_int_equal(sfi_source_counts(t->sfi, 0).datagrams_lost, 2);
        sfi_expect_no_datagrams(t->sfi);
        assert_int_equal(sfi_counts(t->sfi).datagrams_lost, 3);
        assert_int_equal(sfi_source_counts(t->sfi, 0).datagrams_lost, 3);
        assert_false(to_sfi(t, ROLE_ROS, 2, MESSAGE_TOTALS, 0));
        assert_false(to_sfi(t, ROLE_DFM, 0, MESSAGE_TOTALS, 0));
}

/* A ROS that restarts before it has sent much must not hide losses, and neither may a single stray number. */
SFI_TEST(a_stray_datagram_number_does_not_spoil_the_count, 0)
{
        for (uint32_t number = 0; number < 10000; number++)
                sfi_count_datagram(t->sfi, 1, number + (number > 5000));
        sfi_count_datagram(t->sfi, 1, 1905000000);
        sfi_count_datagram(t->sfi, 1, 10001);
        assert_counts((struct sfi_counts[]){sfi_counts(t->sfi)}, datagrams_lost, 1, datagrams_suspect, 1);
        for (uint32_t number = 0; number < 9000; number++)
                sfi_count_datagram(t->sfi, 1, number + (number > 5000));
        assert_int_equal(sfi_counts(t->sfi).datagrams_lost, 2);
        t->message.totals.datagrams = 1905000000;
        assert_true(to_sfi(t, ROLE_ROS, 1, MESSAGE_TOTALS, 0));
        assert_int_equal(sfi_counts(t->sfi).datagrams_lost, 2);
}

/* A complete fragment of 100 bytes with the L1 ID of another trigger. */
static struct sfi_chunk of_another_trigger(uint16_t ros, uint64_t event)
{
        struct sfi_chunk p = chunk_of(ros, event, 0, 100, 100);

        p.chunk.l1_id = (uint32_t)event + 1000;
        return p;
}

static bool built_with_mismatch(struct sfi_driver *t)
{
        struct sfi_built built;
        uint32_t slot;

        assert_int_equal(sfi_pop_built(t->sfi, &slot, 1), 1);
        sfi_built_event(t->sfi, slot, &built);
        sfi_written(t->sfi, t->now_ns, slot, false);
        assert_true(built.end == EVENT_PARTIAL || !built.l1_mismatch);
        return built.l1_mismatch;
}

SFI_TEST(a_fragment_of_another_trigger_completes_nothing, 2)
{
        for (uint64_t event = 0; event < 2; event++) {
                assert_int_equal(sfi_gets_fragment(t, 0, event), SFI_STORE);
                assert_int_equal(sfi_gets_chunk(t, of_another_trigger(1, event)), SFI_MISMATCH);
                assert_sfi_writes(t, "");
        }
        assert_int_equal(sfi_counts(t->sfi).mismatched, 2);
        /* The right one does, if it comes. */
        assert_int_equal(sfi_gets_fragment(t, 1, 1), SFI_STORE);
        assert_false(built_with_mismatch(t));
        t->now_ns += c.timeout_ns;
        sfi_says(t);
        assert_true(built_with_mismatch(t));
}

/* In push, data may come before the assignment, which alone carries the true L1 ID. */
SFI_TEST(the_assignment_decides_on_the_l1_id, 0)
{
        assert_int_equal(sfi_gets_chunk(t, of_another_trigger(0, 0)), SFI_STORE);
        assert_int_equal(sfi_gets_fragment(t, 1, 0), SFI_MISMATCH); /* not known to be the right one yet */
        assert_int_equal(sfi_gets_chunk(t, of_another_trigger(1, 0)), SFI_STORE);
        sfi_gets_assign(t, 0);
        assert_sfi_writes(t, "");
        assert_int_equal(sfi_counts(t->sfi).mismatched, 3);
        assert_int_equal(sfi_buffer_used_bytes(t->sfi), 0);
        assert_int_equal(sfi_gets_fragment(t, 0, 0), SFI_STORE);
        assert_sfi_writes(t, "");
        assert_int_equal(sfi_gets_fragment(t, 1, 0), SFI_STORE);
        assert_sfi_writes(t, "e0 complete");
}
