/* The schedule of packets: no time is lost to rounding, and a delay is caught up gently. */
#include "../test.h"

#include "stream/rules/timing.h"

#define START_NS UINT64_C(1000000000)

/* Sends n packets, each exactly when it is due; returns when the next one is. */
static uint64_t run(struct spacing *s, uint64_t n)
{
        spacing_start(s, START_NS);
        for (uint64_t i = 0; i < n; i++)
                spacing_sent(s, spacing_due_ns(s), 1);
        return s->due_ns - START_NS;
}

TEST(a_million_packets_take_exactly_their_time)
{
        struct spacing s;

        spacing_init(&s, 12000, 1, 0, 1);
        assert_int_equal(run(&s, 1000000), UINT64_C(12000000000));
        /* 1456 bytes at 940 Mbit/s are 12391.489... ns: whole nanoseconds would lose half a millisecond. */
        spacing_init(&s, UINT64_C(1456) * 8 * NS_PER_S, 940000000, 0, 1);
        assert_int_equal(run(&s, 1000000), UINT64_C(1456) * 8 * 1000000 * NS_PER_S / 940000000);
        /* Three packets in 10 ns, at the limits of the arithmetic. */
        spacing_init(&s, 10, 3, 0, 1);
        assert_int_equal(run(&s, 3000000), 10000000);
        spacing_init(&s, UINT64_C(65507) * 8 * NS_PER_S, UINT64_C(10000000000000), 100000, 64);
        spacing_start(&s, START_NS);
        for (int i = 0; i < 1000; i++)
                spacing_sent(&s, spacing_due_ns(&s), 64);
        assert_int_equal(s.due_ns - START_NS, UINT64_C(65507) * 8 * 64 / 10);
}

TEST(bursts_keep_the_average)
{
        struct spacing s;

        spacing_init(&s, 12000, 1, 100000, 64);
        assert_int_equal(s.burst, 8);
        assert_int_equal(spacing_group(&s, 3), 3);
        assert_int_equal(spacing_group(&s, 100), 8);
        spacing_start(&s, START_NS);
        spacing_sent(&s, START_NS, 8);
        assert_int_equal(spacing_due_ns(&s), START_NS + 96000);
        /* A rate so low that one packet takes longer than a burst, and one so high that the limit counts. */
        spacing_init(&s, NS_PER_S, 1, 100000, 64);
        assert_int_equal(s.burst, 1);
        spacing_init(&s, 10, 1, 100000, 64);
        assert_int_equal(s.burst, 64);
}

TEST(packets_of_a_group_have_times_of_their_own)
{
        struct spacing s;

        /* 1000 packets in 12345 ns: each has its place, however they are grouped. */
        spacing_init(&s, 12345, 1000, 0, 1);
        spacing_start(&s, START_NS);
        for (uint32_t sent = 0; sent < 1000; sent += 8) {
                for (uint32_t i = 0; i < 8; i++)
                        assert_int_equal(spacing_leave_ns(&s, spacing_due_ns(&s), i),
                                         START_NS + (uint64_t)(sent + i) * 12345 / 1000);
                spacing_sent(&s, spacing_due_ns(&s), 8);
        }
        /* After a delay they follow each other at most 10 % faster. */
        spacing_init(&s, 1100, 1, 0, 1);
        spacing_start(&s, START_NS);
        assert_int_equal(spacing_leave_ns(&s, START_NS + 50000, 0), START_NS + 50000);
        assert_int_equal(spacing_leave_ns(&s, START_NS + 50000, 8), START_NS + 58000);
        assert_int_equal(spacing_leave_ns(&s, START_NS + 500, 8), START_NS + 8800);
}

TEST(a_delay_is_caught_up_gently)
{
        uint64_t last_ns, now_ns, n = 1;
        struct spacing s;

        spacing_init(&s, 11000, 1, 0, 1);
        spacing_start(&s, START_NS);
        spacing_sent(&s, START_NS, 1);
        /* 1 ms late: some 90 packets. */
        last_ns = START_NS + 11000 + NS_PER_MS;
        spacing_sent(&s, last_ns, 1);
        for (; (now_ns = spacing_due_ns(&s)) != s.due_ns; n++) {
                assert_true(now_ns - last_ns >= 10000);
                spacing_sent(&s, now_ns, 1);
                last_ns = now_ns;
        }
        assert_in_range(n, 800, 1200);
        assert_int_equal(s.behind_ns, 0);
        assert_int_equal((s.due_ns - START_NS) % 11000, 0);
}

/* Each group leaves late, as a timer wakes its thread; the rate is kept. */
TEST(late_timers_cost_nothing)
{
        uint64_t now_ns = START_NS;
        struct spacing s;

        spacing_init(&s, UINT64_C(1456) * 8 * NS_PER_S, 940000000, 100000, 64);
        spacing_start(&s, START_NS);
        for (int i = 0; i < 100000; i++) {
                now_ns = MAX(now_ns, spacing_due_ns(&s) + 90000);
                spacing_sent(&s, now_ns, 8);
                assert_true(now_ns < s.due_ns);
        }
        assert_int_equal(s.behind_ns, 0);
        assert_int_equal(s.due_ns - START_NS, UINT64_C(1456) * 8 * 800000 * NS_PER_S / 940000000);
        /* 10 ms late: one group more leaves at once. */
        now_ns = spacing_due_ns(&s) + 10 * NS_PER_MS;
        spacing_sent(&s, now_ns, 8);
        assert_true(spacing_due_ns(&s) <= now_ns);
        spacing_sent(&s, now_ns, 8);
        assert_true(spacing_due_ns(&s) >= now_ns + 60000);
}

TEST(a_long_delay_moves_the_schedule)
{
        struct spacing s;

        spacing_init(&s, 11000, 1, 0, 1);
        spacing_start(&s, START_NS);
        spacing_sent(&s, START_NS + NS_PER_S, 1);
        assert_int_equal(s.behind_ns, NS_PER_S);
        assert_int_equal(spacing_due_ns(&s), START_NS + NS_PER_S + 11000);
}

TEST(no_spacing_means_at_once)
{
        struct spacing s;

        spacing_init(&s, 0, 1, 0, 256);
        spacing_start(&s, START_NS);
        spacing_sent(&s, START_NS, 200);
        assert_int_equal(spacing_due_ns(&s), 0);
        assert_int_equal(spacing_group(&s, 300), 256);
}
