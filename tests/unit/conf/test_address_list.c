/* Lists of addresses: which addresses they have, and what they refuse. */
#include <arpa/inet.h>

#include "conf/address_list.h"
#include "conf_sample.h"

#define NODES                                                                                                \
        "[node d]\nrole = dfm\naddress = 10.9.0.1\n[node r]\nrole = ros\naddress = 10.9.0.2\n"               \
        "[node s]\nrole = sfi\naddress = 10.9.0.3\n"

static bool lets(const char *address)
{
        uint8_t bytes[16];
        int family = strchr(address, ':') ? AF_INET6 : AF_INET;

        assert_int_equal(inet_pton(family, address, bytes), 1);
        return scenario_list_has(&sample, sample.network.clients, family, bytes);
}

TEST(addresses_are_found)
{
        assert_loads(NODES "[network]\nclients = nodes\n");
        assert_true(lets("10.9.0.1") && lets("10.9.0.3") && lets("127.0.0.1") && lets("127.9.9.9") &&
                    lets("::1"));
        assert_false(lets("10.9.0.4") || lets("128.0.0.1") || lets("a09:2::") || lets("::ffff:127.0.0.1"));
        assert_loads(NODES "[network]\nclients = 10.8.4.0/22, fd00:9::/33,192.168.1.5\n");
        assert_true(lets("10.8.7.255") && lets("fd00:9:7fff::1") && lets("192.168.1.5"));
        assert_false(lets("10.8.8.0") || lets("10.8.3.255") || lets("fd00:9:8000::") || lets("192.168.1.4") ||
                     lets("10.9.0.2"));
        assert_loads(NODES "[network]\nclients = nodes, 0.0.0.0/0\n");
        assert_true(lets("10.9.0.2") && lets("8.8.8.8"));
        assert_false(lets("2001:db8::1"));
}

TEST(other_words_are_refused)
{
        assert_wrong_values("network.clients", "is not an address; expected nodes, ADDRESS or ADDRESS/BITS",
                            "nodes, desk", "nodes, 10.0.0.0/33", "nodes, 10.0.0.0/", "nodes, 10.0.0.0/-1",
                            "nodes, 10.0.0.0/8x", "nodes, 10.0.0", "nodes, fe80::1%eth0", "nodes, ::/129");
}
