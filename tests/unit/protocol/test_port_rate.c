/* The rule for a port that loses packets, against a port of a known capacity. */
#include "../test.h"

#include "protocol/port_rate.h"

#define BEGIN_NS (50 * NS_PER_S)
/* Packets that all senders offer in an interval at the planned rate. */
#define OFFERED 10000u

static struct port {
        struct port_rate rate;
        struct port_rate_counts counts;
        uint64_t now_ns;
} p;

static int port_init(void **state)
{
        p = (struct port){.now_ns = BEGIN_NS};
        port_rate_init(&p.rate, p.now_ns);
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        return 0;
}

/* One interval in which the port carries up to `capacity` thousandths of the planned rate. */
static bool observe(uint32_t capacity)
{
        uint64_t offered = OFFERED * p.rate.permille / 1000,
                 carried = MIN(offered, OFFERED * capacity / 1000);

        p.now_ns = p.rate.look_ns;
        p.counts.received += carried;
        p.counts.lost += offered - carried;
        return port_rate_look(&p.rate, p.now_ns, &p.counts);
}

TEST_WITH(nothing_lost_changes_nothing, port_init, NULL)
{
        for (int i = 0; i < 100; i++)
                assert_false(observe(1000));
        assert_fields(&p.rate, permille, PORT_RATE_FULL, look_ns, p.now_ns + PORT_RATE_LOOK_NS);
        assert_int_equal(port_rate_below_ns(&p.rate, p.now_ns), 0);
}

TEST_WITH(a_loss_decreases_below_what_arrived, port_init, NULL)
{
        assert_false(observe(800));
        assert_true(observe(1000));             /* still missing */
        assert_int_equal(p.rate.permille, 560); /* 0.7 of what arrived */
        assert_fields(&p.rate, decreases, 1, lost, 2000);
        /* Packets that were on their way do not count again. */
        p.counts.lost += 3000;
        p.now_ns = p.rate.look_ns;
        port_rate_look(&p.rate, p.now_ns, &p.counts);
        p.now_ns = p.rate.look_ns;
        port_rate_look(&p.rate, p.now_ns, &p.counts);
        assert_true(p.rate.permille >= 560 && p.rate.permille < 600);
        assert_int_equal(p.rate.decreases, 1);
}

/* The share follows the capacity and loses little; afterwards the planned rate returns. */
TEST_WITH(it_settles_and_recovers, port_init, NULL)
{
        uint64_t lost, sum = 0;

        observe(600);
        lost = p.counts.lost;
        for (int i = 0; i < 1200; i++) { /* two minutes */
                observe(600);
                sum += p.rate.permille;
                assert_true(p.rate.permille <= 620);
        }
        assert_true(sum / 1200 > 500);
        /* A probe every ten seconds or so, each with a loss of some packets. */
        assert_true(p.rate.decreases >= 4 && p.rate.decreases <= 15);
        assert_true((p.counts.lost - lost) * 1000 < p.counts.received);
        for (int i = 0; i < 300; i++)
                observe(1000);
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        assert_true(port_rate_below_ns(&p.rate, p.now_ns) > 120 * NS_PER_S);
        assert_int_equal(p.rate.below_ns, port_rate_below_ns(&p.rate, p.now_ns));
        assert_true(p.rate.least < 450);
        for (int i = 0; i < 10; i++)
                assert_false(observe(1000));
}

/* A report names the packets that one reduction lost, not all since the start. */
TEST_WITH(each_reduction_counts_its_own_losses, port_init, NULL)
{
        for (uint32_t capacity = 800; capacity <= 900; capacity += 100) {
                observe(capacity);
                assert_true(observe(1000));
                assert_int_equal(p.rate.lost - p.rate.lost_before, (1000 - capacity) * (OFFERED / 1000));
                while (p.rate.permille < PORT_RATE_FULL)
                        observe(1000);
                assert_int_equal(p.rate.lost - p.rate.lost_before, (1000 - capacity) * (OFFERED / 1000));
        }
        assert_int_equal(p.rate.lost, 3000);
}

