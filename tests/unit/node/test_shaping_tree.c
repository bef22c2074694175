/* How a ROS counts the packets that its own shaping drops. */
#include "../test.h"

#include "node_sample.h"
#include "node/shaping_tree.h"

static struct node n;
static struct shaping_tree tree;
static struct tc_row rows[2];

static void open_tree(void)
{
        sample_node(&n, "ros1", "udp");
        tree = (struct shaping_tree){
                .scenario = (struct scenario *)n.scenario, .self = n.self, .stats = n.stats};
        assert_true(tc_address_parse(&rows[0].address, sample_at(5)));
        assert_true(tc_address_parse(&rows[1].address, sample_at(4)));
}

/* The kernel reports these drops of the classes for SFI 0 and SFI 1. */
static void see(uint64_t first, uint64_t second, bool repaired)
{
        struct tc_status status = {.rows = rows, .n = 2, .drops = first + second};

        rows[1].counters.drops = first;
        rows[0].counters.drops = second;
        shaping_tree_count_drops(&tree, &status, repaired);
}

/* Another program removed the tree. */
static void see_nothing(void)
{
        shaping_tree_count_drops(&tree, &(struct tc_status){}, false);
}

static void assert_dropped(uint64_t first, uint64_t second)
{
        assert_int_equal(stats_get(&tree.dropped[0]), first);
        assert_int_equal(stats_get(&tree.dropped[1]), second);
        assert_int_equal(stats_get(&n.stats->packets_source_dropped), first + second);
}

TEST_BETWEEN(drops_are_counted_for_each_sfi, open_tree(), sample_node_free(&n))
{
        see(0, 0, false);
        see(100, 10, false);
        see(100, 10, false);
        see(150, 10, false);
        assert_dropped(150, 10);
}

TEST_BETWEEN(totals_continue_after_a_repair, open_tree(), sample_node_free(&n))
{
        see(100, 10, false);
        see_nothing();
        see(0, 0, true);
        see(30, 20, false);
        assert_dropped(130, 30);
        see_nothing();
        see(5, 0, true); /* already some */
        see(120, 2, false);
        assert_dropped(250, 32);
}

/* Drops of other traffic and of packets to SFIs that are not data are no losses of data. */
TEST_BETWEEN(drops_of_other_packets_are_counted_apart, open_tree(), sample_node_free(&n))
{
        struct tc_status status = {.other.counters.drops = 5, .apart.counters.drops = 2};

        shaping_tree_count_drops(&tree, &status, false);
        status.apart.counters.drops = 9;
        shaping_tree_count_drops(&tree, &status, false);
        see_nothing();
        status.other.counters.drops = 0, status.apart.counters.drops = 1;
        shaping_tree_count_drops(&tree, &status, true);
        assert_int_equal(stats_get(&n.stats->packets_other_dropped), 14 + 1);
        assert_dropped(0, 0);
}

/* A port that holds the device back is reported with what it has counted since the last report. */
TEST_BETWEEN(pauses_are_reported_once, open_tree(), sample_node_free(&n))
{
        struct tc_port port = {.pause_received = 100,
                               .pause_sent = TC_COUNT_UNKNOWN,
                               .pfc_received = TC_COUNT_UNKNOWN,
                               .pfc_sent = TC_COUNT_UNKNOWN};

        tree.port = port;
        assert_false(shaping_tree_report_port(&tree, 60 * NS_PER_S, &port));
        port.pause_received = 150;
        assert_true(shaping_tree_report_port(&tree, 120 * NS_PER_S, &port));
        assert_false(shaping_tree_report_port(&tree, 180 * NS_PER_S, &port));
        port.missed = 1;
        assert_true(shaping_tree_report_port(&tree, 240 * NS_PER_S, &port));
        /* The driver no longer reports it. */
        port.pause_received = TC_COUNT_UNKNOWN;
        assert_false(shaping_tree_report_port(&tree, 300 * NS_PER_S, &port));
        port.pause_received = 200;
        assert_false(shaping_tree_report_port(&tree, 360 * NS_PER_S, &port));
        port.pause_received = 3; /* it was loaded again */
        assert_true(shaping_tree_report_port(&tree, 420 * NS_PER_S, &port));
        assert_int_equal(tree.port_ns, 420 * NS_PER_S);
        assert_stats(n.stats, pause_frames_received, 50 + 3, pause_frames_sent, 0, packets_device_dropped, 1);
}

static uint64_t planned_burst(uint64_t sfi_live, uint64_t sources, uint64_t *ret_rate_bps)
{
        struct tc_plan p = {};
        struct error e = {};
        uint64_t burst_bytes;

        tree.demand.sfi_live[0] = sfi_live;
        tree.demand.sources = sources;
        if (shaping_tree_plan(&tree, &p, &e) < 0)
                fail_msg("%s", e.message);
        burst_bytes = p.shares[0].burst_bytes;
        *ret_rate_bps = p.shares[0].rate_bps;
        tc_plan_fini(&p);
        return burst_bytes;
}

/* A burst that became shorter when they return would cost the packets in the queue. */
TEST_BETWEEN(bursts_stay_while_nodes_are_absent, open_tree(), sample_node_free(&n))
{
        struct scenario *s;
        uint64_t all_bytes, all_bps, bps;

        s = (struct scenario *)n.scenario;
        s->qos.rate_bps = SCENARIO_AUTO;
        s->qos.overhead_bytes = SCENARIO_UNCHANGED;
        s->network.link_rate_bps = UINT64_C(10000000000);
        s->network.switch_buffer_bytes = 1 << 20;
        tree.backend = TC_BACKEND_HTB_TBF;
        tree.device = (struct tc_device){.mtu_bytes = 1500, .super_packet_bytes = 65536};
        for (size_t i = 0; i < EVB_SFI_MAX; i++)
                tree.demand.permille[i] = 1000;
        all_bytes = planned_burst(3, 0, &all_bps);
        assert_int_equal(planned_burst(3, 1, &bps), all_bytes);
        assert_true(bps > all_bps);
        assert_int_equal(planned_burst(1, 1, &bps), all_bytes);
        assert_int_equal(planned_burst(3, 0, &bps), all_bytes);
        /* Of another device it is another one. */
        tree.burst_bytes = 0;
        s->network.link_rate_bps = UINT64_C(100000000);
        assert_true(planned_burst(3, 1, &bps) < all_bytes);
}
