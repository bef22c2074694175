/* Runs the program of an exact port with packets of chosen size and arrival, and compares each decision with
 * the same arithmetic in C. */
#include "../test.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "evb/launch/exact_port.h"
#include "evb/sys/loop.h"

#define PACKETS 5000
#define FRAME_LEAST 60u
#define FRAME_MOST 1514u
#define SUPER_MOST 40u

struct packet {
        uint64_t arrival_ns;
        uint32_t bytes, segments; /* 0 segments: no super-packet */
};

/* Returns the program's decision. */
static uint32_t decide(const struct exact_port *port, const struct packet *p)
{
        uint8_t frame[FRAME_LEAST] = {[12] = 0x08};
        struct __sk_buff context = {.tstamp = p->arrival_ns,
                                    .wire_len = p->bytes,
                                    .gso_segs = p->segments,
                                    .gso_size = p->segments > 0 ? 1400 : 0};
        union bpf_attr attr = {.test = {.prog_fd = (uint32_t)exact_port_program(port),
                                        .data_in = (uint64_t)(uintptr_t)frame,
                                        .data_size_in = sizeof frame,
                                        .ctx_in = (uint64_t)(uintptr_t)&context,
                                        .ctx_size_in = sizeof context}};

        assert_return_code(syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof attr), errno);
        return attr.test.retval;
}

static struct exact_port *new_port(uint64_t rate_bps, uint64_t buffer_bytes)
{
        struct exact_port *port = NULL;
        int r = exact_port_new(&port, EXACT_PORT_TIMESTAMP, rate_bps, buffer_bytes);

        if (r == -EPERM || r == -ENOSYS) {
                print_message("SKIPPED: %s\n",
                              r == -EPERM ? "loading a BPF program needs root" : "no bpf system call");
                skip();
        }
        assert_return_code(r, -r);
        return port;
}

/* The rule of exact_port.h, with one division per value and no processor that interferes. */
struct queue {
        uint64_t rate_bps, buffer_bytes, end_ps;
};

static bool queue_takes(struct queue *q, const struct packet *p)
{
        unsigned __int128 ps_per_s = 1000000000000;
        uint64_t arrival_ps = p->arrival_ns * 1000,
                 cost_ps = (uint64_t)((unsigned __int128)p->bytes * 8 * ps_per_s / q->rate_bps),
                 first_ps = p->segments > 1 ? cost_ps / p->segments : cost_ps,
                 start_ps = arrival_ps - (cost_ps - first_ps), end_ps = MAX(q->end_ps, start_ps) + cost_ps,
                 buffer_ps = (uint64_t)((unsigned __int128)q->buffer_bytes * 8 * ps_per_s / q->rate_bps);

        if (end_ps > arrival_ps && end_ps - arrival_ps > buffer_ps)
                return false;
        q->end_ps = end_ps;
        return true;
}

static uint64_t random_next(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return *state >> 33;
}

/* Bursts, trains at and around the port's rate, and pauses. The mean load is some 120 %. */
static void make_packet(struct packet *p, uint64_t *seed, uint64_t rate_bps, uint64_t now_ns)
{
        bool super = random_next(seed) % 20 == 0;
        uint64_t kind = random_next(seed) % 100, cost_ns;

        p->segments = super ? 2 + (uint32_t)(random_next(seed) % (SUPER_MOST - 1)) : 0;
        p->bytes = FRAME_LEAST + (uint32_t)(random_next(seed) % (FRAME_MOST - FRAME_LEAST + 1));
        if (super)
                p->bytes = p->segments * FRAME_MOST - (uint32_t)(random_next(seed) % FRAME_MOST);
        cost_ns = p->bytes * UINT64_C(8000000000) / rate_bps;
        p->arrival_ns = now_ns + (kind < 40   ? 0
                                  : kind < 99 ? random_next(seed) % (cost_ns + 2)
                                              : random_next(seed) % (100 * cost_ns + 2));
}

