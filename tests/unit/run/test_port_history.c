/* Lets an exact port decide packets later than they arrived, as links do that lag behind, and compares what
 * it drops with the same arithmetic in the order of arrivals. */
#include "port_decision.h"

DEFINE_FREEP(exact_port)

#define RATE_BPS UINT64_C(1000000000)
#define NS_PER_BYTE UINT64_C(8)
#define FRAME_NS (FRAME_MOST * NS_PER_BYTE)
#define BUFFER_BYTES 65536u
#define FIT (BUFFER_BYTES / FRAME_MOST)
#define LINKS_MOST 6
#define PACKETS_MOST 60000
#define LENGTH_NS (80 * NS_PER_MS)
#define SEEDS 24

/* One packet, and when it is decided. */
struct passage {
        struct packet packet;
        uint64_t decided_ns;
};

struct run {
        uint64_t buffer_bytes;
        size_t n;
        struct passage passages[PACKETS_MOST];
};

/* A link's packets arrive one after another, each some time after the one before, and are decided late. */
struct link {
        uint64_t at_ns, decided_ns;
};

static void add(struct run *r, struct link *link, uint64_t gap_ns, struct packet packet, uint64_t lag_ns)
{
        assert_true(r->n < PACKETS_MOST);
        packet.arrival_ns = link->at_ns += gap_ns;
        link->decided_ns = MAX(link->decided_ns, link->at_ns + lag_ns);
        r->passages[r->n++] = (struct passage){packet, link->decided_ns};
}

/* A stream that needs `percent` of the port's rate, with `segments` to a packet (0: no super-packets). */
static void add_stream(struct run *r, uint64_t begin_ns, unsigned percent, uint64_t lag_ns, unsigned segments)
{
        const uint32_t bytes = MAX(segments, 1u) * FRAME_MOST;
        struct link link = {begin_ns, 0};

        while (link.at_ns < begin_ns + LENGTH_NS)
                add(r, &link, bytes * NS_PER_BYTE * 100 / percent,
                    (struct packet){.bytes = bytes, .segments = segments}, lag_ns);
}

static int by_arrival(const void *a, const void *b)
{
        const struct passage *x = a, *y = b;

        return (x->packet.arrival_ns > y->packet.arrival_ns) - (x->packet.arrival_ns < y->packet.arrival_ns);
}

static int by_decision(const void *a, const void *b)
{
        const struct passage *x = a, *y = b;

        return x->decided_ns != y->decided_ns
                       ? (x->decided_ns > y->decided_ns) - (x->decided_ns < y->decided_ns)
                       : by_arrival(a, b);
}

static void decide_all(struct run *r, const struct exact_port *port, struct exact_port_counts *ret)
{
        qsort(r->passages, r->n, sizeof r->passages[0], by_decision);
        for (size_t i = 0; i < r->n; i++)
                decide(port, &r->passages[i].packet);
        assert_return_code(exact_port_read(port, ret), 0);
}

/* Returns what the program drops, and what a port drops that decides packets in the order of arrivals. */
static uint64_t compare(struct run *r, uint64_t *ret_ideal_bytes)
{
        struct exact_port *port = new_port(RATE_BPS, r->buffer_bytes);
        struct queue ideal = {RATE_BPS, r->buffer_bytes, 0};
        struct exact_port_counts counts;

        qsort(r->passages, r->n, sizeof r->passages[0], by_arrival);
        *ret_ideal_bytes = 0;
        for (size_t i = 0; i < r->n; i++)
                if (!queue_takes(&ideal, &r->passages[i].packet))
                        *ret_ideal_bytes += r->passages[i].packet.bytes;
        decide_all(r, port, &counts);
        exact_port_free(port);
        return counts.dropped_bytes;
}

/* Links that together need less than the port's rate lose nothing, however late one of them is. */
static void assert_nothing_is_lost(struct run *r, uint64_t lag_ns)
{
        uint64_t ideal_bytes, dropped_bytes = compare(r, &ideal_bytes);

        assert_int_equal(ideal_bytes, 0);
        if (dropped_bytes > 0)
                fail_msg("lag %llu ns, buffer %llu: dropped %llu bytes", (unsigned long long)lag_ns,
                         (unsigned long long)r->buffer_bytes, (unsigned long long)dropped_bytes);
}

/* A port takes no packet from before it was made, and a test may wait long for a processor until it makes
 * one. */
static uint64_t begin_ns(void)
{
        return clock_now_ns() + 3600 * NS_PER_S;
}

static const uint64_t lags_ns[] = {20 * NS_PER_US, 200 * NS_PER_US, NS_PER_MS, 5 * NS_PER_MS, 50 * NS_PER_MS};

static const uint64_t buffers[] = {8192, BUFFER_BYTES, 256 << 10};

