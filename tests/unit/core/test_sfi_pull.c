/* Pull without a number of outstanding events: the bytes in flight are limited, and requests are spaced. See
 * test_sfi_limit.c for the limit itself, and tests/sim/test_scenes.c for whole systems. */
#include "sfi_driver.h"
#include "core/sfi/sfi_internal.h"

#include "base/random.h"

BYTES_TEST(the_first_requests_are_cautious, 4)
{
        assert_int_equal(t->sfi->limit.bytes, LIMIT_BYTES);
        /* A frame of each fragment, and a batch to each ROS. */
        assert_requests(t, 0, "ros1: Request e0[0,1408) e1[0,1408) | ros0: Request e0[0,1408) e1[0,1408)");
        assert_int_equal(t->sfi->slots.in_flight_bytes, 4 * WIRE_BYTES);
        /* The size of ROS 0's fragments is known now. ROS 0 has the least to send. */
        sfi_gets_fragment(t, 0, 0);
        assert_requests(t, 16000, "ros0: Request e2[0,128) e3[0,128) | ros1: Request e2[0,1408) e3[0,1408)");
        assert_int_equal(t->sfi->slots.in_flight_bytes, 5 * WIRE_BYTES + 2 * (128 + 150));
        for (uint64_t event = 0; event < 4; event++) {
                sfi_gets_fragment(t, 1, event);
                if (event > 0)
                        sfi_gets_fragment(t, 0, event);
        }
        assert_sfi_writes(t, "e0 complete | e1 complete | e2 complete | e3 complete");
        assert_int_equal(t->sfi->slots.in_flight_bytes, 0);
}

static bool next_request(struct sfi_driver *t, struct message_to *to)
{
        while (sfi_step(t->sfi, t->now_ns, to, &t->message)) {
                if (t->message.header.type == MESSAGE_REQUEST)
                        return true;
        }
        return false;
}

BACKLOG_TEST(requests_are_spaced_exactly_at_the_rate_of_the_port, 2000, c.n_ros = 1,
             c.port_rate_bps = 999999937 /* no byte takes a whole number of nanoseconds */)
{
        struct message_to to;
        uint64_t bytes = 0;

        for (int turn = 0; turn < 100000 && bytes < 1999 * FRAME_BYTES; turn++) {
                while (next_request(t, &to)) {
                        /* A batch goes ahead of its time. */
                        uint64_t ahead_ns = BATCH_BYTES * 8 * NS_PER_S / c.port_rate_bps;
                        uint64_t due_ns = bytes * 8 * NS_PER_S / c.port_rate_bps;

                        if (due_ns > ahead_ns)
                                assert_int_equal(t->now_ns, TRACE_BEGIN_NS + due_ns - ahead_ns);
                        for (size_t k = 0; k < t->message.n; k++) {
                                const struct request_entry e = t->message.request.entries[k];

                                bytes += e.to_bytes - e.from_bytes;
                                sfi_gets_chunk(t, chunk_of(0, e.event, 0, FRAME_BYTES, FRAME_BYTES));
                        }
                }
                t->now_ns = sfi_deadline_ns(t->sfi);
        }
        assert_true(bytes >= 1999 * FRAME_BYTES);
}

BACKLOG_TEST(a_late_loop_catches_up_within_the_limit, 200)
{
        struct message_to to;

        sfi_gets_whole(t, 0); /* the size of an event is known */
        sfi_writes_with(t, false);
        for (int k = 0; k < 3; k++, t->now_ns += 5 * NS_PER_MS) {
                while (next_request(t, &to))
                        ;
                assert_true(t->sfi->slots.in_flight_bytes <= LIMIT_BYTES);
        }
        /* Nothing more fits, however late it is: the next batch waits for data. */
        assert_false(next_request(t, &to));
        assert_true(t->sfi->slots.in_flight_bytes > LIMIT_BYTES - BATCH_BYTES);
        assert_true(sfi_deadline_ns(t->sfi) > t->now_ns);
}

/* Plays ROSs that send what is requested, frame by frame and in any order among them. */
struct players {
        struct {
                uint64_t event;
                uint32_t from, to;
        } queue[8][256];
        uint32_t n[8];
        uint64_t most_in_flight, sum; /* the bytes that are requested and not sent, as the test counts them */
};

static uint32_t size_of(uint16_t ros, uint64_t event, uint32_t mean)
{
        return 1 + (uint32_t)(random_mix(1000 * event + ros) % (2 * mean));
}

static uint64_t frames_of(uint32_t from, uint32_t to)
{
        return to - from + DIV_ROUND_UP(to - from, FRAME_BYTES) * 150;
}

