/* What the SFI requests again when a connection to a ROS opens. Retries are far away. */
#include "sfi_driver.h"

#define TCP_TEST(name, pulls, events, ...)                                                                   \
        SFI_TEST(name, events, c.pull = pulls, c.reliable = true, c.retries_max = 0, c.retry_after_ns = 0,   \
                 ##__VA_ARGS__)

TCP_TEST(first_requests_are_made_when_the_connection_opens, true, 4, c.outstanding = 2)
{
        assert_requests(t, 0, "all: Request e0 e1");
        sfi_record_connected(t->sfi, t->now_ns, 1);
        assert_true(sfi_deadline_ns(t->sfi) <= t->now_ns);
        assert_requests(t, 0, "ros1: Request e0 e1");
        assert_true(sfi_deadline_ns(t->sfi) > t->now_ns);
        sfi_gets_fragment(t, 1, 0);
        sfi_gets_fragment(t, 1, 1);
        sfi_record_connected(t->sfi, t->now_ns, 0);
        assert_requests(t, NS_PER_MS, "ros0: Request e0 e1");
        sfi_gets_fragment(t, 0, 0);
        assert_requests(t, 0, "all: Request e2");
        assert_int_equal(sfi_counts(t->sfi).retried, 0);
        assert_sfi_writes(t, "e0 complete");
}

TCP_TEST(nothing_is_repeated_if_nothing_was_requested, true, 0)
{
        sfi_record_connected(t->sfi, t->now_ns, 0);
        sfi_record_connected(t->sfi, t->now_ns, 7); /* does not exist */
        assert_requests(t, 0, "");
        sfi_gets_assign(t, 0);
        sfi_record_connected(t->sfi, t->now_ns, 0);
        assert_requests(t, 0, "all: Request e0");
}

TCP_TEST(a_later_connection_brings_what_is_missing, true, 3)
{
        sfi_record_connected(t->sfi, t->now_ns, 0);
        sfi_record_connected(t->sfi, t->now_ns, 1);
        assert_requests(t, 0, "all: Request e0 e1 e2");
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_chunk(t, chunk_of(0, 1, 0, 1024, 4000));
        sfi_record_connected(t->sfi, t->now_ns, 0);
        assert_requests(t, 0, "ros0: Request e1[1024,-1) again 1 e2 again 1");
        assert_int_equal(sfi_counts(t->sfi).retried, 2);
}

TCP_TEST(memory_that_gives_way_keeps_requests, true, 2, c.buffer_bytes = EVB_FRAGMENT_MAX_BYTES)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES;

        assert_requests(t, 0, "all: Request e0 e1");
        assert_int_equal(sfi_gets_chunk(t, chunk_of(1, 1, 0, big, big)), SFI_STORE);
        sfi_record_connected(t->sfi, t->now_ns, 0);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(1, 0, 0, big, big)), SFI_STORE);
        assert_int_equal(sfi_counts(t->sfi).no_room, 1);
        assert_requests(t, 0, "ros0: Request e0 e1");
}

TCP_TEST(in_push_only_a_later_connection_brings_requests, false, 2)
{
        sfi_record_connected(t->sfi, t->now_ns, 1);
        assert_requests(t, 0, "");
        sfi_gets_fragment(t, 1, 0);
        sfi_record_connected(t->sfi, t->now_ns, 1);
        assert_requests(t, 0, "ros1: Request e1 again 1");
}

/* All events are requested once, although they need several messages, and some end in between. */
enum { EVENTS = 1000 };

SFI_TEST_AS(requests_of_many_events_take_several_messages, sfi_pulling(), start_with_backlog(t, &c, EVENTS),
            c.reliable = true, c.retries_max = 0, c.retry_after_ns = 0)
{
        uint8_t requested[EVENTS] = {};
        uint32_t messages = 0, complete = 0;
        uint64_t next;
        struct message_to to;

        requests_after(t, 0);
        sfi_record_connected(t->sfi, t->now_ns, 0);
        while (sfi_step(t->sfi, t->now_ns, &to, &t->message)) {
                if (t->message.header.type != MESSAGE_REQUEST)
                        continue;
                messages++;
                assert_int_equal(to.index, 0);
                for (size_t k = 0; k < t->message.n; k++)
                        requested[t->message.request.entries[k].event]++;
                next = t->message.request.entries[t->message.n - 1].event + 1;
                if (next == EVENTS)
                        continue;
                sfi_gets_fragment(t, 0, next); /* so it needs no request to this ROS any more */
                requested[next]++;
                complete++;
        }
        assert_in_range(messages, 4, EVENTS / 4);
        assert_int_equal(complete, messages - 1);
        for (int event = 0; event < EVENTS; event++)
                assert_int_equal(requested[event], 1);
        assert_int_equal(sfi_open_events(t->sfi), EVENTS);
}
