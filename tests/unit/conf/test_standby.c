/* Settings that commands of evb lab may change on a node, and addresses that may send commands. */
#include <arpa/inet.h>

#include "conf/standby_rules.h"
#include "conf_sample.h"

#define NODES                                                                                                \
        "[node d]\nrole = dfm\naddress = 10.9.0.1\n[node r]\nrole = ros\naddress = 10.9.0.2\n"               \
        "[node s]\nrole = sfi\naddress = 10.9.0.3\n"

TEST(test_permissions)
{
        static const struct {
                const char *setting, *permission;
        } cases[] = {
                {"qos.backend=htb", "qos"},
                {"qos.anything-new=1", "qos"},
                {"tuning.mtu=9000", "tuning"},
                {"sfi.output=file", "output"},
                {"sfi.file-events=1", "output"},
                {"sfi.file-size=1GiB", "output"},
                {"sfi.timeout=1s", NULL},
                {"network.link-rate=1Gbit", "link-rate"},
                {"network.mtu=1500", NULL},
                {"trigger.rate=max", NULL},
                {"", NULL},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                const char *p = scenario_setting_permission(cases[i].setting);

                assert_true((p == NULL) == (cases[i].permission == NULL));
                if (p)
                        assert_string_equal(p, cases[i].permission);
        }
}

static bool may(const char *permission)
{
        return scenario_allows(&sample, permission);
}

TEST(test_allow)
{
        assert_loads(COUNTS);
        assert_false(may("qos") || may("tuning") || may("link-rate") || may("output"));
        assert_sets("standby.allow=qos,  output");
        assert_true(may("qos") && may("output"));
        assert_false(may("tuning") || may("link-rate") || may("outpu") || may(""));
        assert_wrong_setting("standby.allow=qos, everything",
                             "\"everything\" is not a permission; expected qos");
}

/* No command may widen permissions or senders. */
TEST(test_local)
{
        assert_true(scenario_setting_is_local("standby.allow=qos"));
        assert_true(scenario_setting_is_local("network.command-from=0.0.0.0/0"));
        assert_true(scenario_setting_is_local("network.key-file="));
}

/* A setting that changes nothing needs no permission. */
TEST(test_changes)
{
        assert_loads(COUNTS "[qos]\nbackend = none\nrate = 20Mbit\n");
        assert_false(scenario_setting_changes(&sample, "qos.backend=none"));
        assert_false(scenario_setting_changes(&sample, "qos.rate=20000kbit"));
        assert_false(scenario_setting_changes(&sample, "sfi.output=null"));
        assert_true(scenario_setting_changes(&sample, "qos.backend=htb"));
        assert_true(scenario_setting_changes(&sample, "qos.rate=fast"));
        assert_true(scenario_setting_changes(&sample, "qos.nothing=1"));
        assert_true(scenario_setting_changes(&sample, "qos"));
}

static bool lets(const char *address)
{
        uint8_t bytes[16];
        int family = strchr(address, ':') ? AF_INET6 : AF_INET;

        assert_int_equal(inet_pton(family, address, bytes), 1);
        return scenario_list_has(&sample, sample.network.command_from, family, bytes);
}

TEST(test_command_from)
{
        assert_loads(NODES);
        assert_true(lets("10.9.0.1") && lets("10.9.0.3") && lets("127.0.0.1") && lets("127.9.9.9") &&
                    lets("::1"));
        assert_false(lets("10.9.0.4") || lets("128.0.0.1") || lets("a09:2::") || lets("::ffff:127.0.0.1"));
        assert_loads(NODES "[network]\ncommand-from = 10.8.4.0/22, fd00:9::/33,192.168.1.5\n");
        assert_true(lets("10.8.7.255") && lets("fd00:9:7fff::1") && lets("192.168.1.5"));
        assert_false(lets("10.8.8.0") || lets("10.8.3.255") || lets("fd00:9:8000::") || lets("192.168.1.4") ||
                     lets("10.9.0.2"));
        assert_loads(NODES "[network]\ncommand-from = nodes, 0.0.0.0/0\n");
        assert_true(lets("10.9.0.2") && lets("8.8.8.8"));
        assert_false(lets("2001:db8::1"));
}

TEST(test_wrong_senders)
{
        assert_wrong_values("network.command-from",
                            "is not an address; expected nodes, ADDRESS or ADDRESS/BITS", "nodes, desk",
                            "nodes, 10.0.0.0/33", "nodes, 10.0.0.0/", "nodes, 10.0.0.0/-1",
                            "nodes, 10.0.0.0/8x", "nodes, 10.0.0", "nodes, fe80::1%eth0", "nodes, ::/129");
}