static void play_request(struct players *p, uint16_t ros, const struct message *m, uint32_t mean)
{
        for (size_t k = 0; k < m->n; k++) {
                const struct request_entry *e = &m->request.entries[k];
                uint32_t to = MIN(e->to_bytes, size_of(ros, e->event, mean)), i = p->n[ros]++;

                assert_true(p->n[ros] <= ARRAY_SIZE(p->queue[ros]));
                assert_true(e->from_bytes < to && e->again == 0);
                p->queue[ros][i].event = e->event;
                p->queue[ros][i].from = e->from_bytes;
                p->queue[ros][i].to = to;
                p->sum += frames_of(e->from_bytes, to);
                p->most_in_flight = MAX(p->most_in_flight, p->sum);
        }
}

static bool play_frame(struct players *p, struct sfi_driver *t, uint16_t ros, uint32_t mean)
{
        uint32_t from, end;
        uint64_t event;

        if (p->n[ros] == 0)
                return false;
        event = p->queue[ros][0].event;
        from = p->queue[ros][0].from;
        end = MIN(from + FRAME_BYTES, p->queue[ros][0].to);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(ros, event, from, end - from, size_of(ros, event, mean))),
                         SFI_STORE);
        p->sum -= frames_of(from, end);
        p->queue[ros][0].from = end;
        if (end == p->queue[ros][0].to)
                memmove(p->queue[ros], p->queue[ros] + 1, --p->n[ros] * sizeof p->queue[ros][0]);
        return true;
}

static void play(uint64_t seed, uint32_t n_ros, uint32_t mean, uint64_t port_bytes)
{
        struct sfi_config c = by_bytes();
        static struct players p;
        struct message_to to;
        struct sfi_driver t = {};
        struct random r;
        uint64_t limit;

        random_init(&r, seed);
        p = (struct players){};
        c.n_ros = n_ros;
        c.port_bytes = port_bytes;
        c.buffer_bytes = 256u << 20;
        start_with_backlog(&t, &c, 40);
        limit = sfi_in_flight_max_bytes(&c);
        for (int turn = 0; turn < 200000 && sfi_counts(t.sfi).complete < 40; turn++) {
                while (next_request(&t, &to))
                        play_request(&p, to.index, &t.message, mean);
                for (uint64_t k = random_below(&r, 4); k > 0; k--)
                        play_frame(&p, &t, (uint16_t)random_below(&r, n_ros), mean);
                t.now_ns += random_below(&r, 50 * NS_PER_US);
                sfi_writes_with(&t, false);
        }
        assert_counts(sfi_event_counts(t.sfi), complete, 40, retried, 0);
        assert_int_equal(t.sfi->slots.in_flight_bytes, 0);
        assert_true(p.most_in_flight <= limit);
        /* A limit that is hardly used would be slow. */
        if (40 * n_ros * (uint64_t)mean > 8 * limit)
                assert_true(p.most_in_flight > limit / 3);
        sfi_free(t.sfi);
}

TEST(the_bytes_in_flight_stay_below_the_limit)
{
        for (uint64_t seed = 1; seed <= 20; seed++) {
                play(seed, 2 + seed % 7, 500 << seed % 9, UINT64_C(16384) << seed % 5);
                play(seed, 6, 20000, 4096); /* not even a frame for each ROS */
        }
}

BYTES_TEST(fragments_larger_than_the_limit_are_requested_in_ranges, 1, c.n_ros = 1,
           c.port_bytes = 8192 /* a batch of two frames */)
{
        assert_requests(t, 0, "ros0: Request e0[0,1408)");
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 1408, 6000));
        assert_requests(t, NS_PER_MS, "ros0: Request e0[1408,4224)");
        assert_requests(t, NS_PER_MS, "");
        sfi_gets_chunk(t, chunk_of(0, 0, 1408, 1408, 6000));
        sfi_gets_chunk(t, chunk_of(0, 0, 2816, 1408, 6000));
        assert_requests(t, 0, "ros0: Request e0[4224,6016)");
        sfi_gets_chunk(t, chunk_of(0, 0, 4224, 1776, 6000));
        assert_sfi_writes(t, "e0 complete");
}

