/* What the SFI requests again when a connection to a ROS opens. Retries are far away. */
#include "sfi_driver.h"

static struct sfi_config over_tcp(bool pull)
{
        struct sfi_config c = sfi_standard();

        c.pull = pull;
        c.reliable = true;
        c.retries_max = 0;
        c.retry_after_ns = 0;
        return c;
}

SFI_TEST(first_requests_are_made_when_the_connection_opens, over_tcp(true))
{
        c.outstanding = 2;
        sfi_driver_start(&t, &c, 4);
        assert_requests(&t, 0, "all: Request e0 e1");
        sfi_note_connected(t.sfi, t.now_ns, 1);
        assert_true(sfi_deadline_ns(t.sfi) <= t.now_ns);
        assert_requests(&t, 0, "ros1: Request e0 e1");
        assert_true(sfi_deadline_ns(t.sfi) > t.now_ns);
        sfi_gets_fragment(&t, 1, 0);
        sfi_gets_fragment(&t, 1, 1);
        sfi_note_connected(t.sfi, t.now_ns, 0);
        assert_requests(&t, NS_PER_MS, "ros0: Request e0 e1");
        sfi_gets_fragment(&t, 0, 0);
        assert_requests(&t, 0, "all: Request e2");
        assert_int_equal(sfi_counts(t.sfi)->retried, 0);
        assert_sfi_writes(&t, "e0 complete");
        sfi_driver_fini(&t);
}

SFI_TEST(nothing_is_repeated_if_nothing_was_requested, over_tcp(true))
{
        sfi_driver_start(&t, &c, 0);
        sfi_note_connected(t.sfi, t.now_ns, 0);
        sfi_note_connected(t.sfi, t.now_ns, 7); /* does not exist */
        assert_requests(&t, 0, "");
        sfi_gets_assign(&t, 0);
        sfi_note_connected(t.sfi, t.now_ns, 0);
        assert_requests(&t, 0, "all: Request e0");
        sfi_driver_fini(&t);
}

SFI_TEST(a_later_connection_brings_what_is_missing, over_tcp(true))
{
        sfi_driver_start(&t, &c, 3);
        sfi_note_connected(t.sfi, t.now_ns, 0);
        sfi_note_connected(t.sfi, t.now_ns, 1);
        assert_requests(&t, 0, "all: Request e0 e1 e2");
        sfi_gets_fragment(&t, 0, 0);
        sfi_gets_chunk(&t, chunk_of(0, 1, 0, 1024, 4000));
        sfi_note_connected(t.sfi, t.now_ns, 0);
        assert_requests(&t, 0, "ros0: Request e1[1024,-1) again 1 e2 again 1");
        assert_int_equal(sfi_counts(t.sfi)->retried, 2);
        sfi_driver_fini(&t);
}

SFI_TEST(memory_that_gives_way_keeps_requests, over_tcp(true))
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES;

        c.buffer_bytes = big;
        sfi_driver_start(&t, &c, 2);
        assert_requests(&t, 0, "all: Request e0 e1");
        assert_int_equal(sfi_gets_chunk(&t, chunk_of(1, 1, 0, big, big)), SFI_STORE);
        sfi_note_connected(t.sfi, t.now_ns, 0);
        assert_int_equal(sfi_gets_chunk(&t, chunk_of(1, 0, 0, big, big)), SFI_STORE);
        assert_int_equal(sfi_counts(t.sfi)->no_room, 1);
        assert_requests(&t, 0, "ros0: Request e0 e1");
        sfi_driver_fini(&t);
}

SFI_TEST(in_push_only_a_later_connection_brings_requests, over_tcp(false))
{
        sfi_driver_start(&t, &c, 2);
        sfi_note_connected(t.sfi, t.now_ns, 1);
        assert_requests(&t, 0, "");
        sfi_gets_fragment(&t, 1, 0);
        sfi_note_connected(t.sfi, t.now_ns, 1);
        assert_requests(&t, 0, "ros1: Request e1 again 1");
        sfi_driver_fini(&t);
}

/* All events are requested once, though they take several messages, and some end meanwhile. */
SFI_TEST(requests_of_many_events_take_several_messages, over_tcp(true))
{
        enum { EVENTS = 1000 };
        uint8_t requested[EVENTS] = {};
        uint32_t messages = 0, complete = 0;
        uint64_t next;
        struct message_to to;

        c.slots = c.credits = EVENTS;
        t = (struct sfi_driver){.config = c, .now_ns = TRACE_BEGIN_NS};
        assert_int_equal(sfi_new(&t.sfi, &c, t.now_ns), 0);
        sfi_gets_welcome(&t, TRACE_DFM, WELCOME_OK);
        for (uint64_t event = 0; event < EVENTS; event++)
                sfi_gets_assign(&t, event);
        requests_after(&t, 0);
        sfi_note_connected(t.sfi, t.now_ns, 0);
        while (sfi_step(t.sfi, t.now_ns, &to, &t.message)) {
                if (t.message.header.type != MESSAGE_REQUEST)
                        continue;
                messages++;
                assert_int_equal(to.index, 0);
                for (size_t k = 0; k < t.message.n; k++)
                        requested[t.message.request.entries[k].event]++;
                next = t.message.request.entries[t.message.n - 1].event + 1;
                if (next == EVENTS)
                        continue;
                sfi_gets_fragment(&t, 0, next); /* so it needs no request to this ROS any more */
                requested[next]++;
                complete++;
        }
        assert_in_range(messages, 4, EVENTS / 4);
        assert_int_equal(complete, messages - 1);
        for (int event = 0; event < EVENTS; event++)
                assert_int_equal(requested[event], 1);
        assert_int_equal(sfi_open_events(t.sfi), EVENTS);
        sfi_free(t.sfi);
}
