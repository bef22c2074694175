/* The number and timing of the SFI's retries. See test_sfi_requests.c for first requests. */
#include "sfi_driver.h"
#include "core/sfi/sfi_internal.h"

PULL_TEST_EACH(unanswered_retries_are_bounded_with_backoff, max, 7, 1, c.n_ros = 1,
               c.retries_max = (uint32_t)max)
{
        static const uint64_t distances[] = {1, 1, 2, 4, 8, 16};

        assert_requests(t, 0, "all: Request e0");
        for (int k = 0; k < max; k++) {
                uint64_t left_ns = TRACE_BEGIN_NS + c.timeout_ns - t->now_ns;

                /* The last of many retries is late: a loss may outlast all the others. */
                assert_requests(t, (k > 2 && k + 1 == max ? left_ns / 2 : distances[k] * AFTER_NS) - 1, "");
                assert_true(trace_begins(requests_after(t, 1), "ros0: Request e0 again "));
        }
        while (t->now_ns < TRACE_BEGIN_NS + c.timeout_ns)
                assert_requests(t, AFTER_NS, "");
        assert_sfi_writes(t, "e0 lost");
        assert_int_equal(sfi_counts(t->sfi).retried, max);
}

PULL_TEST(unbounded_retries_continue_until_the_event_expires, 1, c.n_ros = 1, c.retries_max = UINT32_MAX,
          c.timeout_ns = 60 * NS_PER_S)
{
        uint64_t end_ns, asked_ns = 0;
        unsigned asks = 0;

        assert_requests(t, 0, "all: Request e0");
        end_ns = t->now_ns + c.timeout_ns;
        for (uint64_t distance = 0; t->now_ns < end_ns - 5 * NS_PER_MS;) {
                if (requests_after(t, 5 * NS_PER_MS)[0] == 0)
                        continue;
                /* 10, 10, 20, 40 ... and finally half a second. */
                if (asks++ > 1)
                        assert_int_equal(t->now_ns - asked_ns, MIN(2 * distance, 500 * NS_PER_MS));
                distance = asks == 1 ? AFTER_NS : t->now_ns - asked_ns;
                asked_ns = t->now_ns;
        }
        assert_int_equal(asks, 7 + (60 * 1000 - 650) / 500);
        assert_in_range(asked_ns, end_ns - 500 * NS_PER_MS, end_ns);
        requests_after(t, 5 * NS_PER_MS);
        assert_sfi_writes(t, "e0 lost");
}

/* Many events miss fragments of one silent ROS. The SFI requests them at a bounded rate, and the next ROSs
 * get their turn. */
SFI_TEST_AS(retries_are_rate_limited, sfi_pulling(), start_with_backlog(t, &c, 1000),
            c.retries_max = UINT32_MAX, c.outstanding = 1000,
            c.room_bytes = 40960 /* 40 short answers in 10 ms */)
{
        struct message_to to;
        uint32_t entries[2] = {};

        for (uint64_t ms = 0; ms < 1000; ms++, t->now_ns += NS_PER_MS) {
                while (sfi_step(t->sfi, t->now_ns, &to, &t->message)) {
                        if (t->message.header.type == MESSAGE_REQUEST && to.index != MESSAGE_TO_ALL)
                                entries[to.index] += (uint32_t)t->message.n;
                }
        }
        assert_in_range(entries[0] + entries[1], 1000, 40 * 101);
        assert_true(entries[0] > 300 && entries[1] > 300);
}

PULL_TEST(progress_resets_the_retry_count, 1, c.n_ros = 1, c.retries_max = 2)
{
        requests_after(t, 0);
        for (uint32_t offset = 0; offset < 6 * 32; offset += 32) {
                assert_int_equal(strncmp(requests_after(t, AFTER_NS), "ros0: Request e0", 16), 0);
                sfi_gets_chunk(t, chunk_of(0, 0, offset, 32, 1000));
        }
        assert_requests(t, AFTER_NS, "ros0: Request e0[192,1000) again 1");
        assert_requests(t, AFTER_NS, "ros0: Request e0[192,1000) again 2");
        assert_requests(t, 4 * AFTER_NS, "");
        assert_requests(t, c.timeout_ns, "");
        assert_sfi_writes(t, "e0 lost");
}

PULL_TEST(repeated_data_are_no_progress, 1, c.n_ros = 1, c.retries_max = 2)
{
        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, 1000));
        assert_requests(t, AFTER_NS, "ros0: Request e0[32,1000) again 1");
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, 1000));
        assert_requests(t, AFTER_NS, "ros0: Request e0[32,1000) again 2");
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, 1000));
        assert_requests(t, 2 * AFTER_NS, "");
}