BYTES_TEST(idle_ross_come_first, 1, c.n_ros = 3)
{
        char asked[1024] = "";

        requests_after(t, 0);
        requests_after(t, NS_PER_MS);
        for (uint16_t ros = 0; ros < 3; ros++)
                sfi_gets_chunk(t, chunk_of(ros, 0, 0, 1408, 1408));
        /* ROS 2 sends for another SFI, for 4 ms. */
        sfi_record_queued(t->sfi, t->now_ns, 2, 500000);
        sfi_gets_assigns(t, 1, 5);
        for (int k = 0; k < 20; k++) {
                const char *text = requests_after(t, 10 * NS_PER_US);

                snprintf(asked + strlen(asked), sizeof asked - strlen(asked), "%s%s",
                         asked[0] && text[0] ? " | " : "", text);
        }
        /* Once the others have nothing left, it gets its requests too. */
        assert_string_equal(asked,
                            "ros1: Request e1[0,1408) e2[0,1408) | ros0: Request e1[0,1408) e2[0,1408) | "
                            "ros1: Request e3[0,1408) e4[0,1408) | ros0: Request e3[0,1408) e4[0,1408) | "
                            "ros2: Request e1[0,1408) e2[0,1408) | ros2: Request e3[0,1408) e4[0,1408)");
}

BACKLOG_TEST(a_silent_ros_keeps_only_its_share, 50, c.n_ros = 6)
{
        struct players p = {};
        struct message_to to;

        for (int turn = 0; turn < 1000; turn++, t->now_ns += 5 * NS_PER_US) {
                while (next_request(t, &to)) {
                        if (to.index > 0)
                                play_request(&p, to.index, &t->message, 500);
                }
                for (uint16_t ros = 1; ros < 6; ros++)
                        play_frame(&p, t, ros, 500);
        }
        /* All others sent everything; ROS 0 holds a third. */
        assert_in_range(t->sfi->slots.in_flight_bytes, 1, LIMIT_BYTES / 3);
        for (uint16_t ros = 1; ros < 6; ros++)
                assert_int_equal(p.n[ros], 0);
        /* When it is gone, nothing is in flight. */
        sfi_gets_keep_alive(t, RUN_RUNNING, 0, 0x3e);
        assert_int_equal(t->sfi->slots.in_flight_bytes, 0);
}

BYTES_TEST(a_retry_asks_only_for_what_was_requested, 2, c.n_ros = 1, c.retry_after_ns = AFTER_NS,
           c.port_bytes = 8192)
{
        assert_requests(t, 0, "ros0: Request e0[0,1408) e1[0,1408)");
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 704, 6000));
        sfi_gets_chunk(t, chunk_of(0, 1, 0, 100, 100)); /* so the rest of the first range was lost */
        assert_int_equal(t->sfi->slots.in_flight_bytes, 704 + 150);
        assert_requests(t, AFTER_NS, "ros0: Request e0[704,1408) again 1 | ros0: Request e0[1408,4224)");
        assert_int_equal(t->sfi->slots.in_flight_bytes, 704 + 150 + 2 * WIRE_BYTES);
}

/* A fragment of several ranges, of which chunks are lost twice. A chunk that was requested after a retry
 * shows that the retry's answer is lost too. */
BYTES_TEST(each_loss_in_a_fragment_is_retried_at_once, 1, c.n_ros = 1, c.port_bytes = 13000,
           c.retry_after_ns = AFTER_NS)
{
        assert_requests(t, 0, "ros0: Request e0[0,1408)");
        sfi_count_datagram(t->sfi, 0, 0);
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 1408, 20000));
        assert_requests(t, NS_PER_MS, "ros0: Request e0[1408,4224) | ros0: Request e0[4224,7040)");
        sfi_count_datagram(t->sfi, 0, 2); /* 1 is lost, with [1408,2816) */
        sfi_gets_chunk(t, chunk_of(0, 0, 2816, 1408, 20000));
        assert_requests(t, 200 * NS_PER_US, "ros0: Request e0[1408,2816) again 1");
        for (uint32_t k = 3; k < 5; k++) { /* requested before the retry */
                sfi_count_datagram(t->sfi, 0, k);
                sfi_gets_chunk(t, chunk_of(0, 0, k * 1408, 1408, 20000));
        }
        assert_requests(t, NS_PER_MS, "ros0: Request e0[7040,9856)");
        for (uint32_t k = 5; k < 7; k++) { /* 5 is lost, the answer to the retry */
                sfi_count_datagram(t->sfi, 0, k + 1);
                sfi_gets_chunk(t, chunk_of(0, 0, k * 1408, 1408, 20000));
        }
        assert_requests(t, 200 * NS_PER_US, "ros0: Request e0[1408,2816) again 1");
        assert_int_equal(sfi_counts(t->sfi).retried, 2);
}

