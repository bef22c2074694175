/* Runs the program of an exact port with packets of chosen size and arrival, and compares each decision with
 * the same arithmetic in C. */
#include "port_decision.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

DEFINE_FREEP(exact_port)

#define PACKETS 5000
#define SUPER_MOST 40u

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
        assert_fields(&counts, packets, carried, bytes, carried_bytes, dropped_packets, dropped,
                      dropped_bytes, dropped_bytes);
        assert_true(carried > PACKETS / 4 && dropped > PACKETS / 100);
}

TEST(the_program_does_the_arithmetic)
{
        static const struct {
                uint64_t rate_bps, buffer_bytes;
        } cases[] = {
                {10000000, 4096},          {1000000000, 64 << 10}, {1000000000, 256 << 10},
                {123456789, 100000},       {10000000000, 1 << 20}, {99999999999, 65536},
                {400000000000, 512 << 10},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                compare(cases[i].rate_bps, cases[i].buffer_bytes, 20260000 + i);
}

/* A byte at 400 Gbit/s takes 20 ps: packets back to back for 100 us fill the buffer at the same byte as
 * packets that all arrive at once. */
TEST(nothing_is_lost_to_rounding)
{
        enum { N = 1000, BYTES = 1250 }; /* 25 ns each */
        _cleanup_(exact_port_freep) struct exact_port *port = new_port(400000000000, BYTES);
        uint64_t begin_ns = clock_now_ns() + NS_PER_MS;
        struct exact_port_counts counts;

        for (unsigned i = 0; i < N; i++) {
                struct packet p = {begin_ns + UINT64_C(25) * i, BYTES, 0};

                assert_int_equal(decide(port, &p), (uint32_t)TC_ACT_UNSPEC);
                p.bytes = FRAME_LEAST;
                assert_int_equal(decide(port, &p), TC_ACT_SHOT);
        }
        assert_return_code(exact_port_read(port, &counts), 0);
        assert_fields(&counts, packets, N, dropped_packets, N);
}

/* A super-packet arrives at the rate of its link. Its first segments have left when its last one comes. */
TEST(a_super_packet_counts_as_its_segments)
{
        _cleanup_(exact_port_freep) struct exact_port *port = new_port(1000000000, 2 * FRAME_MOST);
        uint64_t now_ns = clock_now_ns() + 10 * NS_PER_MS;
        struct packet p = {now_ns, 40 * FRAME_MOST, 40};

        assert_int_equal(decide(port, &p), (uint32_t)TC_ACT_UNSPEC);
        /* One segment is in the buffer: one more fits, and then none. */
        p.bytes = FRAME_MOST, p.segments = 0;
        assert_int_equal(decide(port, &p), (uint32_t)TC_ACT_UNSPEC);
        assert_int_equal(decide(port, &p), TC_ACT_SHOT);
}

/* Runs the stamp for a frame and returns its mark. */
static uint32_t stamp(const struct exact_port *port, uint64_t timestamp_ns)
{
        static const uint8_t frame[FRAME_MOST] = {[12] = 0x08};
        static uint8_t out[FRAME_MOST];
        struct __sk_buff context = {.tstamp = timestamp_ns}, after = {};
        union bpf_attr attr = {.test = {.prog_fd = (uint32_t)exact_port_stamp(port),
                                        .data_in = (uint64_t)(uintptr_t)frame,
                                        .data_size_in = sizeof frame,
                                        .data_out = (uint64_t)(uintptr_t)out,
                                        .data_size_out = sizeof out,
                                        .ctx_in = (uint64_t)(uintptr_t)&context,
                                        .ctx_size_in = sizeof context,
                                        .ctx_out = (uint64_t)(uintptr_t)&after,
                                        .ctx_size_out = sizeof after}};

        assert_return_code(syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof attr), errno);
        assert_int_equal(attr.test.retval, (uint32_t)TC_ACT_UNSPEC);
        return after.mark;
}

/* At 100 kbit/s, a frame takes 121 ms: so long that the test's own delays do not matter. */
#define FRAME_NS 121120000

TEST(a_link_sends_one_frame_after_another)
{
        const struct exact_port_config config = {.rate_bps = 100000, .buffer_bytes = 1 << 20};
        uint64_t departure_ns, before_ns, after_ns;
        uint32_t marks[6], future, past;
        struct timespec now;
        int64_t late_ns;
        int tries = 0;

        /* Repeated if the test got no processor until the link was idle again. */
        do {
                _cleanup_(exact_port_freep) struct exact_port *port = open_port(&config);

                before_ns = clock_now_ns();
                clock_gettime(CLOCK_REALTIME, &now);
                after_ns = clock_now_ns();
                departure_ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
                usleep(20000);
                for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
                        marks[i] = stamp(port, departure_ns);
                future = stamp(port, departure_ns + NS_PER_S * 3600);
                past = stamp(port, departure_ns - NS_PER_S * 3600);
        } while (clock_now_ns() - before_ns > UINT64_C(4) * FRAME_NS && tries++ < 100);
        /* It left at the timestamp, not when the program ran, and arrives once it is sent. */
        late_ns = (int32_t)(marks[0] - (uint32_t)(before_ns + FRAME_NS));
        assert_true(late_ns > -(int64_t)NS_PER_MS && late_ns < (int64_t)(after_ns - before_ns + NS_PER_MS));
        for (size_t i = 1; i < ARRAY_SIZE(marks); i++)
                assert_int_equal(marks[i] - marks[i - 1], FRAME_NS);
        /* Timestamps in the future and from long ago are not the kernel's: such a frame leaves now. */
        assert_int_equal(future - marks[5], FRAME_NS);
        assert_int_equal(past - marks[5], 2 * FRAME_NS);
}