PULL_TEST(a_fragment_without_bytes_is_progress, 1, c.retries_max = 1)
{
        struct sfi_chunk none = chunk_of(0, 0, 0, 0, 0);

        requests_after(t, 0);
        assert_requests(t, AFTER_NS, "ros0: Request e0 again 1 | ros1: Request e0 again 1");
        none.chunk.status = FRAGMENT_NONE;
        assert_int_equal(sfi_gets_chunk(t, none), SFI_STORE);
        assert_requests(t, AFTER_NS, "ros1: Request e0 again 1");
}

PULL_TEST(all_retries_fit_into_the_event_time, 1, c.n_ros = 1,
          c.retry_after_ns = 300 * NS_PER_MS /* the doubled pause would be too long */)
{
        unsigned asks = 0;

        requests_after(t, 0);
        while (t->now_ns < TRACE_BEGIN_NS + c.timeout_ns)
                asks += requests_after(t, NS_PER_MS)[0] != 0;
        assert_int_equal(asks, c.retries_max);
        sfi_writes_with(t, false);
}

PULL_TEST(a_reliable_transport_retries_late, 1, c.reliable = true, c.retry_after_ns = 0)
{
        assert_int_equal(sfi_retry_interval_ns(&t->sfi->retry), c.timeout_ns / 6);
        sfi_driver_fini(t);
        c.retries_max = UINT32_MAX;
        sfi_driver_start(t, &c, 1);
        assert_int_equal(sfi_retry_interval_ns(&t->sfi->retry), c.timeout_ns / 8);
}

PULL_TEST(the_retry_interval_follows_the_latency, 0, c.retry_after_ns = 0)
{
        assert_int_equal(sfi_retry_interval_ns(&t->sfi->retry),
                         100 * NS_PER_MS); /* before the first sample */
        for (uint64_t event = 0; event < 500; event++) {
                sfi_gets_assign(t, event);
                requests_after(t, 0);
                t->now_ns += 3 * NS_PER_MS;
                sfi_gets_fragment(t, 0, event);
                sfi_gets_fragment(t, 1, event);
                sfi_writes_with(t, false);
                sfi_gets_ack(t, (uint32_t)event + 1);
        }
        assert_in_range(sfi_retry_interval_ns(&t->sfi->retry), 13 * NS_PER_MS, 14 * NS_PER_MS);
        /* After the retry, the delayed original and its repetition both arrive: the retry was too early. */
        sfi_gets_assign(t, 500);
        requests_after(t, 0);
        requests_after(t, 14 * NS_PER_MS);
        sfi_gets_fragment(t, 0, 500);
        assert_int_equal(sfi_gets_fragment(t, 0, 500), SFI_DUPLICATE);
        assert_in_range(sfi_retry_interval_ns(&t->sfi->retry), 26 * NS_PER_MS, 28 * NS_PER_MS);
}

PULL_TEST(a_departed_ros_is_not_retried, 1)
{
        requests_after(t, 0);
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 2);
        assert_requests(t, AFTER_NS, "ros1: Request e0 again 1");
}

PULL_TEST(retries_are_bounded_by_the_socket_buffer, 2, c.n_ros = 1, c.outstanding = 4, c.room_bytes = 100000)
{
        requests_after(t, 0);
        for (uint64_t event = 0; event < 2; event++)
                sfi_gets_chunk(t, chunk_of(0, event, 0, 32, 200000));
        /* The oldest first, as far as it fits; the rest follows later. */
        assert_requests(t, AFTER_NS, "ros0: Request e0[32,100032) again 1");
        sfi_gets_chunk(t, chunk_of(0, 0, 32, 100000, 200000));
        assert_requests(t, AFTER_NS, "ros0: Request e0[100032,200000) again 1 e1[32,65568) again 1");
}

/* The answer to a retry makes room for the next one, long before the next round. What is still on its way is
 * not requested again. */
SFI_TEST(retries_continue_as_answers_arrive, 1, c.n_ros = 1, c.room_bytes = 100000)
{
        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 32, 300000));
        assert_requests(t, AFTER_NS, "ros0: Request e0[32,100032) again 1");
        t->now_ns += NS_PER_MS;
        sfi_gets_chunk(t, chunk_of(0, 0, 32, 20000, 300000));
        assert_requests(t, 0, "");
        sfi_gets_chunk(t, chunk_of(0, 0, 20032, 60000, 300000));
        assert_requests(t, 0, "ros0: Request e0[100032,180032) again 1");
        assert_requests(t, AFTER_NS - 1, "");
        sfi_gets_chunk(t, chunk_of(0, 0, 80032, 100000, 300000));
        assert_requests(t, 0, "ros0: Request e0[180032,280032) again 1");
        assert_int_equal(sfi_counts(t->sfi).retried, 1);
        assert_requests(t, AFTER_NS, "ros0: Request e0[180032,280032) again 1");
        assert_int_equal(sfi_counts(t->sfi).retried, 2);
}