TEST_EACH(a_lagging_link_loses_nothing, i, ARRAY_SIZE(lags_ns) * ARRAY_SIZE(buffers))
{
        static struct run run;
        uint64_t at_ns = begin_ns(), lag_ns = lags_ns[i % ARRAY_SIZE(lags_ns)];

        run.n = 0, run.buffer_bytes = buffers[i / ARRAY_SIZE(lags_ns)];
        add_stream(&run, at_ns, 40, 0, 0);
        add_stream(&run, at_ns, 55, lag_ns, 0);
        assert_nothing_is_lost(&run, lag_ns);
}

/* A sender fills its link; now and then somebody else's small packet is on time. */
TEST_EACH(a_flooding_link_loses_nothing, i, ARRAY_SIZE(lags_ns))
{
        static struct run run;
        uint64_t at_ns = begin_ns();
        struct link control = {at_ns, 0};

        run.n = 0, run.buffer_bytes = BUFFER_BYTES;
        add_stream(&run, at_ns, 100, lags_ns[i], 0);
        while (control.at_ns < at_ns + LENGTH_NS)
                add(&run, &control, NS_PER_MS, (struct packet){.bytes = FRAME_LEAST}, 0);
        assert_nothing_is_lost(&run, lags_ns[i]);
}

TEST_EACH(late_super_packets_lose_nothing, i, ARRAY_SIZE(lags_ns))
{
        static struct run run;
        uint64_t at_ns = begin_ns();

        run.n = 0, run.buffer_bytes = BUFFER_BYTES;
        add_stream(&run, at_ns, 40, 0, i % 2 == 0 ? 0 : 10);
        add_stream(&run, at_ns, 55, lags_ns[i], 20);
        assert_nothing_is_lost(&run, lags_ns[i]);
}

/* Two links offer a fifth more than the port's rate. */
TEST_EACH(an_overload_loses_as_much, i, ARRAY_SIZE(lags_ns))
{
        static struct run run;
        uint64_t at_ns = begin_ns(), ideal_bytes, dropped_bytes;

        run.n = 0, run.buffer_bytes = BUFFER_BYTES;
        add_stream(&run, at_ns, 60, 0, 0);
        add_stream(&run, at_ns, 60, lags_ns[i], 0);
        dropped_bytes = compare(&run, &ideal_bytes);
        assert_true(ideal_bytes > run.n * FRAME_MOST / 10);
        assert_in_range(dropped_bytes, ideal_bytes - BUFFER_BYTES / 8, ideal_bytes + BUFFER_BYTES / 8);
}

/* A port is full of large packets when small ones come late: it drops large ones, as if none were late. */
TEST(small_packets_find_room)
{
        enum { PERIOD_NS = 2000000 };
        static struct run run;
        struct exact_port *port = new_port(RATE_BPS, BUFFER_BYTES);
        uint64_t at_ns = begin_ns(), dropped_bytes, ideal_bytes;
        struct link control = {at_ns + FRAME_NS / 2, 0};
        struct exact_port_counts counts;

        run.n = 0, run.buffer_bytes = BUFFER_BYTES;
        for (unsigned i = 0; i < FIT; i++)
                add(&run, &(struct link){at_ns, 0}, 0, (struct packet){.bytes = FRAME_MOST}, 0);
        add_stream(&run, at_ns, 100, 0, 0);
        while (control.at_ns < at_ns + LENGTH_NS)
                add(&run, &control, PERIOD_NS, (struct packet){.bytes = 200}, 150 * NS_PER_US);
        decide_all(&run, port, &counts);
        exact_port_free(port);
        assert_in_range(counts.dropped_packets, 1, 200 * LENGTH_NS / PERIOD_NS / FRAME_MOST + 2);
        dropped_bytes = compare(&run, &ideal_bytes);
        assert_in_range(dropped_bytes, ideal_bytes - FRAME_MOST, ideal_bytes + FRAME_MOST);
}

/* Links that send bursts and pause, at 60 to 130 % of the port's rate. All but one lag by up to 30 ms. */
static void add_links(struct run *r, uint64_t *seed)
{
        unsigned n = 2 + (unsigned)(random_next(seed) % (LINKS_MOST - 1)),
                 load = 60 + (unsigned)(random_next(seed) % 70);
        uint64_t at_ns = begin_ns();

        for (unsigned i = 0; i < n; i++) {
                struct link link = {at_ns, 0};
                uint64_t lag_ns = 0, frames = 2 + 2 * (random_next(seed) % 30);

                while (link.at_ns < at_ns + LENGTH_NS) {
                        uint64_t burst_ns = 0;

                        if (i > 0 && random_next(seed) % 10 == 0)
                                lag_ns = random_next(seed) % (30 * NS_PER_MS);
                        for (uint64_t k = random_next(seed) % frames + 1; k > 0; k--) {
                                uint32_t bytes = FRAME_LEAST +
                                                 (uint32_t)(random_next(seed) % (FRAME_MOST - FRAME_LEAST));

                                add(r, &link, bytes * NS_PER_BYTE, (struct packet){.bytes = bytes}, lag_ns);
                                burst_ns += bytes * NS_PER_BYTE;
                        }
                        link.at_ns += random_next(seed) % (2 * (burst_ns * 100 * n / load - burst_ns) + 1);
                }
        }
}