/* Marks are in ns, which do not wrap with the picoseconds. */
TEST(marks_outlast_the_picoseconds)
{
        _cleanup_(exact_port_freep) struct exact_port *port = new_port(100000, 1 << 20);
        uint64_t departure_ns = UINT64_MAX / 1000 + 1 + clock_now_ns() + NS_PER_S;

        for (unsigned i = 1; i <= 5; i++)
                assert_int_equal(stamp(port, departure_ns),
                                 (uint32_t)(departure_ns + (uint64_t)i * FRAME_NS));
}

/* Returns the decision of the program that the testbed uses, for a frame with a mark. */
static uint32_t decide_marked(const struct exact_port *port, uint32_t from, uint64_t arrival_ns)
{
        struct __sk_buff context = {
                .ingress_ifindex = from, .mark = (uint32_t)arrival_ns, .wire_len = FRAME_MOST};

        return run_decision(port, &context);
}

/* Frames that were stamped one after another do not collide because they are decided together. */
TEST(marks_are_arrivals)
{
        enum { N = 50, EACH_NS = 1211200 };
        const struct exact_port_config config = {
                .rate_bps = 10000000, .buffer_bytes = FRAME_MOST, .burst_bytes = 16384};
        _cleanup_(exact_port_freep) struct exact_port *port = open_port(&config);
        uint64_t now_ns;

        usleep(100000);
        now_ns = clock_now_ns() - 100000000 + EACH_NS;
        for (unsigned i = 0; i < N; i++) {
                uint64_t at_ns = now_ns + i * (uint64_t)EACH_NS;

                at_ns += (uint32_t)at_ns == 0;
                assert_int_equal(decide_marked(port, 1, at_ns), (uint32_t)TC_ACT_UNSPEC);
                assert_int_equal(decide_marked(port, 1, at_ns), TC_ACT_SHOT);
        }
        /* A mark of the bridge's own packet is not one of ours. It arrives now, when the port is idle. */
        usleep(100000);
        assert_int_equal(decide_marked(port, 0, now_ns), (uint32_t)TC_ACT_UNSPEC);
}

/* A link that needs seconds for its burst: its frames count as arriving when the link has sent them. */
TEST(a_slow_link_is_ahead)
{
        enum { EACH_NS = 302800000 };
        const struct exact_port_config config = {
                .rate_bps = 40000, .buffer_bytes = FRAME_MOST, .burst_bytes = 16384};
        _cleanup_(exact_port_freep) struct exact_port *port = open_port(&config);
        uint64_t now_ns = clock_now_ns();

        for (unsigned i = 1; i <= 3; i++) {
                uint64_t at_ns = now_ns + i * (uint64_t)EACH_NS;

                at_ns += (uint32_t)at_ns == 0;
                assert_int_equal(decide_marked(port, 1, at_ns), (uint32_t)TC_ACT_UNSPEC);
                assert_int_equal(decide_marked(port, 1, at_ns), TC_ACT_SHOT);
        }
}

#define RUNS 200000

struct sender {
        const struct exact_port *port;
        uint64_t arrival_ns;
        uint32_t bytes;
        pthread_barrier_t *start;
        int error;
};

/* One system call runs the program many times, so that processors do meet. */
static void *send_all(void *arg)
{
        struct sender *s = arg;
        uint8_t frame[FRAME_LEAST] = {[12] = 0x08};
        struct __sk_buff context = {.tstamp = s->arrival_ns, .wire_len = s->bytes};
        union bpf_attr attr = {.test = {.prog_fd = (uint32_t)exact_port_decision(s->port),
                                        .data_in = (uint64_t)(uintptr_t)frame,
                                        .data_size_in = sizeof frame,
                                        .ctx_in = (uint64_t)(uintptr_t)&context,
                                        .ctx_size_in = sizeof context,
                                        .repeat = RUNS}};

        pthread_barrier_wait(s->start);
        s->error = syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof attr) < 0 ? errno : 0;
        return NULL;
}

TEST(processors_share_a_port)
{
        enum { THREADS = 4, FIT = 700000, BYTES = 1000 };
        _cleanup_(exact_port_freep) struct exact_port *port = new_port(1000000000, (uint64_t)FIT * BYTES);
        uint64_t now_ns = clock_now_ns() + NS_PER_MS;
        struct sender senders[THREADS];
        pthread_t threads[THREADS];
        pthread_barrier_t start;
        struct exact_port_counts counts;

        pthread_barrier_init(&start, NULL, THREADS);
        for (unsigned i = 0; i < THREADS; i++) {
                senders[i] = (struct sender){port, now_ns, BYTES, &start, 0};
                assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++) {
                pthread_join(threads[i], NULL);
                assert_int_equal(senders[i].error, 0);
        }
        pthread_barrier_destroy(&start);
        assert_return_code(exact_port_read(port, &counts), 0);
        assert_int_equal(counts.packets + counts.dropped_packets, THREADS * RUNS);
        assert_int_equal(counts.packets, FIT);
}

static void ignore(int number) {}

/* A signal ends the kernel's check of a program. */
TEST(a_signal_does_not_prevent_a_port)
{
        struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART}, before;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        timer_t timer;

        assert_return_code(sigaction(SIGUSR1, &action, &before), errno);
        assert_return_code(timer_create(CLOCK_MONOTONIC, &event, &timer), errno);
        for (long i = 1; i <= 40; i++) {
                struct itimerspec once = {.it_value.tv_nsec = i * 100000};

                assert_return_code(timer_settime(timer, 0, &once, NULL), errno);
                exact_port_free(new_port(1000000000, 65536));
        }
        timer_delete(timer);
        assert_return_code(sigaction(SIGUSR1, &before, NULL), errno);
}