/* The SFI requests as much as its socket holds at a time, so a large event takes long. */
SFI_TEST(an_event_that_waits_for_the_budget_keeps_its_time, 2, c.n_ros = 1,
         c.room_bytes = EVB_FRAGMENT_MAX_BYTES / 4)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES, part = big / 4;

        requests_after(t, 0);
        for (uint32_t k = 0; k < 4; k++) {
                sfi_gets_chunk(t, chunk_of(0, 0, k * part, part, big));
                if (k < 2)
                        sfi_gets_chunk(t, chunk_of(0, 1, k * part, part, big));
                for (int j = 0; j < 9; j++)
                        requests_after(t, c.timeout_ns / 10);
        }
        assert_sfi_writes(t, "e1 lost | e0 complete");
}

/* The fragments of other ROSs show how much the answers will bring. */
SFI_TEST(retries_of_unknown_size_use_the_budget, 2, c.n_ros = 3, c.room_bytes = 100000)
{
        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 60000, 60000));
        assert_requests(t, AFTER_NS, "ros0: Request e1 again 1 | ros1: Request e0 again 1");
}

PULL_TEST(an_evicted_event_is_requested_again, 2, c.n_ros = 2)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two fill the buffer */

        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 1, 0, big, big));
        sfi_gets_chunk(t, chunk_of(0, 0, 0, big, big));
        sfi_gets_chunk(t, chunk_of(1, 0, 0, big, big));
        assert_sfi_writes(t, "e0 complete");
        assert_requests(t, AFTER_NS, "ros0: Request e1 again 1 | ros1: Request e1 again 1");
        sfi_gets_fragment(t, 1, 1);
        assert_sfi_writes(t, "");
        sfi_gets_fragment(t, 0, 1);
        assert_sfi_writes(t, "e1 complete");
}

PULL_TEST(an_evicted_event_gets_its_full_time_again, 2, c.retries_max = 1)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES;

        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 1, 0, big, big));
        assert_requests(t, AFTER_NS, "ros0: Request e0 again 1 | ros1: Request e0 again 1");
        assert_requests(t, c.timeout_ns - 5 * AFTER_NS, "");
        sfi_gets_chunk(t, chunk_of(0, 0, 0, big, big));
        sfi_gets_chunk(t, chunk_of(1, 0, 0, big, big));
        assert_sfi_writes(t, "e0 complete");
        assert_requests(t, AFTER_NS, "ros0: Request e1 again 1 | ros1: Request e1 again 1");
        assert_requests(t, c.timeout_ns - 2 * AFTER_NS, "");
        assert_sfi_writes(t, "");
        requests_after(t, AFTER_NS);
        assert_sfi_writes(t, "e1 lost");
}

PULL_TEST(a_retried_fragment_overtakes_nothing, 2, c.n_ros = 1)
{
        requests_after(t, 0);
        assert_requests(t, AFTER_NS, "ros0: Request e0 again 1 e1 again 1");
        t->now_ns += AFTER_NS / 2;
        sfi_gets_fragment(t, 0, 1); /* the first e0 may still arrive, after the second or before it */
        assert_requests(t, AFTER_NS / 2, "");
        assert_sfi_writes(t, "e1 complete");
}

/* In push, a fragment larger than the socket buffer is always retried. What came beyond a hole shows that the
 * first answer is lost, so the time of the second one is certain. */
SFI_TEST(a_retry_of_a_hole_shows_the_latency, 1, c.n_ros = 1, c.retry_after_ns = 0,
         c.retries_max = UINT32_MAX)
{
        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 320, 1000));
        sfi_gets_chunk(t, chunk_of(0, 0, 640, 320, 1000));
        /* Only the hole is lost as long as the ROS sends; the rest may be on its way. */
        t->now_ns += 99 * NS_PER_MS;
        sfi_gets_chunk(t, chunk_of(0, 0, 640, 320, 1000));
        assert_requests(t, NS_PER_MS, "ros0: Request e0[320,640) again 1");
        t->now_ns += 3 * NS_PER_MS;
        sfi_gets_chunk(t, chunk_of(0, 0, 320, 160, 1000));
        assert_int_equal(sfi_retry_interval_ns(&t->sfi->retry), 19 * NS_PER_MS + 1); /* 3 + 4 x 1.5 + 10 ms */
        /* The rest of the hole answers the same retry: one sample is enough. */
        t->now_ns += 3 * NS_PER_MS;
        sfi_gets_chunk(t, chunk_of(0, 0, 480, 160, 1000));
        assert_int_equal(sfi_retry_interval_ns(&t->sfi->retry), 19 * NS_PER_MS + 1);
}

