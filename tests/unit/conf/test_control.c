/* control.*: where the DFM takes commands, and from whom. */
#include "conf_sample.h"

#include <sys/socket.h>

#include "evb/conf/standby.h"

#define MACHINES                                                                                             \
        "[node a]\nrole = ros\naddress = 10.0.0.2\n[node d]\nrole = dfm\naddress = 10.0.0.1\n"               \
        "[node s]\nrole = sfi\naddress = 10.0.0.3\n"

static void assert_place(const char *expected)
{
        char text[SCENARIO_TEXT_MAX];

        assert_true(scenario_control_place(&sample, text));
        assert_string_equal(text, expected);
}

TEST(by_default_there_is_none)
{
        char text[SCENARIO_TEXT_MAX];

        assert_int_equal(sample_load(COUNTS), 0);
        assert_int_equal(sample.control.kind, CONTROL_NONE);
        assert_int_equal(sample.run.start, START_AUTO);
        assert_false(scenario_control_place(&sample, text));
}

TEST(places)
{
        char here[PATH_MAX], expected[PATH_MAX + 32], text[SCENARIO_TEXT_MAX];

        assert_int_equal(sample_load(MACHINES "[control]\nlisten = :26803\n"), 0);
        assert_place("10.0.0.1:26803");
        assert_int_equal(sample_load(MACHINES "[control]\nlisten = 0.0.0.0:26803\n"), 0);
        assert_place("0.0.0.0:26803");
        assert_int_equal(sample_load(MACHINES "[control]\nlisten = unix:/run/evb/c.sock\n"), 0);
        assert_place("unix:/run/evb/c.sock");
        /* A relative path of a setting starts here, one of the file beside it. */
        assert_int_equal(sample_set("control.listen=unix:c.sock"), 0);
        assert_non_null(getcwd(here, sizeof here));
        snprintf(expected, sizeof expected, "unix:%s/c.sock", here);
        assert_place(expected);
        assert_int_equal(sample_load(COUNTS "[control]\nlisten = unix:c.sock\ntoken-file = key\n"), 0);
        assert_place("unix:/tmp/c.sock");
        assert_string_equal(sample.control.token_file, "/tmp/key");
        assert_int_equal(sample_load(COUNTS "[network]\nkey-file = key\n"), 0);
        assert_string_equal(sample.network.key_file, "/tmp/key");
        /* evb run chooses the addresses. */
        assert_int_equal(sample_load(COUNTS "[control]\nlisten = :26803\n"), 0);
        assert_false(scenario_control_place(&sample, text));
}

TEST(errors_say_what_is_expected)
{
        static const struct {
                const char *setting, *what;
        } cases[] = {
                {"control.listen=26803", "expected none, :PORT"},
                {"control.listen=:0", "expected none, :PORT"},
                {"control.listen=localhost:26803", "numeric"},
                {"control.listen=239.1.1.1:26803", "expected none, :PORT"},
                {"control.listen=unix:", "no path"},
                {"control.listen=unix:/0123456789012345678901234567890123456789012345678901234567890123456789"
                 "0123456789012345678901234567890123456789",
                 "at most 107 bytes"},
                {"control.allow=nodes, everybody", "\"everybody\" is not an address"},
                {"run.start=manual", "control.listen"},
                {"run.start=later", "auto or manual"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char at[300];

                assert_int_equal(sample_set(cases[i].setting), -EINVAL);
                snprintf(at, sizeof at, "--set %.80s", cases[i].setting);
                assert_one_error(at, cases[i].what);
        }
        assert_int_equal(sample_load(COUNTS "[control]\nlisten = :9464\n[metrics]\nlisten = :9464\n"),
                         -EINVAL);
        assert_one_error(":6: control.listen: ", "port 9464 is that of metrics.listen");
        assert_int_equal(sample_load(COUNTS "[control]\nlisten = unix:/a\n[metrics]\nlisten = unix:/a\n"),
                         -EINVAL);
        assert_one_error(":6: control.listen: ", "another path");
}

TEST(addresses_that_may_control)
{
        const uint8_t node[] = {10, 0, 0, 2}, other[] = {10, 0, 0, 9}, loopback[] = {127, 0, 0, 5};

        assert_int_equal(sample_load(MACHINES "[control]\nlisten = :26803\n"), 0);
        assert_true(scenario_list_has(&sample, sample.control.allow, AF_INET, loopback));
        assert_false(scenario_list_has(&sample, sample.control.allow, AF_INET, node));
        assert_int_equal(sample_load(MACHINES "[control]\nlisten = :26803\nallow = nodes, 10.0.0.8/31\n"), 0);
        assert_true(scenario_list_has(&sample, sample.control.allow, AF_INET, node));
        assert_true(scenario_list_has(&sample, sample.control.allow, AF_INET, other));
}
