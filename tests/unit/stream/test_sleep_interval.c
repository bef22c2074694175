/* When a receiver naps: packets are dense, and the socket's buffer lasts. */
#include "../test.h"

#include "stream/rules/timing.h"

#define START_NS UINT64_C(1000000000)
#define LARGE (UINT64_C(8) << 20)

/* Packets `gap_ns` apart for a time, which the receiver takes every 100 us. Returns how long it then naps. */
static uint64_t after(struct sleep_interval *n, uint64_t begin_ns, uint64_t gap_ns, uint64_t time_ns)
{
        uint64_t taken = 0;

        for (uint64_t ns = 0; ns <= time_ns; ns += 100 * NS_PER_US) {
                sleep_interval_record(n, begin_ns + ns, gap_ns > 0 ? ns / gap_ns - taken : 0);
                taken = gap_ns > 0 ? ns / gap_ns : 0;
        }
        return sleep_interval_ns(n);
}

static uint64_t length_at(uint64_t buffer_bytes, uint32_t packet_bytes, uint64_t gap_ns)
{
        struct sleep_interval n;

        sleep_interval_init(&n, buffer_bytes, packet_bytes);
        assert_int_equal(sleep_interval_ns(&n), 0);
        return after(&n, START_NS, gap_ns, 20 * NS_PER_MS);
}

TEST(only_dense_packets_allow_sleep)
{
        assert_int_equal(length_at(LARGE, 1472, 12 * NS_PER_US), 50 * NS_PER_US);
        assert_int_equal(length_at(LARGE, 1472, 49 * NS_PER_US), 50 * NS_PER_US);
        assert_int_equal(length_at(LARGE, 1472, 51 * NS_PER_US), 0);
        assert_int_equal(length_at(LARGE, 1472, NS_PER_MS), 0);
        assert_int_equal(length_at(LARGE, 1472, 0), 0);
}

/* A packet of 1472 bytes takes 1984: 500 of them, one each 20 us, last for 10 ms. */
TEST(the_buffer_lasts_for_10_ms)
{
        assert_int_equal(length_at(UINT64_C(1984) * 500, 1472, 20 * NS_PER_US), 50 * NS_PER_US);
        assert_int_equal(length_at(UINT64_C(1984) * 500 - 1, 1472, 20 * NS_PER_US), 0);
        assert_int_equal(length_at(128 << 10, 1472, 12 * NS_PER_US), 0);
        /* Small packets take much more than their data. */
        assert_int_equal(length_at(LARGE, 64, 500), 0);
        assert_int_equal(length_at(LARGE, 64, 1000), 50 * NS_PER_US);
        /* 8 Gbit/s. */
        assert_int_equal(length_at(LARGE, 8972, 9 * NS_PER_US), 0);
        assert_int_equal(length_at(0, 1472, 15 * NS_PER_US), 0);
}

TEST(sleep_begins_and_ends_with_the_packets)
{
        uint64_t at_ns = START_NS;
        struct sleep_interval n;

        sleep_interval_init(&n, LARGE, 1472);
        assert_int_equal(after(&n, at_ns, 12 * NS_PER_US, SLEEP_LOOK_NS - 100 * NS_PER_US), 0);
        assert_int_equal(after(&n, at_ns += SLEEP_LOOK_NS, 12 * NS_PER_US, 100 * NS_PER_US), 50 * NS_PER_US);
        /* A pause: one average has packets in its first half, the next has none. */
        assert_int_equal(after(&n, at_ns += 100 * NS_PER_US, 0, 2 * SLEEP_LOOK_NS), 0);
        /* The first packet after a long pause does not bring them back. */
        sleep_interval_record(&n, at_ns += 3600 * NS_PER_S, 1);
        assert_int_equal(sleep_interval_ns(&n), 0);
        assert_int_equal(after(&n, at_ns, 12 * NS_PER_US, 2 * SLEEP_LOOK_NS), 50 * NS_PER_US);
}

/* A thread that was away finds more at once than a short time would explain; the time before it counts, too.
 */
TEST(a_late_look_does_not_mislead)
{
        struct sleep_interval n;

        sleep_interval_init(&n, LARGE, 1472);
        sleep_interval_record(&n, START_NS, 1);
        sleep_interval_record(&n, START_NS + 20 * NS_PER_MS, 20);
        assert_int_equal(sleep_interval_ns(&n), 0);
        sleep_interval_record(&n, START_NS + 40 * NS_PER_MS, 1600);
        assert_int_equal(sleep_interval_ns(&n), 50 * NS_PER_US);
}