static void compare(uint64_t rate_bps, uint64_t buffer_bytes, uint64_t seed)
{
        struct exact_port *port = new_port(rate_bps, buffer_bytes);
        /* The port is idle until it is made. */
        uint64_t now_ns = clock_now_ns() + NS_PER_S, carried = 0, dropped = 0, carried_bytes = 0,
                 dropped_bytes = 0;
        struct queue queue = {rate_bps, buffer_bytes, 0};
        struct exact_port_counts counts;

        for (unsigned i = 0; i < PACKETS; i++) {
                struct packet p;
                bool takes;

                make_packet(&p, &seed, rate_bps, now_ns);
                now_ns = p.arrival_ns;
                takes = queue_takes(&queue, &p);
                if (decide(port, &p) != (takes ? (uint32_t)TC_ACT_UNSPEC : TC_ACT_SHOT))
                        fail_msg("rate %llu, buffer %llu: packet %u of %u bytes is %s",
                                 (unsigned long long)rate_bps, (unsigned long long)buffer_bytes, i, p.bytes,
                                 takes ? "dropped" : "carried");
                *(takes ? &carried : &dropped) += MAX(p.segments, 1u);
                *(takes ? &carried_bytes : &dropped_bytes) += p.bytes;
        }
        assert_return_code(exact_port_read(port, &counts), 0);
        exact_port_free(port);
        assert_int_equal(counts.packets, carried);
        assert_int_equal(counts.bytes, carried_bytes);
        assert_int_equal(counts.dropped_packets, dropped);
        assert_int_equal(counts.dropped_bytes, dropped_bytes);
        assert_int_equal(counts.contended_packets, 0);
        assert_true(carried > PACKETS / 4 && dropped > PACKETS / 100);
}

static void the_program_does_the_arithmetic(void **state)
{
        static const struct {
                uint64_t rate_bps, buffer_bytes;
        } cases[] = {
                {10000000, 4096},          {1000000000, 64 << 10}, {1000000000, 256 << 10},
                {123456789, 100000},       {10000000000, 1 << 20}, {99999999999, 65536},
                {400000000000, 512 << 10},
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                compare(cases[i].rate_bps, cases[i].buffer_bytes, 20260000 + i);
}

/* A byte at 400 Gbit/s takes 20 ps: packets back to back for 100 us fill the buffer at the same byte as
 * packets that all arrive at once. */
static void nothing_is_lost_to_rounding(void **state)
{
        enum { N = 1000, BYTES = 1250 }; /* 25 ns each */
        struct exact_port *port = new_port(400000000000, BYTES);
        uint64_t begin_ns = clock_now_ns() + NS_PER_MS;
        struct exact_port_counts counts;

        (void)state;
        for (unsigned i = 0; i < N; i++) {
                struct packet p = {begin_ns + UINT64_C(25) * i, BYTES, 0};

                assert_int_equal(decide(port, &p), (uint32_t)TC_ACT_UNSPEC);
                p.bytes = FRAME_LEAST;
                assert_int_equal(decide(port, &p), TC_ACT_SHOT);
        }
        assert_return_code(exact_port_read(port, &counts), 0);
        assert_int_equal(counts.packets, N);
        assert_int_equal(counts.dropped_packets, N);
        exact_port_free(port);
}

/* A super-packet arrives at the rate of its link. Its first segments have left when its last one comes. */
static void a_super_packet_counts_as_its_segments(void **state)
{
        struct exact_port *port = new_port(1000000000, 2 * FRAME_MOST);
        uint64_t now_ns = clock_now_ns() + 10 * NS_PER_MS;
        struct packet p = {now_ns, 40 * FRAME_MOST, 40};

        (void)state;
        assert_int_equal(decide(port, &p), (uint32_t)TC_ACT_UNSPEC);
        /* One segment is in the buffer: one more fits, and then none. */
        p.bytes = FRAME_MOST, p.segments = 0;
        assert_int_equal(decide(port, &p), (uint32_t)TC_ACT_UNSPEC);
        assert_int_equal(decide(port, &p), TC_ACT_SHOT);
        exact_port_free(port);
}

struct sender {
        const struct exact_port *port;
        struct packet packet;
        pthread_barrier_t *start;
};

static void *send_all(void *arg)
{
        struct sender *s = arg;

        pthread_barrier_wait(s->start);
        for (unsigned i = 0; i < PACKETS; i++)
                decide(s->port, &s->packet);
        return NULL;
}

static void processors_share_a_port(void **state)
{
        enum { THREADS = 4, FIT = 7000, BYTES = 1000 };
        struct exact_port *port = new_port(1000000000, FIT * BYTES);
        uint64_t now_ns = clock_now_ns() + NS_PER_MS;
        struct sender senders[THREADS];
        pthread_t threads[THREADS];
        pthread_barrier_t start;
        struct exact_port_counts counts;

        (void)state;
        pthread_barrier_init(&start, NULL, THREADS);
        for (unsigned i = 0; i < THREADS; i++) {
                senders[i] = (struct sender){port, {now_ns, BYTES, 0}, &start};
                assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&start);
        assert_return_code(exact_port_read(port, &counts), 0);
        assert_int_equal(counts.packets + counts.dropped_packets, THREADS * PACKETS);
        assert_in_range(counts.packets, FIT, FIT + counts.contended_packets);
        exact_port_free(port);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_program_does_the_arithmetic),
                cmocka_unit_test(nothing_is_lost_to_rounding),
                cmocka_unit_test(a_super_packet_counts_as_its_segments),
                cmocka_unit_test(processors_share_a_port),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
