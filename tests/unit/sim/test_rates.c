/* Links, ports and token buckets against cases computed by hand, closed forms, and the rule of the emulated
 * switch in exact arithmetic. */
#include "../test.h"
#include "sim/rates.h"

#include "base/random.h"

#define GBIT UINT64_C(1000000000)
#define US (PS_PER_NS * NS_PER_US)

TEST(a_byte_takes_the_time_of_its_bits)
{
        assert_int_equal(rates_time_ps(1, 400 * GBIT), 20);
        assert_int_equal(rates_time_ps(1514, GBIT), 1514 * 8000);
        /* 8e12 / 3e9 = 2666.67 */
        assert_int_equal(rates_time_ps(1, 3 * GBIT), 2666);
        /* 1 GiB at 10 Mbit/s, which needs more than 64 bits on the way. */
        assert_int_equal(rates_time_ps(UINT64_C(1) << 30, 10000000), (UINT64_C(1) << 30) * 800000);
}

TEST(a_link_sends_one_frame_after_the_other)
{
        struct sim_link l = {.rate_bps = GBIT}, infinite = {};

        assert_int_equal(sim_link_send(&l, 5 * US, 1000), 13 * US);
        assert_int_equal(sim_link_send(&l, 5 * US, 500), 17 * US);
        assert_int_equal(sim_link_send(&l, 16 * US, 250), 19 * US);
        assert_int_equal(sim_link_send(&l, 100 * US, 125), 101 * US);
        assert_int_equal(sim_link_send(&infinite, 7 * US, 65536), 7 * US);
}

/* 1 Gbit/s, 3000 bytes: 24 us. Frames of 1000 bytes take 8 us each. */
TEST(a_port_drops_what_its_buffer_does_not_hold)
{
        struct sim_port p = {.rate_bps = GBIT, .buffer_bytes = 3000};
        uint64_t leaves_ps = 0;

        assert_true(sim_port_accept(&p, 0, 1000, &leaves_ps) && leaves_ps == 8 * US);
        assert_true(sim_port_accept(&p, 0, 1000, &leaves_ps) && leaves_ps == 16 * US);
        assert_true(sim_port_accept(&p, 0, 1000, &leaves_ps) && leaves_ps == 24 * US);
        assert_false(sim_port_accept(&p, 0, 1, &leaves_ps));
        /* 7.999 us later 2000.125 bytes are left, so 999 fit, and 1000 do not. */
        assert_false(sim_port_accept(&p, 8 * US - 1000, 1000, &leaves_ps));
        assert_true(sim_port_accept(&p, 8 * US - 1000, 999, &leaves_ps));
        assert_int_equal(leaves_ps, 24 * US + 999 * 8000);
        assert_fields(&p, carried, 4, dropped, 2);
}

/* The frame that does not fit is not held. */
TEST(a_port_knows_the_most_that_it_held)
{
        struct sim_port p = {.rate_bps = GBIT, .buffer_bytes = 3000}, infinite = {};
        uint64_t leaves_ps = 0;

        assert_int_equal(sim_port_most_bytes(&p), 0);
        assert_true(sim_port_accept(&p, 0, 1000, &leaves_ps));
        assert_true(sim_port_accept(&p, 4 * US, 1500, &leaves_ps));
        assert_int_equal(sim_port_most_bytes(&p), 2000);
        assert_false(sim_port_accept(&p, 4 * US, 1001, &leaves_ps));
        assert_true(sim_port_accept(&p, 100 * US, 1999, &leaves_ps));
        assert_int_equal(sim_port_most_bytes(&p), 2000);
        assert_true(sim_port_accept(&infinite, 0, 1000, &leaves_ps));
        assert_int_equal(sim_port_most_bytes(&infinite), 0);
}

TEST(an_unlimited_port_drops_nothing)
{
        struct sim_port p = {.buffer_bytes = 100};
        uint64_t leaves_ps = 0;

        for (int i = 0; i < 100; i++)
                assert_true(sim_port_accept(&p, 3 * US, 1514, &leaves_ps) && leaves_ps == 3 * US);
        assert_int_equal(p.dropped, 0);
}

/* docs/lab-port.md: after = max(end, arrival) + bytes * 8 / rate; dropped if after - arrival is more than
 * buffer * 8 / rate. In units of 1/rate s, nothing is rounded. */
