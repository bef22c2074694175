/* The rule for a port that loses packets, against a port of a known capacity. */
#include "../test.h"

#include "evb/protocol/port_rate.h"

#define BEGIN_NS (50 * NS_PER_S)
/* Packets that all senders offer in an interval at the planned rate. */
#define OFFERED 10000u

struct port {
        struct port_rate rate;
        struct port_rate_counts counts;
        uint64_t now_ns;
};

static void port_init(struct port *p)
{
        *p = (struct port){.now_ns = BEGIN_NS};
        port_rate_init(&p->rate, p->now_ns);
        assert_int_equal(p->rate.permille, PORT_RATE_FULL);
}

/* One interval in which the port carries up to `capacity` thousandths of the planned rate. */
static bool observe(struct port *p, uint32_t capacity)
{
        uint64_t offered = OFFERED * p->rate.permille / 1000,
                 carried = MIN(offered, OFFERED * capacity / 1000);

        p->now_ns = p->rate.look_ns;
        p->counts.received += carried;
        p->counts.lost += offered - carried;
        return port_rate_look(&p->rate, p->now_ns, &p->counts);
}

static void nothing_lost_changes_nothing(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        for (int i = 0; i < 100; i++)
                assert_false(observe(&p, 1000));
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        assert_int_equal(p.rate.look_ns, p.now_ns + PORT_RATE_LOOK_NS);
        assert_int_equal(port_rate_below_ns(&p.rate, p.now_ns), 0);
}

