/* Fragments of events that are not assigned to this SFI, by mistake or by malice. They use a small share for
 * a short time, and assigned events do not suffer. */
#include "sfi_driver.h"

#define AGE_NS (100 * NS_PER_MS)

static struct sfi_config flooded(void)
{
        struct sfi_config c = sfi_standard();

        c.slots = 256; /* of which 32 for unassigned events */
        c.credits = 192;
        return c;
}

SFI_TEST_AS(a_flood_is_limited_to_its_share, flooded(), sfi_driver_init(t, &c))
{
        uint64_t unknown = 100000;

        for (uint64_t event = 0; event < 500; event++) {
                for (int i = 0; i < 20; i++)
                        sfi_gets_fragment(t, 0, unknown++);
                sfi_gets_assign(t, event);
                assert_in_range(sfi_open_events(t->sfi), 1, 33);
                sfi_gets_whole(t, event);
                assert_string_equal(strstr(sfi_writes_with(t, false), " complete"), " complete");
                sfi_gets_ack(t, (uint32_t)event + 1);
                t->now_ns += NS_PER_MS;
        }
        assert_int_equal(sfi_counts(t->sfi).complete, 500);
        assert_true(sfi_counts(t->sfi).no_room > 500 * 20 - 32 * 6);
}

SFI_TEST_AS(the_oldest_unassigned_event_is_dropped_after_its_time, flooded(), sfi_driver_init(t, &c))
{
        for (uint64_t event = 1000; event < 1032; event++)
                assert_int_equal(sfi_gets_fragment(t, 0, event), SFI_STORE);
        t->now_ns += AGE_NS - 1;
        assert_int_equal(sfi_gets_fragment(t, 0, 0), SFI_NO_ROOM);
        assert_int_equal(sfi_gets_fragment(t, 1, 1000), SFI_STORE); /* it has its slot */
        t->now_ns += 1;
        for (uint64_t event = 0; event < 32; event++)
                assert_int_equal(sfi_gets_fragment(t, 0, event), SFI_STORE);
        assert_int_equal(sfi_gets_fragment(t, 0, 32), SFI_NO_ROOM);
        assert_int_equal(sfi_open_events(t->sfi), 32);
        assert_int_equal(sfi_counts(t->sfi).late, 33);
        /* Events that become assigned leave the share. */
        sfi_gets_assigns(t, 0, 4);
        for (uint64_t event = 0; event < 4; event++)
                assert_int_equal(sfi_gets_fragment(t, 1, event), SFI_STORE);
        assert_sfi_writes(t, "e0 complete | e1 complete | e2 complete | e3 complete");
        assert_int_equal(sfi_gets_fragment(t, 0, 32), SFI_STORE);
}

/* Of 8 slots. */
SFI_TEST(an_assignment_finds_a_slot_during_a_flood, 0)
{
        sfi_gets_fragments(t, 1000, 1010);
        assert_int_equal(sfi_open_events(t->sfi), 4);
        sfi_gets_assigns(t, 0, 8);
        assert_int_equal(sfi_counts(t->sfi).assigned, 8);
        assert_int_equal(sfi_open_events(t->sfi), 8);
        for (uint64_t event = 0; event < 8; event++)
                sfi_gets_whole(t, event);
        assert_int_equal(sfi_pop_built(t->sfi, (uint32_t[8]){}, 8), 8);
        assert_sfi_writes(t, "");
}

/* Whatever their numbers, they neither keep memory nor take it from assigned events. */
SFI_TEST(a_flood_returns_its_memory, 0)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two fill the buffer */

        for (uint64_t unknown = 0; unknown < 200; unknown += 199) {
                for (uint16_t ros = 0; ros < 2; ros++)
                        assert_int_equal(sfi_gets_chunk(t, chunk_of(ros, unknown, 0, big, big)), SFI_STORE);
                sfi_gets_assign(t, unknown + 100);
                assert_int_equal(sfi_gets_chunk(t, chunk_of(0, unknown + 100, 0, big, big)), SFI_STORE);
                assert_int_equal(sfi_gets_chunk(t, chunk_of(0, unknown + 50, 0, big, big)), SFI_STORE);
                assert_int_equal(sfi_gets_chunk(t, chunk_of(1, unknown + 100, 0, big, big)), SFI_STORE);
                assert_int_equal(sfi_gets_chunk(t, chunk_of(0, unknown + 51, 0, big, big)), SFI_NO_ROOM);
                assert_sfi_writes(t, unknown == 0 ? "e100 complete" : "e299 complete");
        }
}

SFI_TEST(an_event_far_beyond_all_others_is_refused, 0)
{
        sfi_gets_entry(t, MESSAGE_ASSIGN, 50, 0, 0, 0); /* from another SFI */
        assert_int_equal(sfi_gets_fragment(t, 0, 50 + EVB_EVENT_WINDOW + 1), SFI_MALFORMED);
        assert_int_equal(sfi_gets_fragment(t, 0, UINT64_MAX - 2), SFI_MALFORMED);
        assert_int_equal(sfi_open_events(t->sfi), 0);
        assert_int_equal(sfi_counts(t->sfi).implausible, 2);
        assert_int_equal(sfi_gets_fragment(t, 0, 50 + EVB_EVENT_WINDOW), SFI_STORE);
        sfi_gets_keep_alive(t, RUN_RUNNING, UINT64_C(1) << 40, 3);
        assert_int_equal(sfi_gets_fragment(t, 0, (UINT64_C(1) << 40) + EVB_EVENT_WINDOW - 1), SFI_STORE);
        assert_int_equal(sfi_counts(t->sfi).implausible, 2);
}
