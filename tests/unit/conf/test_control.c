/* control.*: where the DFM takes commands, and from whom. */
#include "conf_sample.h"

#include <sys/socket.h>

#include "conf/address_list.h"

static void assert_place(const char *expected)
{
        char text[SCENARIO_TEXT_MAX];

        assert_true(scenario_control_place(&sample, text));
        assert_string_equal(text, expected);
}

TEST(by_default_there_is_none)
{
        char text[SCENARIO_TEXT_MAX];

        assert_loads(COUNTS);
        assert_int_equal(sample.control.kind, CONTROL_NONE);
        assert_int_equal(sample.run.start, START_AUTO);
        assert_false(scenario_control_place(&sample, text));
}

TEST(places)
{
        char here[PATH_MAX], expected[PATH_MAX + 32], text[SCENARIO_TEXT_MAX];

        assert_loads(MACHINES "[control]\nlisten = :26803\n");
        assert_place("10.0.0.1:26803");
        assert_loads(MACHINES "[control]\nlisten = 0.0.0.0:26803\n");
        assert_place("0.0.0.0:26803");
        assert_loads(MACHINES "[control]\nlisten = unix:/run/evb/c.sock\n");
        assert_place("unix:/run/evb/c.sock");
        /* A relative path of a setting starts here, one of the file beside it. */
        assert_sets("control.listen=unix:c.sock");
        assert_non_null(getcwd(here, sizeof here));
        snprintf(expected, sizeof expected, "unix:%s/c.sock", here);
        assert_place(expected);
        assert_loads(COUNTS "[control]\nlisten = unix:c.sock\ntoken-file = key\n");
        assert_place("unix:/tmp/c.sock");
        assert_string_equal(sample.control.token_file, "/tmp/key");
        assert_loads(COUNTS "[network]\nkey-file = key\n");
        assert_string_equal(sample.network.key_file, "/tmp/key");
        /* evb run chooses the addresses. */
        assert_loads(COUNTS "[control]\nlisten = :26803\n");
        assert_false(scenario_control_place(&sample, text));
}

TEST(errors_say_what_is_expected)
{
        assert_wrong_setting("control.listen=26803", "expected none, :PORT");
        assert_wrong_setting("control.listen=:0", "expected none, :PORT");
        assert_wrong_setting("control.listen=localhost:26803", "numeric");
        assert_wrong_setting("control.listen=239.1.1.1:26803", "expected none, :PORT");
        assert_wrong_setting("control.listen=unix:", "no path");
        assert_wrong_setting(
                "control.listen=unix:/0123456789012345678901234567890123456789012345678901234567890123456789"
                "0123456789012345678901234567890123456789",
                "at most 107 bytes");
        assert_wrong_setting("network.clients=nodes, everybody", "\"everybody\" is not an address");
        assert_wrong_setting("run.start=manual", "control.listen");
        assert_wrong_setting("run.start=later", "auto or manual");
        assert_wrong(COUNTS "[control]\nlisten = :9464\n[metrics]\nlisten = :9464\n",
                     ":6: control.listen: ", "port 9464 is that of metrics.listen");
        assert_wrong(COUNTS "[control]\nlisten = unix:/a\n[metrics]\nlisten = unix:/a\n",
                     ":6: control.listen: ", "another path");
}

TEST(addresses_that_may_control)
{
        const uint8_t node[] = {10, 0, 0, 2}, other[] = {10, 0, 0, 9}, loopback[] = {127, 0, 0, 5};

        assert_loads(MACHINES "[control]\nlisten = :26803\n");
        assert_true(scenario_list_has(&sample, sample.network.clients, AF_INET, loopback));
        assert_true(scenario_list_has(&sample, sample.network.clients, AF_INET, node));
        assert_false(scenario_list_has(&sample, sample.network.clients, AF_INET, other));
        assert_loads(MACHINES "[control]\nlisten = :26803\n[network]\nclients = none\n");
        assert_true(scenario_list_has(&sample, sample.network.clients, AF_INET, loopback));
        assert_false(scenario_list_has(&sample, sample.network.clients, AF_INET, node));
        assert_loads(MACHINES "[control]\nlisten = :26803\n[network]\nclients = nodes, 10.0.0.8/31\n");
        assert_true(scenario_list_has(&sample, sample.network.clients, AF_INET, other));
}
