/* metrics.listen: its values, and the place that each node gets. */
#include "conf_sample.h"

static void assert_place(const char *node, const char *expected)
{
        char text[SCENARIO_TEXT_MAX];

        assert_true(scenario_metrics_place(&sample, scenario_find(&sample, node), text));
        assert_string_equal(text, expected);
}

static void assert_beside(const char *node, const char *expected)
{
        char text[SCENARIO_TEXT_MAX];

        assert_true(scenario_metrics_beside(&sample, scenario_find(&sample, node), text));
        assert_string_equal(text, expected);
}

TEST(by_default_there_are_none)
{
        char text[SCENARIO_TEXT_MAX];

        assert_loads(COUNTS);
        assert_int_equal(sample.metrics.kind, METRICS_NONE);
        assert_false(scenario_metrics_place(&sample, &sample.nodes[0], text));
}

TEST(a_port_alone_is_of_the_nodes_own_address)
{
        assert_loads(MACHINES "[metrics]\nlisten = :9464\n");
        assert_place("a", "10.0.0.2:9464");
        assert_place("d", "10.0.0.1:9464");
        assert_beside("a", ":9464");
        assert_loads("[node a]\nrole = ros\naddress = fd00::2\n[node d]\nrole = dfm\naddress = "
                     "fd00::1\n[node s]\nrole = sfi\naddress = fd00::3\n[network]\n"
                     "control-group = none\n[metrics]\nlisten = :9464\n");
        assert_place("s", "[fd00::3]:9464");
}

TEST(a_host_is_for_each_machine)
{
        assert_loads(MACHINES "[metrics]\nlisten = 0.0.0.0:9464\n");
        assert_place("a", "0.0.0.0:9464");
        assert_loads(MACHINES "[metrics]\nlisten = [::]:9464\n");
        assert_place("s", "[::]:9464");
}

TEST(nodes_of_one_machine_have_consecutive_ports)
{
        assert_loads(MACHINES "[metrics]\nlisten = 127.0.0.1:9464\n");
        assert_beside("d", "127.0.0.1:9464");
        assert_beside("a", "127.0.0.1:9465");
        assert_beside("s", "127.0.0.1:9466");
        assert_sets("metrics.listen=[::1]:9464");
        assert_beside("dfm", "[::1]:9464");
        assert_beside("ros2", "[::1]:9466");
        assert_sets("metrics.listen=127.0.0.1:65532");
        assert_beside("sfi1", "127.0.0.1:65535");
        assert_wrong(COUNTS "[metrics]\nlisten = 127.0.0.1:65533\n",
                     ":6: metrics.listen:", "leaves no port for node sfi1");
}

static void assert_reach(const char *node, const char *expected)
{
        char text[SCENARIO_TEXT_MAX] = "nowhere";

        assert_int_equal(scenario_metrics_reach(&sample, scenario_find(&sample, node), text),
                         expected != NULL);
        if (expected)
                assert_string_equal(text, expected);
}

TEST(clients_know_the_place_of_each_node)
{
        assert_loads(MACHINES "[metrics]\nlisten = :9464\n");
        assert_reach("a", "10.0.0.2:9464");
        assert_loads(MACHINES "[metrics]\nlisten = 0.0.0.0:9464\n");
        assert_reach("s", "10.0.0.3:9464");
        assert_loads(MACHINES "[metrics]\nlisten = 127.0.0.1:9464\n");
        assert_reach("s", "127.0.0.1:9466");
        assert_sets("metrics.listen=:9464");
        assert_reach("ros1", NULL);
        assert_sets("metrics.listen=[::]:9464");
        assert_reach("ros1", "[::1]:9465");
        assert_sets("metrics.listen=unix:/run/%n");
        assert_reach("ros1", "unix:/run/ros1");
        assert_sets("metrics.listen=unix:/run/evb");
        assert_reach("dfm", "unix:/run/evb");
        assert_reach("ros1", "unix:/run/evb.ros1");
        assert_loads(COUNTS);
        assert_reach("dfm", NULL);
}