/* A ROS that missed the assignment, or that is slow: both look the same. */
SFI_TEST(a_retry_without_a_hole_shows_no_latency, 1, c.n_ros = 1, c.retry_after_ns = 0)
{
        requests_after(t, 0);
        assert_requests(t, 100 * NS_PER_MS, "ros0: Request e0 again 1");
        t->now_ns += 3 * NS_PER_MS;
        sfi_gets_fragment(t, 0, 0);
        assert_int_equal(sfi_retry_interval_ns(&t->sfi->retry), 100 * NS_PER_MS);
        assert_sfi_writes(t, "e0 complete");
}

/* The second one is not. */
SFI_TEST(after_a_loss_the_first_retry_is_early, 1, c.n_ros = 1, c.retry_after_ns = 0,
         c.retries_max = UINT32_MAX)
{
        t->now_ns += NS_PER_MS;
        sfi_count_datagram(t->sfi, 0, 0);
        sfi_gets_fragment(t, 0, 0); /* a latency of 1 ms, with a deviation of 0.5 ms */
        sfi_gets_assign(t, 1);
        requests_after(t, 0);
        assert_requests(t, 12 * NS_PER_MS, "");
        assert_requests(t, NS_PER_MS + 1, "ros0: Request e1 again 1");
        sfi_count_datagram(t->sfi, 0, 2); /* 1 is lost */
        sfi_gets_fragment(t, 0, 1);
        sfi_gets_assign(t, 2);
        requests_after(t, 0);
        assert_requests(t, 3 * NS_PER_MS + 200 * NS_PER_US, "");
        assert_requests(t, 1, "ros0: Request e2 again 1");
        assert_requests(t, 4 * NS_PER_MS, "");
        assert_requests(t, 12 * NS_PER_MS, "");
        assert_requests(t, NS_PER_MS + 1, "ros0: Request e2 again 2");
        assert_sfi_writes(t, "e0 complete | e1 complete");
}

/* While the memory holds an event that is being written, the next one is neither requested nor timed out.
 * Refused answers are answers. */
SFI_TEST(an_event_that_waits_for_memory_keeps_its_time, 2, c.retries_max = 1)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two fill the buffer */

        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, big, big));
        sfi_gets_chunk(t, chunk_of(1, 0, 0, big, big));
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 1, 0, big, big)), SFI_NO_ROOM);
        for (int k = 0; k < 30; k++)
                assert_requests(t, 100 * NS_PER_MS, "");
        assert_sfi_writes(t, "e0 complete");
        assert_requests(t, NS_PER_MS, "ros0: Request e1 again 1 | ros1: Request e1 again 1");
        assert_requests(t, c.timeout_ns - NS_PER_MS - 1, "");
        assert_sfi_writes(t, "");
        assert_requests(t, NS_PER_MS, "");
        assert_sfi_writes(t, "e1 lost");
}

/* What is free belongs to the older event, although it has not come. */
SFI_TEST(an_event_waits_for_memory_that_older_ones_need, 2, c.retries_max = 1)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two fill the buffer */

        requests_after(t, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, big, big));
        assert_requests(t, AFTER_NS, "ros1: Request e0 again 1");
        for (int k = 0; k < 18; k++)
                assert_requests(t, c.timeout_ns / 20, "");
        sfi_gets_chunk(t, chunk_of(1, 0, 0, big, big));
        assert_requests(t, AFTER_NS, "");
        assert_sfi_writes(t, "e0 complete");
        assert_requests(t, NS_PER_MS, "ros0: Request e1 again 1 | ros1: Request e1 again 1");
        assert_requests(t, c.timeout_ns - c.timeout_ns / 20, "");
        assert_sfi_writes(t, "");
        assert_requests(t, c.timeout_ns / 20, "");
        assert_sfi_writes(t, "e1 lost");
}

/* Nothing gives memory to an event that is larger than the buffer. */
SFI_TEST(an_event_larger_than_the_memory_ends, 1, c.n_ros = 3)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES;

        requests_after(t, 0);
        for (uint16_t ros = 0; ros < 3; ros++)
                sfi_gets_chunk(t, chunk_of(ros, 0, 0, big, big));
        assert_requests(t, c.timeout_ns, "");
        assert_sfi_writes(t, "e0 partial");
        assert_int_equal(sfi_counts(t->sfi).starved, 1);
}
