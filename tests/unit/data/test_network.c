/* Where a ROS meets its front-end. */
#include "../test.h"

#include "data/network.h"

static const struct {
        enum scenario_source kind;
        const char *address, *at, *local;
} cases[] = {
        {SOURCE_PATTERN, "127.0.0.5", "", "127.0.0.5:0"},
        {SOURCE_UDP, "127.0.0.5", "5000", "127.0.0.5:0"},
        {SOURCE_UDP, "127.0.0.5", "127.0.0.9:5000", "127.0.0.9:5000"},
        {SOURCE_UDP, "10.0.0.5", "[::1]:5000", "[::1]:5000"},
        {SOURCE_TCP, "127.0.0.5", "127.0.0.9:5000", "127.0.0.5:0"},
        {SOURCE_TCP, "10.0.0.5", "10.0.0.9:5000", "10.0.0.5:0"},
        {SOURCE_TCP, "10.0.0.5", "127.0.0.9:5000", "10.0.0.5:0"},
        /* A loopback address reaches no other machine. */
        {SOURCE_TCP, "127.0.0.5", "10.0.0.9:5000", "0.0.0.0:0"},
        {SOURCE_TCP, "::1", "[fd00::9]:5000", "[::]:0"},
        {SOURCE_TCP, "127.0.0.5", "[::1]:5000", "[::]:0"},
};

TEST_EACH(a_front_end_is_met_where_it_is_in_reach, i, ARRAY_SIZE(cases))
{
        struct scenario_node n = {.role = ROLE_ROS, .source_kind = cases[i].kind};
        char text[NET_ADDRESS_TEXT_MAX];
        struct net_address a;

        strcpy(n.address, cases[i].address);
        strcpy(n.source_at, cases[i].at);
        assert_int_equal(network_front_end_address(&a, &n), 0);
        assert_string_equal(net_address_format(&a, text), cases[i].local);
}