TEST(a_port_follows_the_rule_of_the_lab)
{
        static const uint64_t rates[] = {GBIT, 100 * 1000000, 10 * GBIT, 400 * GBIT};
        struct random r;

        random_init(&r, 7);
        for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
                struct sim_port p = {.rate_bps = rates[i], .buffer_bytes = 64 << 10};
                uint64_t byte_ps = rates_time_ps(1, rates[i]), arrival_ps = 0, end_ps = 0, dropped = 0;

                for (int k = 0; k < 20000; k++) {
                        uint32_t bytes = 60 + (uint32_t)random_below(&r, 1455);
                        uint64_t after_ps, leaves_ps = 0;
                        bool fits;

                        arrival_ps += random_below(&r, 1400 * byte_ps);
                        after_ps = MAX(end_ps, arrival_ps) + bytes * byte_ps;
                        fits = after_ps - arrival_ps <= p.buffer_bytes * byte_ps;
                        assert_int_equal(sim_port_accept(&p, arrival_ps, bytes, &leaves_ps), fits);
                        if (fits)
                                assert_int_equal(leaves_ps, end_ps = after_ps);
                        dropped += !fits;
                }
                assert_int_equal(p.dropped, dropped);
                assert_true(dropped > 0 && dropped < 10000);
        }
}

/* A full bucket passes burst / size packets at once, and then one each size / rate. */
TEST(tbf_passes_its_burst_and_then_the_rate)
{
        struct sim_bucket b;

        sim_bucket_init(&b, 8 * GBIT, 5000, 0, false);
        for (int i = 0; i < 5; i++) {
                assert_true(sim_bucket_next_ps(&b, 1000) <= 10 * US);
                sim_bucket_charge(&b, 10 * US, 1000);
        }
        for (uint64_t i = 1; i <= 10; i++) {
                uint64_t next_ps = sim_bucket_next_ps(&b, 1000);

                assert_int_equal(next_ps, (10 + i) * US);
                sim_bucket_charge(&b, next_ps, 1000);
        }
        /* After a pause of 3 us, three packets; after a long one, no more than the burst. */
        for (uint64_t i = 0; i < 3; i++)
                sim_bucket_charge(&b, 23 * US, 1000);
        assert_int_equal(sim_bucket_next_ps(&b, 1000), 24 * US);
        for (int i = 0; i < 5; i++) {
                assert_true(sim_bucket_next_ps(&b, 1000) <= 1000 * US);
                sim_bucket_charge(&b, 1000 * US, 1000);
        }
        assert_int_equal(sim_bucket_next_ps(&b, 1000), 1001 * US);
}

TEST(tbf_never_passes_more_than_its_burst)
{
        struct sim_bucket b;

        sim_bucket_init(&b, GBIT, 1514, 0, false);
        assert_true(sim_bucket_next_ps(&b, 1514) != NEVER_NS);
        assert_int_equal(sim_bucket_next_ps(&b, 1515), NEVER_NS);
        /* The burst holds a packet of that size with its overhead. */
        sim_bucket_init(&b, GBIT, 1514, 24, false);
        assert_true(sim_bucket_next_ps(&b, 1514) != NEVER_NS);
        sim_bucket_charge(&b, 0, 1514);
        assert_int_equal(sim_bucket_next_ps(&b, 1514), 1538 * 8000);
}

/* HTB passes a packet while it has any tokens, then repays. */
TEST(htb_gets_into_debt)
{
        struct sim_bucket b;

        sim_bucket_init(&b, 8 * GBIT, 1000, 0, true);
        assert_int_equal(sim_bucket_next_ps(&b, 9000), 0);
        sim_bucket_charge(&b, 100 * US, 9000);
        /* 1000 of the 9000 bytes were there. */
        assert_int_equal(sim_bucket_next_ps(&b, 9000), 108 * US);
        sim_bucket_charge(&b, 108 * US, 100);
        assert_int_equal(sim_bucket_next_ps(&b, 1), 108 * US + US / 10);
}

TEST(a_bucket_without_a_rate_passes_everything)
{
        struct sim_bucket b;

        sim_bucket_init(&b, 0, 10, 24, false);
        for (int i = 0; i < 10; i++) {
                assert_int_equal(sim_bucket_next_ps(&b, 1 << 20), 0);
                sim_bucket_charge(&b, 5, 1 << 20);
        }
}
