/* How a ROS counts the packets that its own shaping drops. */
#include "../test.h"

#include "node_sample.h"
#include "shaping_tree.h"

static struct node n;
static struct shaping_tree tree;
static struct tc_row rows[2];

static void open_tree(void)
{
        sample_node(&n, "ros1", "udp");
        tree = (struct shaping_tree){.scenario = n.scenario, .self = n.self, .stats = n.stats};
        assert_true(tc_address_parse(&rows[0].address, SAMPLE_NET ".5"));
        assert_true(tc_address_parse(&rows[1].address, SAMPLE_NET ".4"));
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

static void drops_are_counted_for_each_sfi(void **state)
{
        (void)state;
        open_tree();
        see(0, 0, false);
        see(100, 10, false);
        see(100, 10, false);
        see(150, 10, false);
        assert_dropped(150, 10);
        sample_node_free(&n);
}

static void totals_continue_after_a_repair(void **state)
{
        (void)state;
        open_tree();
        see(100, 10, false);
        see_nothing();
        see(0, 0, true);
        see(30, 20, false);
        assert_dropped(130, 30);
        see_nothing();
        see(5, 0, true); /* already some */
        see(120, 2, false);
        assert_dropped(250, 32);
        sample_node_free(&n);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(drops_are_counted_for_each_sfi),
                cmocka_unit_test(totals_continue_after_a_repair),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