TEST(a_path_names_the_node)
{
        assert_sets("metrics.listen=unix:/run/evb/%n.sock");
        assert_place("ros2", "unix:/run/evb/ros2.sock");
        assert_beside("ros2", "unix:/run/evb/%n.sock");
        assert_sets("metrics.listen=unix:/run/a%%n/metrics");
        assert_place("dfm", "unix:/run/a%n/metrics");
        assert_beside("dfm", "unix:/run/a%%n/metrics");
        assert_beside("ros1", "unix:/run/a%%n/metrics.ros1");
}

TEST(a_relative_path_begins_at_the_file)
{
        assert_loads(COUNTS "[metrics]\nlisten = unix:%n.sock\n");
        assert_place("dfm", "unix:/tmp/dfm.sock");
}

TEST(a_long_path_is_an_error)
{
        char text[200] = "metrics.listen=unix:/";

        /* With the 4 bytes of "sfi1", 108 bytes: one too many. */
        memset(text + strlen(text), 'x', 103);
        strcat(text, "%n");
        assert_wrong_setting(text, "too long for the socket of node ros1; expected at most 107");
        memmove(text + 22, text + 23, strlen(text + 23) + 1);
        assert_sets(text);
}

TEST(wrong_values)
{
        assert_wrong_values("metrics.listen", "expected none, :PORT", "", "9464", "*:9464", ":0", ":65536",
                            "localhost:9464", "::1:9464", ":9464 ", "224.0.0.1:9464", "127.0.0.1",
                            "http://a:9464");
        assert_wrong_setting("metrics.listen=unix:", "expected a path in which %n is");
        assert_wrong(COUNTS "[metrics]\nlisten = unix:/run/%h.sock\n",
                     ":6: metrics.listen:", "expected a path in which %n is");
}

TEST(the_ports_of_others_are_errors)
{
        assert_sets("metrics.listen=:26801");
        assert_wrong(COUNTS "[scenario]\ntransport = tcp\n[metrics]\nlisten = :26801\n",
                     ":8: metrics.listen:", "the port after network.port");
        assert_wrong(COUNTS "[level2]\nlisten = tcp:9000\n[metrics]\nlisten = :9000\n",
                     ":8: metrics.listen:", "level2.listen");
}

static void assert_live(size_t sfi, const char *expected, const char *with_evb_run)
{
        const struct scenario_node *n = scenario_node_of(&sample, ROLE_SFI, sfi);
        char place[SCENARIO_TEXT_MAX];

        assert_true(scenario_live_place(&sample, n, place));
        assert_string_equal(place, expected);
        assert_true(scenario_live_beside(&sample, n, place));
        assert_string_equal(place, with_evb_run);
}

TEST(with_evb_run_sfis_listen_for_consumers_at_consecutive_ports)
{
        char place[SCENARIO_TEXT_MAX];

        assert_loads("[ros]\ncount = 1\n[sfi]\ncount = 2\n[live]\nlisten = 127.0.0.1:7000\n");
        assert_live(0, "127.0.0.1:7000", "127.0.0.1:7000");
        assert_live(1, "127.0.0.1:7000", "127.0.0.1:7001");
        assert_loads("[ros]\ncount = 1\n[sfi]\ncount = 2\n[live]\nlisten = [::]:7000\n");
        assert_live(1, "[::]:7000", "[::]:7001");
        assert_loads("[ros]\ncount = 1\n[sfi]\ncount = 2\n[live]\nlisten = unix:/run/%n\n");
        assert_live(1, "unix:/run/sfi2", "unix:/run/%n");
        assert_loads("[ros]\ncount = 1\n[sfi]\ncount = 2\n");
        assert_false(scenario_live_place(&sample, scenario_node_of(&sample, ROLE_SFI, 0), place));
        assert_wrong("[ros]\ncount = 1\n[sfi]\ncount = 2\n[live]\nlisten = 127.0.0.1:65535\n",
                     ":6: live.listen: ", "no port is left for node sfi2");
        assert_wrong("[ros]\ncount = 1\n[sfi]\ncount = 2\noutput = live\n",
                     ":5: sfi.output: ", "live needs a place for consumers; set live.listen");
        assert_loads("[ros]\ncount = 1\n[sfi]\ncount = 2\noutput = live\n[live]\nlisten = [::]:7000\n");
        assert_true(sample.live.all);
        assert_wrong_values("live.listen", "expected none, HOST:PORT with", "7000", "host:7000", "::1:7000",
                            "127.0.0.1:0", "239.1.1.1:7000", "");
}