static void a_loss_decreases_below_what_arrived(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        assert_false(observe(&p, 800));
        assert_true(observe(&p, 1000));         /* still missing */
        assert_int_equal(p.rate.permille, 560); /* 0.7 of what arrived */
        assert_int_equal(p.rate.decreases, 1);
        assert_int_equal(p.rate.lost, 2000);
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
static void it_settles_and_recovers(void **state)
{
        uint64_t lost, sum = 0;
        struct port p;

        (void)state;
        port_init(&p);
        observe(&p, 600);
        lost = p.counts.lost;
        for (int i = 0; i < 1200; i++) { /* two minutes */
                observe(&p, 600);
                sum += p.rate.permille;
                assert_true(p.rate.permille <= 620);
        }
        assert_true(sum / 1200 > 500);
        /* A probe every ten seconds or so, each with a loss of some packets. */
        assert_true(p.rate.decreases >= 4 && p.rate.decreases <= 15);
        assert_true((p.counts.lost - lost) * 1000 < p.counts.received);
        for (int i = 0; i < 300; i++)
                observe(&p, 1000);
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        assert_true(port_rate_below_ns(&p.rate, p.now_ns) > 120 * NS_PER_S);
        assert_int_equal(p.rate.below_ns, port_rate_below_ns(&p.rate, p.now_ns));
        assert_true(p.rate.least < 450);
        for (int i = 0; i < 10; i++)
                assert_false(observe(&p, 1000));
}

/* A report names the packets that one reduction lost, not all since the start. */
static void each_reduction_counts_its_own_losses(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        for (uint32_t capacity = 800; capacity <= 900; capacity += 100) {
                observe(&p, capacity);
                assert_true(observe(&p, 1000));
                assert_int_equal(p.rate.lost - p.rate.lost_before, (1000 - capacity) * (OFFERED / 1000));
                while (p.rate.permille < PORT_RATE_FULL)
                        observe(&p, 1000);
                assert_int_equal(p.rate.lost - p.rate.lost_before, (1000 - capacity) * (OFFERED / 1000));
        }
        assert_int_equal(p.rate.lost, 3000);
}

static void it_never_grows_by_a_jump(void **state)
{
        struct port p;
        uint32_t before;

        (void)state;
        port_init(&p);
        observe(&p, 300);
        observe(&p, 1000);
        assert_true(p.rate.permille < 300);
        while (p.rate.permille < PORT_RATE_FULL) {
                before = p.rate.permille;
                observe(&p, 1000);
                assert_true(p.rate.permille >= before && p.rate.permille <= before + 60);
                assert_true(p.now_ns < BEGIN_NS + 60 * NS_PER_S);
        }
}

static void a_dead_port_keeps_the_least_share(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        for (int i = 0; i < 100; i++)
                observe(&p, 0);
        assert_int_equal(p.rate.permille, PORT_RATE_LEAST);
}

static void single_losses_do_not_count(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        for (int i = 0; i < 50; i++) {
                p.counts.lost += PORT_RATE_LOST_MIN - 1; /* of few packets */
                observe(&p, 1000);
                p.counts.lost += 10; /* one in a thousand */
                observe(&p, 1000);
        }
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
}

static void packets_that_are_only_late_do_not_count(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        for (int i = 0; i < 10; i++) {
                p.counts.lost = 500;
                observe(&p, 1000);
                p.counts.lost = 7; /* they arrived */
                observe(&p, 1000);
        }
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        assert_int_equal(p.rate.decreases, 0);
}

static void losses_of_the_own_socket_do_not_count(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        for (int i = 0; i < 20; i++) {
                p.counts.socket_drops += 3; /* super-packets count once */
                observe(&p, 700);
                assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        }
        for (int i = 0; i < 3; i++)
                observe(&p, 700);
        assert_true(p.rate.permille < PORT_RATE_FULL);
}

/* The ROS learns of its drops after the SFI has seen the gaps. */
static void losses_of_a_source_are_excused_later(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        observe(&p, 900);
        observe(&p, 1000);
        assert_true(p.rate.permille < PORT_RATE_FULL);
        p.counts.source_drops += 1000;
        observe(&p, 1000);
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        assert_int_equal(p.rate.decreases, 0);
        for (int i = 0; i < 25; i++) /* excused for a while */
                observe(&p, 900);
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        for (int i = 0; i < 10; i++)
                observe(&p, 900);
        assert_true(p.rate.permille < PORT_RATE_FULL);
}

/* Each ROS reports for itself; none of them explains half of the loss alone. */
static void losses_that_sources_report_in_turn_are_excused(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        observe(&p, 50);
        for (int i = 0; i < 6; i++) /* a second decrease follows before the first report */
                observe(&p, 20);
        assert_int_equal(p.rate.decreases, 2);
        assert_int_equal(p.rate.permille, PORT_RATE_LEAST);
        for (int i = 0; i < 4; i++) {
                assert_true(p.rate.permille < 500);
                p.counts.source_drops += 1300;
                observe(&p, 1000);
        }
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        assert_int_equal(p.rate.decreases, 0);
        assert_int_equal(p.rate.lost, 0);
}

/* A processor that is away for longer than an interval delivers its packets afterwards. */
static void packets_that_arrive_after_all_undo_a_decrease(void **state)
{
        struct port p;

        (void)state;
        port_init(&p);
        p.counts.lost = 300;
        observe(&p, 900);
        observe(&p, 1000);
        assert_true(p.rate.permille < PORT_RATE_FULL);
        assert_int_equal(p.rate.decreases, 1);
        p.counts.lost -= 600; /* of 1300, fewer than half */
        p.now_ns = p.rate.look_ns;
        assert_true(port_rate_look(&p.rate, p.now_ns, &p.counts));
        assert_int_equal(p.rate.decreases, 1);
        p.counts.lost -= 100;
        p.now_ns = p.rate.look_ns;
        assert_true(port_rate_look(&p.rate, p.now_ns, &p.counts));
        assert_int_equal(p.rate.permille, PORT_RATE_FULL);
        assert_int_equal(p.rate.decreases, 0);
        assert_int_equal(p.rate.lost, 0);
}

static void a_few_drops_of_a_source_do_not_excuse_a_large_loss(void **state)
{
        struct port p;
        uint32_t share;

        (void)state;
        port_init(&p);
        observe(&p, 500);
        observe(&p, 1000);
        share = p.rate.permille;
        assert_true(share < PORT_RATE_FULL);
        p.counts.source_drops += 10;
        observe(&p, 1000);
        assert_true(p.rate.permille < share + 100);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nothing_lost_changes_nothing),
                cmocka_unit_test(a_loss_decreases_below_what_arrived),
                cmocka_unit_test(it_settles_and_recovers),
                cmocka_unit_test(each_reduction_counts_its_own_losses),
                cmocka_unit_test(it_never_grows_by_a_jump),
                cmocka_unit_test(a_dead_port_keeps_the_least_share),
                cmocka_unit_test(single_losses_do_not_count),
                cmocka_unit_test(packets_that_are_only_late_do_not_count),
                cmocka_unit_test(losses_of_the_own_socket_do_not_count),
                cmocka_unit_test(losses_of_a_source_are_excused_later),
                cmocka_unit_test(losses_that_sources_report_in_turn_are_excused),
                cmocka_unit_test(packets_that_arrive_after_all_undo_a_decrease),
                cmocka_unit_test(a_few_drops_of_a_source_do_not_excuse_a_large_loss),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