TEST_WITH(it_never_grows_by_a_jump, port_init, NULL)
{
        uint32_t before;

        observe(300);
        observe(1000);
        assert_true(p.rate.permille < 300);
        while (p.rate.permille < PORT_RATE_FULL) {
                before = p.rate.permille;
                observe(1000);
                assert_true(p.rate.permille >= before && p.rate.permille <= before + 60);
                assert_true(p.now_ns < BEGIN_NS + 60 * NS_PER_S);
        }
}

TEST_WITH(a_dead_port_keeps_the_least_share, port_init, NULL)
{
        for (int i = 0; i < 100; i++)
                observe(0);
        assert_int_equal(p.rate.permille, PORT_RATE_LEAST);
}

TEST_WITH(single_losses_do_not_count, port_init, NULL)
{
        for (int i = 0; i < 50; i++) {
                p.counts.lost += PORT_RATE_LOST_MIN - 1; /* of few packets */
                observe(1000);
                p.counts.lost += 10; /* one in a thousand */
                observe(1000);
        }
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
}

TEST_WITH(packets_that_are_only_late_do_not_count, port_init, NULL)
{
        for (int i = 0; i < 10; i++) {
                p.counts.lost = 500;
                observe(1000);
                p.counts.lost = 7; /* they arrived */
                observe(1000);
        }
        assert_fields(&p.rate, permille, PORT_RATE_FULL, decreases, 0);
}

TEST_WITH(losses_of_the_own_socket_do_not_count, port_init, NULL)
{
        for (int i = 0; i < 20; i++) {
                p.counts.socket_drops += 3; /* super-packets count once */
                observe(700);
                assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        }
        for (int i = 0; i < 3; i++)
                observe(700);
        assert_true(p.rate.permille < PORT_RATE_FULL);
}

/* The ROS learns of its drops after the SFI has seen the gaps. */
TEST_WITH(losses_of_a_source_are_excused_later, port_init, NULL)
{
        observe(900);
        observe(1000);
        assert_true(p.rate.permille < PORT_RATE_FULL);
        p.counts.source_drops += 1000;
        observe(1000);
        assert_fields(&p.rate, permille, PORT_RATE_FULL, decreases, 0);
        for (int i = 0; i < 25; i++) /* excused for a while */
                observe(900);
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        for (int i = 0; i < 10; i++)
                observe(900);
        assert_true(p.rate.permille < PORT_RATE_FULL);
}

/* Each ROS reports for itself; none of them explains half of the loss alone. */
TEST_WITH(losses_that_sources_report_in_turn_are_excused, port_init, NULL)
{
        observe(50);
        for (int i = 0; i < 6; i++) /* a second decrease follows before the first report */
                observe(20);
        assert_fields(&p.rate, decreases, 2, permille, PORT_RATE_LEAST);
        for (int i = 0; i < 4; i++) {
                assert_true(p.rate.permille < 500);
                p.counts.source_drops += 1300;
                observe(1000);
        }
        assert_fields(&p.rate, permille, PORT_RATE_FULL, decreases, 0, lost, 0);
}

/* A processor that is away for longer than an interval delivers its packets afterwards. */
TEST_WITH(packets_that_arrive_after_all_undo_a_decrease, port_init, NULL)
{
        p.counts.lost = 300;
        observe(900);
        observe(1000);
        assert_true(p.rate.permille < PORT_RATE_FULL);
        assert_int_equal(p.rate.decreases, 1);
        p.counts.lost -= 600; /* of 1300, fewer than half */
        p.now_ns = p.rate.look_ns;
        assert_true(port_rate_look(&p.rate, p.now_ns, &p.counts));
        assert_int_equal(p.rate.decreases, 1);
        p.counts.lost -= 100;
        p.now_ns = p.rate.look_ns;
        assert_true(port_rate_look(&p.rate, p.now_ns, &p.counts));
        assert_fields(&p.rate, permille, PORT_RATE_FULL, decreases, 0, lost, 0);
}

TEST_WITH(a_few_drops_of_a_source_do_not_excuse_a_large_loss, port_init, NULL)
{
        uint32_t share;

        observe(500);
        observe(1000);
        share = p.rate.permille;
        assert_true(share < PORT_RATE_FULL);
        p.counts.source_drops += 10;
        observe(1000);
        assert_true(p.rate.permille < share + 100);
}
