/* The share of control messages, and the budget that holds a sender to it. */
#include "../test.h"

#include "base/random.h"
#include "protocol/budget.h"

static struct budget_demand standard(void)
{
        return (struct budget_demand){
                .link_bps = 1000000000,
                .n_ros = 6,
                .n_sfi = 1,
                .fragment_bytes = 1024,
                .mtu_bytes = 1500,
                .header_bytes = BUDGET_HEADER_BYTES,
                .keep_alive_ns = 200 * NS_PER_MS,
        };
}

/* A sender with more to say than the budget permits sends exactly the rate, and one burst on top. */
TEST(the_rate_is_kept_and_used)
{
        struct random r;

        random_init(&r, 5);
        for (uint64_t rate_bps = 1000; rate_bps <= UINT64_C(400000000000); rate_bps *= 7) {
                uint64_t now_ns = 5, sent_bytes = 0, start_ns = now_ns;
                struct budget b;

                budget_init(&b, rate_bps, BUDGET_HEADER_BYTES);
                for (int k = 0; k < 5000; k++) {
                        size_t bytes = 40 + random_below(&r, 1400);

                        while (!budget_allows(&b, now_ns))
                                now_ns = budget_next_ns(&b);
                        budget_charge(&b, now_ns, bytes);
                        sent_bytes += bytes + BUDGET_HEADER_BYTES;
                }
                double allowed = (double)rate_bps * (double)(now_ns - start_ns) / 8e9;

                /* The message that is allowed last may exceed the burst by itself. */
                assert_true((double)sent_bytes <= allowed + BUDGET_BURST_BYTES + 1482 + 1);
                /* Rounding up to ns costs at most 1 ns per message. */
                assert_true((double)sent_bytes >= allowed - 5000.0 * (double)rate_bps / 8e9 - 1);
        }
}

TEST(after_a_pause_messages_leave_at_once)
{
        struct budget b;

        budget_init(&b, 1000000, BUDGET_HEADER_BYTES);
        for (int pause = 0; pause < 3; pause++) {
                uint64_t now_ns = NS_PER_S * (uint64_t)(pause + 1);

                assert_true(budget_allows(&b, now_ns));
                budget_charge(&b, now_ns, 100);
                assert_true(budget_allows(&b, now_ns));
                budget_charge(&b, now_ns, 3000);
                assert_false(budget_allows(&b, now_ns));
                assert_in_range(budget_next_ns(&b) - now_ns, 1, NS_PER_MS * 2);
        }
        budget_init(&b, 0, BUDGET_HEADER_BYTES);
        budget_charge(&b, 5, UINT32_MAX);
        assert_true(budget_allows(&b, 5));
        assert_int_equal(budget_next_ns(&b), 0);
}

TEST(the_share_follows_the_event_rate)
{
        struct budget_demand d = standard();
        struct budget_plan p = budget_plan_make(&d);

        /* 125 MB/s in frames of 1514 bytes with 62 of headers, by 6 fragments and their entries. */
        assert_true(p.event_rate_hz > 19000 && p.event_rate_hz < 20000);
        assert_int_equal(p.needed_bps, (uint64_t)(p.event_rate_hz * 48));
        assert_in_range(p.share_bps, 1900000, 2000000);
        assert_true(p.assign_bps < p.share_bps && p.assign_bps + p.totals_bps == p.share_bps);

        d.fragment_bytes = 256;
        d.n_ros = 2;
        p = budget_plan_make(&d);
        assert_in_range(p.share_bps, 10000000, 14000000);
        d.with_info = true;
        assert_true(budget_plan_make(&d).share_bps > 5 * p.share_bps);
        d.fragment_bytes = 1;
        assert_int_equal(budget_plan_make(&d).share_bps, d.link_bps / 10);

        d = standard();
        d.fragment_bytes = 0;
        p = budget_plan_make(&d);
        assert_in_range(p.share_bps, 5000000, 5100000);
        assert_true(p.event_rate_hz == 0);
        d.configured_bps = 7000000;
        assert_int_equal(budget_plan_make(&d).share_bps, 7000000);
}

TEST(every_port_has_a_bound)
{
        static const uint64_t links[] = {1, 10000000, 1000000000, UINT64_C(400000000000)};
        struct random r;

        random_init(&r, 8);
        for (int k = 0; k < 2000; k++) {
                struct budget_demand d = standard();

                d.link_bps = links[random_below(&r, ARRAY_SIZE(links))];
                d.n_ros = 1 + (uint32_t)random_below(&r, 8000);
                d.n_sfi = 1 + (uint32_t)random_below(&r, 4000);
                d.fragment_bytes = random_below(&r, 200000);
                struct budget_plan p = budget_plan_make(&d);

                assert_true(p.share_bps <= MAX(d.link_bps / 10, UINT64_C(1000000)));
                assert_true(p.announce_bps <= MAX(d.link_bps / 4, UINT64_C(1)));
                assert_true(p.update_bps * d.n_sfi <= MAX(d.link_bps / 4, (uint64_t)d.n_sfi));
                assert_true(p.assign_bps > 0 && p.announce_bps > 0 && p.request_bps > 0 && p.alive_bps > 0);
        }
        struct budget_plan none = budget_plan_make(&(struct budget_demand){.n_ros = 1, .n_sfi = 1});

        assert_int_equal(none.share_bps + none.assign_bps + none.update_bps, 0);
}
