/* The limit of the bytes in flight, in pull without a number of outstanding events: what it follows from, and
 * how losses and delays change it. */
#include "sfi_driver.h"
#include "core/sfi/sfi_internal.h"

/* A datagram with a fragment of the event, by its number in the sequence. */
static void gets_datagram(struct sfi_driver *t, uint32_t number, uint64_t event)
{
        sfi_count_datagram(t->sfi, 0, number);
        sfi_gets_chunk(t, chunk_of(0, event, 0, FRAME_BYTES, FRAME_BYTES));
}

/* Takes all messages that are due: acknowledges Updates, and returns the number of events that are requested
 * from ROS 0. */
static size_t read_requests(struct sfi_driver *t, uint64_t events[static 1024])
{
        uint32_t ack = 0;
        size_t n = 0;

        while (sfi_makes(t)) {
                if (t->message.header.type == MESSAGE_UPDATE)
                        ack = t->message.update.first + (uint32_t)t->message.n;
                if (t->message.header.type != MESSAGE_REQUEST)
                        continue;
                for (size_t k = 0; k < t->message.n && n < 1024; k++)
                        events[n++] = t->message.request.entries[k].event;
        }
        if (ack > 0)
                sfi_gets_ack(t, ack);
        return n;
}

/* ROS 0 answers each request after `latency_ns`; `*number` counts its datagrams. */
static void stream(struct sfi_driver *t, uint32_t *number, uint64_t until_ns, uint64_t latency_ns)
{
        for (int turn = 0; turn < 100000 && t->now_ns < until_ns; turn++) {
                uint64_t events[1024];
                size_t n = read_requests(t, events);

                t->now_ns += latency_ns;
                for (size_t k = 0; k < n; k++) {
                        gets_datagram(t, (*number)++, events[k]);
                        sfi_writes_with(t, false);
                        sfi_gets_assign(t, t->assign_next);
                }
        }
}

BACKLOG_TEST(a_loss_halves_the_limit_which_recovers, 1000, c.n_ros = 1)
{
        uint32_t number = 0;

        stream(t, &number, t->now_ns + 20 * NS_PER_MS, 300 * NS_PER_US);
        assert_int_equal(t->sfi->limit.bytes, LIMIT_BYTES);
        number++;
        stream(t, &number, t->now_ns + 1, 300 * NS_PER_US);
        assert_int_equal(t->sfi->limit.bytes, LIMIT_BYTES); /* it may only be late */
        stream(t, &number, t->now_ns + 400 * NS_PER_US, 300 * NS_PER_US);
        assert_in_range(t->sfi->limit.bytes, LIMIT_BYTES / 2, LIMIT_BYTES / 2 + 4 * WIRE_BYTES);
        assert_int_equal(sfi_counts(t->sfi).limit_decreases, 1);
        /* For a second it stays below what lost packets. */
        stream(t, &number, t->now_ns + 900 * NS_PER_MS, 300 * NS_PER_US);
        assert_in_range(t->sfi->limit.bytes, LIMIT_BYTES / 4 * 3 - 8, LIMIT_BYTES / 4 * 3);
        stream(t, &number, t->now_ns + 200 * NS_PER_MS, 300 * NS_PER_US);
        assert_int_equal(t->sfi->limit.bytes, LIMIT_BYTES);
}

BACKLOG_TEST(packets_in_another_order_are_no_loss, 1000, c.n_ros = 1)
{
        uint32_t number = 0;

        for (int k = 0; k < 100; k++) {
                stream(t, &number, t->now_ns + NS_PER_MS, 300 * NS_PER_US);
                uint32_t missing = number++;

                stream(t, &number, t->now_ns + 51 * NS_PER_US, 50 * NS_PER_US); /* two turns */
                sfi_count_datagram(t->sfi, 0, missing);
        }
        assert_int_equal(t->sfi->limit.bytes, LIMIT_BYTES);
        assert_int_equal(sfi_counts(t->sfi).limit_decreases, 0);
}

/* A gap that opens while an older one may still close has its own time, and counts without a third one. */
BACKLOG_TEST(a_younger_gap_is_a_loss_too, 1000, c.n_ros = 1)
{
        uint32_t number = 0, late;
        uint64_t events[1024];

        stream(t, &number, t->now_ns + 20 * NS_PER_MS, 300 * NS_PER_US);
        assert_true(read_requests(t, events) >= 3);
        late = number++;
        gets_datagram(t, number++, events[0]);
        t->now_ns += 100 * NS_PER_US;
        number++;
        gets_datagram(t, number++, events[1]);
        sfi_count_datagram(t->sfi, 0, late);
        t->now_ns += 150 * NS_PER_US;
        read_requests(t, events);
        assert_int_equal(sfi_counts(t->sfi).limit_decreases, 0);
        assert_in_range(sfi_deadline_ns(t->sfi), t->now_ns + 1, t->now_ns + 200 * NS_PER_US);
        t->now_ns += 200 * NS_PER_US;
        read_requests(t, events);
        assert_int_equal(sfi_counts(t->sfi).limit_decreases, 1);
}

BACKLOG_TEST(an_unknown_limit_grows_until_the_delay_does, 1000, c.n_ros = 1,
             c.port_bytes = c.port_rate_bps = 0, c.room_bytes = 100000)
{
        uint32_t number = 0;
        uint64_t reached;

        assert_int_equal(t->sfi->limit.bytes, WIRE_BYTES);
        stream(t, &number, t->now_ns + 2 * NS_PER_MS, 100 * NS_PER_US);
        reached = t->sfi->limit.bytes;
        assert_in_range(reached, 8 * WIRE_BYTES, 100000);
        /* A queue of 2 ms: the limit shrinks. */
        stream(t, &number, t->now_ns + 100 * NS_PER_MS, 2 * NS_PER_MS);
        assert_int_equal(t->sfi->limit.bytes, WIRE_BYTES);
        /* Then it reaches the socket's buffer, at most. */
        stream(t, &number, t->now_ns + 100 * NS_PER_MS, 100 * NS_PER_US);
        assert_int_equal(t->sfi->limit.bytes, 100000);
        assert_int_equal(sfi_counts(t->sfi).limit_decreases, 0);
}

/* A round ends once the bytes of the limit arrived, counted as frames like the limit. Repeated data are none
 * of them. */
BACKLOG_TEST(a_round_counts_what_was_in_flight, 10, c.n_ros = 1, c.port_bytes = c.port_rate_bps = 0)
{
        assert_requests(t, 0, "ros0: Request e0[0,1408)");
        for (int k = 0; k < 10; k++)
                sfi_gets_chunk(t, chunk_of(0, 0, 0, 704, FRAME_BYTES));
        assert_int_equal(t->sfi->limit.bytes, WIRE_BYTES);
        sfi_gets_chunk(t, chunk_of(0, 0, 704, 704, FRAME_BYTES));
        assert_int_equal(t->sfi->limit.bytes, 2 * WIRE_BYTES);
}

TEST(the_limit_follows_from_the_buffers)
{
        static const struct {
                uint64_t port, room, limit;
        } cases[] = {
                {131072, 0, 131072 / 16 * 15}, {32768, 0, LIMIT_BYTES},
                {4096, 0, WIRE_BYTES}, /* something must go out */
                {131072, 50000, 50000},        {0, 50000, 50000},
                {0, 100, WIRE_BYTES},
        };
        struct sfi_config c = by_bytes();

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                c.port_bytes = cases[i].port;
                c.room_bytes = cases[i].room;
                assert_int_equal(sfi_in_flight_max_bytes(&c), cases[i].limit);
        }
}