/* A slot does not know the order in it. So the port may carry somewhat more than an ideal one. */
TEST(random_links_lose_as_much)
{
        static struct run run;

        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
                uint64_t s = seed, ideal_bytes, dropped_bytes, offered_bytes = 0;

                run.n = 0, run.buffer_bytes = UINT64_C(8192) << random_next(&s) % 6;
                add_links(&run, &s);
                for (size_t i = 0; i < run.n; i++)
                        offered_bytes += run.passages[i].packet.bytes;
                dropped_bytes = compare(&run, &ideal_bytes);
                if (dropped_bytes > ideal_bytes + run.buffer_bytes / 8 ||
                    dropped_bytes + offered_bytes / 50 < ideal_bytes)
                        fail_msg("seed %llu: of %llu bytes, dropped %llu and not %llu",
                                 (unsigned long long)seed, (unsigned long long)offered_bytes,
                                 (unsigned long long)dropped_bytes, (unsigned long long)ideal_bytes);
        }
}

static bool carries(const struct exact_port *port, uint64_t arrival_ns)
{
        return decide(port, &(struct packet){.arrival_ns = arrival_ns, .bytes = FRAME_MOST}) != TC_ACT_SHOT;
}

/* The port is idle, and full from then on. */
TEST(idle_time_is_used_once_and_in_order)
{
        enum { IDLE_FRAMES = 200, BUSY_FRAMES = 400 };
        _cleanup_(exact_port_freep) struct exact_port *port = new_port(RATE_BPS, BUFFER_BYTES);
        uint64_t at_ns = begin_ns(), front_ns = at_ns + (uint64_t)BUSY_FRAMES * FRAME_NS;
        unsigned carried = 0, behind = 0;

        for (unsigned i = 0; i < FIT; i++)
                assert_true(carries(port, at_ns));
        for (unsigned i = 1; i <= BUSY_FRAMES; i++)
                assert_true(carries(port, at_ns + (uint64_t)i * FRAME_NS));
        /* It was full when these arrived; that it was idle before does not help them. One may be carried at
         * the cost of another. */
        for (unsigned i = 5; i < BUSY_FRAMES; i++)
                behind += carries(port, at_ns + (uint64_t)i * FRAME_NS);
        assert_in_range(behind, 0, 1);
        /* These came before, and meet the idle time. */
        for (unsigned i = 0; i < 2 * IDLE_FRAMES; i++)
                carried += carries(port, at_ns - (i % IDLE_FRAMES + 1) * FRAME_NS);
        assert_in_range(carried, IDLE_FRAMES - 1, IDLE_FRAMES + 1);
        /* They have not changed the present. */
        assert_int_equal(carries(port, front_ns + FRAME_NS), behind == 0);
        assert_true(carries(port, front_ns + 2 * FRAME_NS));
        assert_false(carries(port, front_ns + 2 * FRAME_NS));
}

/* A packet from a time before the history arrives at the front. */
TEST(the_history_is_finite)
{
        _cleanup_(exact_port_freep) struct exact_port *port = new_port(RATE_BPS, BUFFER_BYTES);
        uint64_t at_ns = begin_ns();

        assert_true(carries(port, at_ns));
        for (unsigned i = 1; i < FIT; i++)
                assert_true(carries(port, at_ns - NS_PER_S));
        assert_false(carries(port, at_ns - NS_PER_S));
        assert_true(carries(port, at_ns - NS_PER_MS));
}

/* Times in ps wrap while one link lags. */
TEST(times_wrap)
{
        _cleanup_(exact_port_freep) struct exact_port *port = new_port(RATE_BPS, BUFFER_BYTES);
        const uint64_t wrap_ns = UINT64_MAX / 1000, day_ns = UINT64_C(86400) * NS_PER_S;
        static struct run run;
        struct exact_port_counts counts;

        /* Only times that are less than half of the range apart can be compared. */
        for (uint64_t at_ns = begin_ns(); at_ns < wrap_ns - NS_PER_S;
             at_ns += MIN(60 * day_ns, wrap_ns - at_ns - NS_PER_S))
                assert_true(carries(port, at_ns));
        run.n = 0;
        add_stream(&run, wrap_ns - LENGTH_NS / 2, 40, 0, 0);
        add_stream(&run, wrap_ns - LENGTH_NS / 2, 55, 5 * NS_PER_MS, 0);
        decide_all(&run, port, &counts);
        assert_int_equal(counts.dropped_packets, 0);
}
