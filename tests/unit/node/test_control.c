/* The way of control messages in: what a flood of strangers may cost. */
#include "../test.h"

#include "control.h"
#include "evb/net/faults.h"
#include "node_sample.h"

static unsigned long looked_at;

int __wrap_faults_receive(struct faults *f, struct endpoint *e, struct datagram *ret, size_t n);

/* There is always more, and none of it is ours. */
int __wrap_faults_receive(struct faults *f, struct endpoint *e, struct datagram *ret, size_t n)
{
        static uint8_t bytes[64];
        static struct net_address from;

        (void)f;
        (void)e;
        if (looked_at > 10 * CONTROL_TURN_DATAGRAMS)
                fail_msg("the turn does not end");
        for (size_t i = 0; i < n; i++)
                ret[i] = (struct datagram){.bytes = bytes, .size_bytes = sizeof bytes, .from = &from};
        looked_at += n;
        return (int)n;
}

static void a_flood_does_not_keep_a_node_from_its_work(void **state)
{
        struct control c = {};
        struct node n;

        (void)state;
        sample_node(&n, "dfm", "udp");
        assert_int_equal(control_open(&c, n.scenario, n.self, SAMPLE_INCARNATION, n.stats, n.loop), 0);
        c.own.ready = true;
        for (int turn = 1; turn <= 3; turn++) {
                looked_at = 0;
                control_begin_turn(&c);
                assert_false(control_is_behind(&c));
                assert_null(control_receive(&c));
                assert_true(control_is_behind(&c)); /* so that the next turn follows at once */
                assert_int_equal(stats_get(&n.stats->packets_foreign), turn * CONTROL_TURN_DATAGRAMS);
        }
        control_close(&c);
        sample_node_free(&n);
}

int main(void)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(a_flood_does_not_keep_a_node_from_its_work)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