/* An event that returned to this SFI: a late answer to the first assignment makes a request needless, until
 * its bytes give way to an older event. */
BYTES_TEST(what_was_never_requested_is_requested_after_giving_way, 2)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two of these fill the buffer */

        sfi_gets_fragment(t, 0, 1);
        assert_requests(t, 0, "ros1: Request e0[0,1408) e1[0,1408) | ros0: Request e0[0,128)");
        assert_requests(t, NS_PER_MS, "");
        for (uint16_t ros = 0; ros < 2; ros++) {
                sfi_gets_chunk(t, chunk_of(ros, 0, 0, 128, big));
                sfi_gets_chunk(t, chunk_of(ros, 0, 128, big - 128, big));
        }
        assert_sfi_writes(t, "e0 complete");
        assert_int_equal(sfi_counts(t->sfi).no_room, 1);
        assert_non_null(strstr(requests_after(t, NS_PER_MS), "ros0: Request e1[0,"));
        sfi_gets_whole(t, 1);
        assert_sfi_writes(t, "e1 complete");
        assert_int_equal(t->sfi->slots.in_flight_bytes, 0);
}

static uint64_t newest_requested(struct sfi_driver *t)
{
        struct message_to to;
        uint64_t newest = 0;

        t->now_ns += NS_PER_MS; /* the port takes them all */
        while (next_request(t, &to)) {
                for (size_t k = 0; k < t->message.n; k++)
                        newest = MAX(newest, t->message.request.entries[k].event);
        }
        return newest;
}

/* Two events begin before the size of one is known. Then three quarters of the buffer bound them. */
BACKLOG_TEST(no_more_events_begin_than_the_memory_holds, 20, c.n_ros = 1,
             c.port_bytes = c.room_bytes = 64u << 20 /* no bound here */,
             c.port_rate_bps = UINT64_C(1000000000000))
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES / 4; /* eight of these fill the buffer */

        assert_int_equal(newest_requested(t), 1);
        for (uint64_t event = 0; event < 3; event++) {
                sfi_gets_chunk(t, chunk_of(0, event, 0, big, big));
                assert_int_equal(newest_requested(t), event == 0 ? 5 : 0); /* counts until it is written */
                sfi_writes_with(t, false);
                assert_int_equal(newest_requested(t), event + 6);
        }
        /* Of this one, a part came without a request, so it has memory, and the rest is requested. */
        sfi_gets_chunk(t, chunk_of(0, 12, 0, 128, big));
        assert_int_equal(newest_requested(t), 12);
}

/* What has no memory is not in flight. Its retry needs room in the limit. */
BYTES_TEST(a_refused_fragment_is_not_in_flight, 2)
{
        const uint32_t big = EVB_FRAGMENT_MAX_BYTES; /* two of these fill the buffer */

        assert_requests(t, 0, "ros1: Request e0[0,1408) e1[0,1408) | ros0: Request e0[0,1408) e1[0,1408)");
        sfi_gets_chunk(t, chunk_of(0, 0, 0, 1408, big));
        sfi_gets_chunk(t, chunk_of(1, 0, 0, 1408, big));
        assert_int_equal(t->sfi->slots.in_flight_bytes, 2 * WIRE_BYTES);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 1, 0, 704, big)), SFI_NO_ROOM);
        assert_int_equal(t->sfi->slots.in_flight_bytes, 2 * WIRE_BYTES - 704);
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 1, 704, 704, big)), SFI_NO_ROOM);
        assert_int_equal(t->sfi->slots.in_flight_bytes, WIRE_BYTES);
        /* Twice is not more. */
        assert_int_equal(sfi_gets_chunk(t, chunk_of(0, 1, 704, 704, big)), SFI_NO_ROOM);
        assert_int_equal(t->sfi->slots.in_flight_bytes, WIRE_BYTES);
        /* The oldest event continues. */
        assert_non_null(strstr(requests_after(t, NS_PER_MS), "ros0: Request e0[1408,"));
        for (uint16_t ros = 0; ros < 2; ros++)
                sfi_gets_chunk(t, chunk_of(ros, 0, 1408, big - 1408, big));
        assert_sfi_writes(t, "e0 complete");
        assert_non_null(strstr(requests_after(t, 20 * AFTER_NS), "ros0: Request e1[0,1408) again 1"));
        for (uint16_t ros = 0; ros < 2; ros++)
                sfi_gets_chunk(t, chunk_of(ros, 1, 0, big, big));
        assert_sfi_writes(t, "e1 complete");
        assert_int_equal(t->sfi->slots.in_flight_bytes, 0);
}
