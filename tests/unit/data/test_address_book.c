/* Addresses of a scenario's nodes, and the datagram size and faults that follow from its network keys. */
#include "../test.h"

#include "data/network.h"
#include "data_sample.h"

static struct net_address at(const char *text, uint16_t port)
{
        struct net_address a;

        assert_int_equal(net_address_parse(&a, text, port), 0);
        return a;
}

TEST(nodes_are_found_by_role_and_index)
{
        struct net_address ros2 = at(sample_at(3), 46910), elsewhere = at(sample_at(3), 1),
                           sfi1 = at(sample_at(4), 46910);
        _cleanup_(sample_close) struct sample s;

        sample_open(&s, "sfi1", "udp");
        assert_true(net_address_equal(address_book_find(&s.nodes, ROLE_ROS, 1), &ros2));
        assert_true(net_address_equal(address_book_find(&s.nodes, ROLE_SFI, 0), &sfi1));
        assert_non_null(address_book_find(&s.nodes, ROLE_DFM, 0));
        assert_null(address_book_find(&s.nodes, ROLE_ROS, 2));
        assert_null(address_book_find(&s.nodes, ROLE_SFI, 2));
        assert_true(address_book_is_host(&s.nodes, ROLE_ROS, 1, &elsewhere)); /* another port */
        assert_false(address_book_is_host(&s.nodes, ROLE_ROS, 0, &ros2));
        assert_false(address_book_is_host(&s.nodes, ROLE_ROS, 2, &ros2));
}

TEST(a_node_without_a_valid_address_is_an_error)
{
        struct address_book book;
        _cleanup_(sample_close) struct sample s;

        sample_open(&s, "sfi1", "udp");
        s.scenario->nodes[1].address[0] = '\0';
        assert_int_equal(address_book_init(&book, s.scenario), -EINVAL);
        address_book_fini(&book);
        strcpy(s.scenario->nodes[1].address, "somewhere");
        assert_int_equal(address_book_init(&book, s.scenario), -EINVAL);
        address_book_fini(&book);
}

TEST(datagrams_fill_the_mtu)
{
        _cleanup_free_ struct scenario *s = sample_scenario("udp");

        s->network.mtu_bytes = 1500;
        assert_int_equal(network_datagram_bytes(s), 1472);
        strcpy(s->nodes[0].address, "::1");
        assert_int_equal(network_datagram_bytes(s), 1452);
}

TEST(each_socket_has_its_own_faults)
{
        _cleanup_free_ struct scenario *s = sample_scenario("udp");
        const struct scenario_node *ros1 = scenario_find(s, "ros1"), *sfi1 = scenario_find(s, "sfi1");

        s->network.loss = 0.25;
        assert_true(network_fault_config(s, ros1, 0).loss == 0.25);
        assert_int_equal(network_fault_config(s, ros1, 0).seed, network_fault_config(s, ros1, 0).seed);
        assert_int_not_equal(network_fault_config(s, ros1, 0).seed, network_fault_config(s, ros1, 1).seed);
        assert_int_not_equal(network_fault_config(s, ros1, 0).seed, network_fault_config(s, sfi1, 0).seed);
}

/* The address that a level-2 client learns. */
TEST(addresses_become_v6_and_return)
{
        static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 10, 1, 2, 3};
        struct net_address v4 = at("10.1.2.3", 5), v6 = at("fd00::7", 9), back;
        uint8_t bytes[16];

        net_address_to_v6(&v4, bytes);
        assert_memory_equal(bytes, mapped, 16);
        net_address_of_v6(&back, bytes, 5);
        assert_true(net_address_equal(&back, &v4) && back.size_bytes == v4.size_bytes);
        net_address_to_v6(&v6, bytes);
        net_address_of_v6(&back, bytes, 9);
        assert_true(net_address_equal(&back, &v6) && back.size_bytes == v6.size_bytes);
}
