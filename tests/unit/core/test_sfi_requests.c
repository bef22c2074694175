/* The SFI's requests: in pull for all fragments, in both modes for missing ones. See test_sfi_retry.c for
 * their timing. */
#include "sfi_driver.h"

PULL_TEST(requests_events_in_order_of_assignment, 0)
{
        sfi_gets_assign(t, 7);
        sfi_gets_assign(t, 3);
        assert_requests(t, 0, "all: Request e7 e3");
        assert_requests(t, AFTER_NS - 1, "");
}

static uint32_t resets_of_request(struct sfi_driver *t, uint64_t event)
{
        struct message_to to;
        uint32_t resets = UINT32_MAX;

        sfi_gets_assign(t, event);
        while (sfi_step(t->sfi, t->now_ns, &to, &t->message)) {
                if (t->message.header.type == MESSAGE_REQUEST)
                        resets = t->message.request.resets;
        }
        return resets;
}

/* A Request contains the resets, so a ROS can tell that an event is from after a reset of the counters. The
 * network may delay an Assign from before the reset. Another DFM may have counted fewer resets. */
PULL_TEST(requests_have_the_resets_of_the_dfm, 0)
{
        assert_int_equal(resets_of_request(t, 0), 0);
        t->resets = 2;
        assert_int_equal(resets_of_request(t, 1), 2);
        t->resets = 1;
        assert_int_equal(resets_of_request(t, 2), 2);
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 3);
        assert_int_equal(resets_of_request(t, 3), 1);
}

SFI_TEST(in_push_there_is_no_first_request, 1)
{
        assert_requests(t, AFTER_NS - 1, "");
        assert_requests(t, 1, "ros0: Request e0 again 1 | ros1: Request e0 again 1");
}

PULL_TEST(outstanding_events_are_bounded, 4, c.outstanding = 2)
{
        assert_requests(t, 0, "all: Request e0 e1");
        sfi_gets_fragment(t, 0, 1);
        assert_requests(t, 0, "");
        sfi_gets_fragment(t, 1, 1);
        assert_requests(t, 0, "all: Request e2");
        /* An event that is given up makes room too. */
        sfi_gets_entry(t, MESSAGE_BUILD, 0, 0, 0, 0);
        assert_requests(t, 0, "all: Request e3");
        assert_sfi_writes(t, "e1 complete | e0 lost");
}

PULL_TEST(outstanding_events_follow_the_buffer_of_a_reliable_transport, 6, c.reliable = true,
          c.room_bytes = 3 * 512 + 100)
{
        assert_requests(t, 0, "all: Request e0"); /* until the size of an event is known */
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_fragment(t, 1, 0); /* it uses 512 bytes */
        assert_requests(t, 0, "all: Request e1 e2 e3");
        assert_sfi_writes(t, "e0 complete");
}

PULL_TEST(retries_missing_fragments_of_a_silent_ros, 2)
{
        requests_after(t, 0);
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_fragment(t, 0, 1);
        sfi_gets_fragment(t, 1, 1);
        assert_requests(t, AFTER_NS, "ros1: Request e0 again 1");
        assert_int_equal(sfi_counts(t->sfi).retried, 1);
        sfi_gets_fragment(t, 1, 0);
        assert_int_equal(sfi_counts(t->sfi).recovered, 1);
        assert_sfi_writes(t, "e1 complete | e0 complete");
        assert_requests(t, 10 * AFTER_NS, "");
}

PULL_TEST(does_not_retry_fragments_that_may_still_be_queued, 4)
{
        const char *asked;

        requests_after(t, 0);
        /* ROS 0 is still sending event 0, and the others come after it. */
        for (uint32_t offset = 0; offset < 640; offset += 32) {
                sfi_gets_chunk(t, chunk_of(0, 0, offset, 32, 4096));
                assert_null(strstr(requests_after(t, AFTER_NS / 2), "ros0"));
        }
        /* Then event 2 overtakes the missing fragments of 0 and 1; 3 may still arrive. */
        for (uint32_t offset = 0; offset < 640; offset += 32) {
                sfi_gets_chunk(t, chunk_of(0, 2, offset, 32, 4096));
                asked = requests_after(t, AFTER_NS / 2);
                if (strstr(asked, "ros0"))
                        break;
        }
        assert_non_null(strstr(asked, "ros0: Request e0[640,4096) again "));
        assert_null(strstr(asked, "e2["));
}

/* Over TCP, the chunks of a message are reserved together, and their payload arrives one by one. */
SFI_TEST(payload_on_its_way_neither_overtakes_nor_is_overtaken, 3, c.n_ros = 1)
{
        struct sfi_chunk chunks[3];

        for (uint64_t event = 0; event < 3; event++)
                chunks[event] = chunk_of(0, event, 0, 100, 100);
        sfi_reserve(t->sfi, t->now_ns, chunks, 3);
        for (size_t i = 0; i < 3; i++) {
                assert_requests(t, AFTER_NS * 3 / 4, "");
                sfi_commit(t->sfi, t->now_ns, &chunks[i], 1);
        }
        assert_sfi_writes(t, "e0 complete | e1 complete | e2 complete");
}

PULL_TEST(requests_the_missing_ranges, 1, c.n_ros = 1)
{
        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 64, 64, 1000));
        sfi_gets_chunk(t, chunk_of(0, 0, 512, 320, 1000));
        assert_requests(t, AFTER_NS,
                        "ros0: Request e0[0,64) again 1 e0[128,512) again 1 e0[832,1000) again 1");
        assert_int_equal(sfi_counts(t->sfi).retried, 1);
}

PULL_TEST(the_sixteenth_range_extends_to_the_end, 1, c.n_ros = 1)
{
        requests_after(t, 0);
        for (uint32_t offset = 32; offset < 64 * 32; offset += 64)
                sfi_gets_chunk(t, chunk_of(0, 0, offset, 32, 64 * 32));
        assert_non_null(strstr(requests_after(t, AFTER_NS), "e0[896,928) again 1 e0[960,2048) again 1"));
        assert_int_equal(t->message.n, 0);
}

PULL_TEST(a_reservation_without_payload_is_requested_entirely, 2, c.n_ros = 1)
{
        struct sfi_chunk p = chunk_of(0, 1, 0, 4096, 4096);

        requests_after(t, 0);
        /* A fragment in several chunks used the memory before. */
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 2048, 4096));
        sfi_gets_chunk(t, chunk_of(0, 0, 2048, 2048, 4096));
        assert_sfi_writes(t, "e0 complete");
        sfi_reserve(t->sfi, t->now_ns, &p, 1);
        assert_int_equal(p.verdict, SFI_STORE);
        assert_requests(t, AFTER_NS, "ros0: Request e1 again 1");
}

PULL_TEST(in_pull_the_event_timer_starts_with_the_request, 2, c.outstanding = 1, c.retries_max = 0)
{
        requests_after(t, 0);
        t->now_ns += 1500 * NS_PER_MS;
        sfi_gets_fragment(t, 0, 0);
        sfi_gets_fragment(t, 1, 0);
        assert_requests(t, 0, "all: Request e1");
        requests_after(t, c.timeout_ns - NS_PER_MS);
        assert_sfi_writes(t, "e0 complete");
        requests_after(t, NS_PER_MS);
        assert_sfi_writes(t, "e1 lost");
}

PULL_TEST(without_a_ros_pending_first_requests_still_go_out, 2, c.outstanding = 1)
{
        assert_requests(t, 0, "all: Request e0");
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 0);
        assert_sfi_writes(t, "e0 lost");
        assert_requests(t, 0, "all: Request e1");
}
