/* Nodes made from counts and from sections, and the errors of both. */
#include "conf_sample.h"

#define DFM "[node d]\nrole = dfm\n"
#define ROS "[node r]\nrole = ros\n"
#define SFI "[node s]\nrole = sfi\n"

TEST(test_counts)
{
        const struct scenario_node *n;

        assert_loads(COUNTS);
        assert_int_equal(sample.n_nodes, 4);
        assert_string_equal(sample.nodes[0].name, "dfm");
        assert_int_equal(scenario_count(&sample, ROLE_ROS), 2);
        n = scenario_find(&sample, "ros2");
        assert_non_null(n);
        assert_fields(n, role, ROLE_ROS, index, 1);
        assert_string_equal(n->address, "");
        assert_ptr_equal(scenario_node_of(&sample, ROLE_SFI, 0), scenario_find(&sample, "sfi1"));
        assert_null(scenario_node_of(&sample, ROLE_SFI, 1));
        assert_null(scenario_find(&sample, "ros3"));
}

TEST(test_most)
{
        assert_loads("[ros]\ncount = 1024\n[sfi]\ncount = 512\n");
        assert_int_equal(sample.n_nodes, 1537);
        assert_string_equal(sample.nodes[1536].name, "sfi512");
}

TEST(test_named)
{
        const struct scenario_node *n;

        assert_loads(DFM SFI
                     "[node far.ros_1-a]\nrole = ros\naddress = 10.0.0.9\ndevice = eth1\ncpus = 2-4,8\n" ROS);
        n = scenario_find(&sample, "far.ros_1-a");
        assert_non_null(n);
        assert_fields(n, index, 0, line, 5);
        assert_string_equal(n->address, "10.0.0.9");
        assert_string_equal(n->device, "eth1");
        assert_int_equal(n->n_cpus, 4);
        assert_int_equal(n->cpus[3], 8);
        assert_int_equal(scenario_find(&sample, "r")->index, 1);
        assert_int_equal(sample.ros.count, 2);
        assert_int_equal(sample.sfi.count, 1);
}

/* A count keeps the first nodes of its role. */
TEST(test_counts_of_named)
{
        const char *const few[] = {"ros.count=2"};

        assert_int_equal(
                sample_load_with(ROS DFM "[node r2]\nrole = ros\n" SFI "[node r3]\nrole = ros\n", few, 1), 0);
        assert_int_equal(sample.ros.count, 2);
        assert_int_equal(sample.sfi.count, 1);
        assert_int_equal(sample.n_nodes, 4);
        assert_int_equal(scenario_find(&sample, "r2")->index, 1);
        assert_null(scenario_find(&sample, "r3"));
}

TEST(test_settings_of_nodes)
{
        const char *const right[] = {"node r.cpus=1", "node a.b.address=::1", "network.control-group=none"};
        const char *const wrong[] = {"node x.cpus=1"};

        assert_int_equal(sample_load_with(DFM SFI ROS "cpus = auto\n[node a.b]\nrole = ros\n", right, 3), 0);
        assert_int_equal(scenario_find(&sample, "r")->cpus[0], 1);
        assert_false(scenario_find(&sample, "r")->cpus_auto);
        assert_string_equal(scenario_find(&sample, "a.b")->address, "::1");
        sample_load_with(DFM SFI ROS, wrong, 1);
        assert_one_error("--set node x.cpus=1: node x.cpus: ", "unknown node; expected a node of the file");
}

TEST(test_wrong)
{
        assert_wrong(DFM ROS SFI "[ros]\ncount = 2\n", ":8: ros.count: ",
                     "2 is too many; expected at most 1, the number of [node NAME] sections of this role");
        assert_wrong(DFM ROS SFI "[sfi]\ncount = 9\n", ":8: sfi.count: ", "9 is too many");
        assert_wrong(DFM ROS "[sfi]\ncount = 1\n", ":6: sfi.count: ", "0 SFIs; expected 1 to 512");
        assert_wrong(DFM ROS SFI "[node d2]\nrole = dfm\n",
                     ": node.role: ", "2 nodes have the role dfm; expected 1");
        assert_wrong(ROS SFI, ": node.role: ", "0 nodes have the role dfm");
        assert_wrong(DFM SFI, ": ros.count: ", "0 ROSs; expected 1 to 1024");
        assert_wrong(DFM ROS, ": sfi.count: ", "0 SFIs; expected 1 to 512");
        assert_wrong("[ros]\ncount = 1\n", ": sfi.count: ", "0 SFIs");
        assert_wrong(DFM ROS SFI "[node r]\n", ":7: node: ", "duplicate section [node r]; first on line 3");
        assert_wrong(DFM SFI ROS "[node e]\n", ":7: node e.role: ", "missing key; expected dfm, ros or sfi");
        assert_wrong(DFM SFI ROS "role = ros\n", ":7: node r.role: ", "duplicate key; first set on line 6");
        assert_wrong(DFM SFI ROS "[node x]\nrole = boss\n",
                     ":8: node x.role: ", "invalid role \"boss\"; expected dfm, ros or sfi");
        assert_wrong(DFM SFI ROS "colour = red\n",
                     ":7: node r.colour: ", "expected role, address, device or cpus");
        assert_wrong(DFM SFI ROS "[node a b]\n", ":7: node: ", "invalid node name \"a b\"");
        assert_wrong(DFM SFI ROS "[node ../x]\n", ":7: node: ", "invalid node name");
        assert_wrong(DFM SFI ROS "[node --help]\n", ":7: node: ", "invalid node name");
        assert_wrong(DFM SFI ROS "[node a2345678901234567890123456789012]\n",
                     ":7: node: ", "invalid node name");
        assert_wrong(DFM SFI ROS "cpus = 9-1\n",
                     ":7: node r.cpus: ", "expected auto, or at most 16 processors");
        assert_wrong(DFM SFI ROS "cpus = 1-\n", ":7: node r.cpus: ", "2-5,8");
        assert_wrong(DFM SFI ROS "cpus = 0-16\n", ":7: node r.cpus: ", "at most 16 processors");
        assert_wrong(DFM SFI ROS "device = a-name-too-long-for-linux\n",
                     ":7: node r.device: ", "1 to 15 bytes");
        assert_wrong(DFM SFI ROS "device = a/b\n", ":7: node r.device: ", "invalid device name \"a/b\"");
        assert_wrong(DFM SFI ROS "address = banana\n", ":7: node r.address: ", "invalid address \"banana\"");
        assert_wrong(DFM SFI ROS "address = 10.0.0.256\n", ":7: node r.address: ", "invalid address");
        assert_wrong(DFM SFI ROS "address = 239.1.1.1\n", ":7: node r.address: ", "of one machine");
        assert_wrong(DFM SFI ROS "address = 0.0.0.0\n", ":7: node r.address: ", "of one machine");
        assert_wrong(DFM SFI ROS "address = 255.255.255.255\n", ":7: node r.address: ", "of one machine");
        assert_wrong(DFM SFI ROS "address = ff05::1\n", ":7: node r.address: ", "of one machine");
        assert_wrong(DFM SFI ROS "address = 10.0.0.1%eth0\n", ":7: node r.address: ", "invalid address");
        assert_wrong(DFM SFI "address = 10.0.0.1\n" ROS "address = 10.0.0.1\n",
                     ":6: node r.address: ", "node s already has address");
        assert_wrong(DFM SFI "address = ::1\n" ROS "address = 0:0::0:1\n[network]\ncontrol-group = none\n",
                     ":6: node r.address: ", "node s already has address");
        assert_wrong(DFM SFI "address = ::1\n" ROS "address = 10.0.0.1\n[network]\ncontrol-group = none\n",
                     ":6: node r.address: ", "all IPv4 or all IPv6");
        assert_wrong(DFM SFI ROS "address = ::1\n",
                     ": network.control-group: ", "another address family than ::1 of node r");
}

TEST(test_v6)
{
        assert_loads(DFM "address = fe80::1%eth0\n" SFI "address = fe80::2%eth0\n" ROS
                         "[network]\ncontrol-group = ff05::6986\n");
        assert_string_equal(scenario_find(&sample, "d")->address, "fe80::1%eth0");
}

/* Packets to these addresses are IPv4. */
TEST(mapped_addresses_are_ipv4)
{
        assert_loads(DFM "address = ::ffff:10.0.0.1\n" SFI "address = 10.0.0.2\n" ROS
                         "address = ::FFFF:a00:3\n");
        assert_string_equal(scenario_find(&sample, "d")->address, "10.0.0.1");
        assert_string_equal(scenario_find(&sample, "r")->address, "10.0.0.3");
}

TEST(loopback_among_machines_is_pointed_out)
{
        assert_loads(DFM "address = 127.0.1.1\n" SFI "address = 10.0.0.2\n" ROS "address = 10.0.0.3\n");
        assert_int_equal(sample_errors.n_warnings, 1);
        assert_non_null(strstr(sample_errors.warnings[0],
                               "warning: node d.address: 127.0.1.1 is a loopback address, "
                               "which other machines cannot reach; node s has 10.0.0.2"));
        assert_loads(DFM "address = 127.0.1.1\n" SFI "address = 127.0.1.2\n" ROS "address = 127.0.1.3\n");
        assert_int_equal(sample_errors.n_warnings, 0);
}
