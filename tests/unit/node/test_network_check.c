/* What evb check --network says of the answers of nodes: each fault, and no other. */
#include "../test.h"

#include "conf/digest.h"
#include "node/metrics/openmetrics.h"
#include "node/metrics/statuses.h"

#define NODES 3

static struct {
        struct scenario scenario;
        struct node_status nodes[NODES];
        struct statuses statuses;
        json_t *faults;
} t;

static int set_up(void **state)
{
        static const char *const names[NODES] = {"dfm", "ros1", "sfi1"};
        static const enum node_role roles[NODES] = {ROLE_DFM, ROLE_ROS, ROLE_SFI};
        struct member_keys keys;
        json_t *digest = json_array();

        memset(&t, 0, sizeof t);
        t.statuses = (struct statuses){&t.scenario, NODES, t.nodes};
        t.scenario.n_nodes = NODES;
        t.scenario.network.control_port = 26800;
        t.scenario.network.mtu_bytes = 9000;
        strcpy(t.scenario.path, "s.conf");
        strcpy(t.scenario.network.control_group, "239.192.0.1");
        for (size_t i = 0; i < NODES; i++) {
                strcpy(t.scenario.nodes[i].name, names[i]);
                t.scenario.nodes[i].role = roles[i];
                snprintf(t.scenario.nodes[i].address, sizeof t.scenario.nodes[i].address, "10.0.0.%zu",
                         i + 1);
        }
        scenario_digest(&t.scenario, &keys);
        json_array_append_new(digest, json_integer(keys.table));
        for (uint32_t i = 0; i < keys.n; i++)
                json_array_append_new(digest, json_integer(keys.values[i]));
        for (size_t i = 0; i < NODES; i++) {
                t.nodes[i].node = &t.scenario.nodes[i];
                t.nodes[i].status = json_pack("{s:s, s:s, s:O}", "state", "running", "version", EVB_VERSION,
                                              "digest", digest);
        }
        json_decref(digest);
        json_object_set_new(t.nodes[0].status, "peers",
                            json_pack("[{s:s, s:b}, {s:s, s:b}]", "node", "ros1", "live", true, "node",
                                      "sfi1", "live", true));
        return 0;
}

static int tear_down(void **state)
{
        for (size_t i = 0; i < NODES; i++)
                json_decref(t.nodes[i].status);
        json_decref(t.faults);
        return 0;
}

static void set(size_t i, const char *name, json_t *value)
{
        json_object_set_new(t.nodes[i].status, name, value);
}

static void set_live(size_t peer, bool live)
{
        json_object_set_new(json_array_get(json_object_get(t.nodes[0].status, "peers"), peer), "live",
                            json_boolean(live));
}

/* The only fault has these texts; NULL: there is none. */
static void assert_fault(const char *node, const char *fault, const char *command)
{
        json_t *first;

        json_decref(t.faults);
        t.faults = network_check_faults(&t.statuses);
        assert_int_equal(json_array_size(t.faults), node ? 1 : 0);
        if (!node)
                return;
        first = json_array_get(t.faults, 0);
        assert_string_equal(json_string_value(json_object_get(first, "node")), node);
        assert_string_equal(json_string_value(json_object_get(first, "fault")), fault);
        assert_non_null(strstr(json_string_value(json_object_get(first, "command")), command));
}

static void no_answer(size_t i, const char *problem)
{
        json_decref(take_ptr(t.nodes[i].status));
        t.nodes[i].condition = CONDITION_SILENT;
        strcpy(t.nodes[i].problem, problem);
}

TEST_WITH(a_network_without_a_fault_has_none, set_up, tear_down)
{
        assert_fault(NULL, NULL, NULL);
        /* An idle node waits, and an earlier version does not say all. */
        set(0, "state", json_string("ready"));
        set(1, "reason", json_string("waiting for run 7 to begin"));
        json_object_del(t.nodes[2].status, "digest");
        assert_fault(NULL, NULL, NULL);
}

TEST_WITH(a_node_that_does_not_answer_is_started_or_reached, set_up, tear_down)
{
        no_answer(1, "no answer from 10.0.0.2:9464: Connection refused");
        assert_fault("ros1", t.nodes[1].problem, "systemctl start evb-ros@ros1");
        no_answer(1, "no answer from 10.0.0.2:9464: Connection timed out");
        assert_fault("ros1", t.nodes[1].problem, "ping 10.0.0.2");
        no_answer(1, "10.0.0.2:9464 is node ros7");
        assert_fault("ros1", t.nodes[1].problem, "in s.conf");
        tear_down(NULL);
        set_up(NULL);
        no_answer(0, "no answer from 10.0.0.1:9464: Connection refused");
        assert_fault("dfm", t.nodes[0].problem, "systemctl start evb-dfm");
        strcpy(t.scenario.nodes[0].address, "127.0.0.1");
        json_object_del(t.nodes[1].status, "digest");
        json_object_del(t.nodes[2].status, "digest");
        assert_fault("dfm", t.nodes[0].problem, "start evb dfm --config s.conf --node dfm");
}

TEST_WITH(version_scenario_and_clock_must_agree, set_up, tear_down)
{
        set(2, "version", json_string("0.1\033[2J"));
        assert_fault("sfi1", "it runs evb 0.1?[2J, and this machine evb " EVB_VERSION,
                     "systemctl restart evb-sfi@sfi1");
        set(2, "version", json_string(EVB_VERSION));
        json_array_set_new(json_object_get(t.nodes[0].status, "digest"), 1, json_integer(1));
        json_object_del(t.nodes[1].status, "digest");
        json_object_del(t.nodes[2].status, "digest");
        assert_fault("dfm", "its scenario differs from s.conf in scenario.mode", "scp s.conf 10.0.0.1:");
        json_object_del(t.nodes[0].status, "digest");
        set(1, "settings", status_make_settings(&t.scenario));
        assert_fault(NULL, NULL, NULL);
        t.scenario.sfi.timeout_ns++;
        assert_fault("ros1", "its scenario differs from s.conf in sfi.timeout",
                     "systemctl restart evb-ros@ros1");
        /* Another version has other keys. */
        json_array_remove(json_object_get(t.nodes[1].status, "settings"), 0);
        t.nodes[1].clock_ahead_s = 1;
        assert_fault(NULL, NULL, NULL);
        t.nodes[1].clock_ahead_s = 2.5;
        assert_fault("ros1", "its clock is 2.5 s ahead of this machine's", "timedatectl");
        t.nodes[1].clock_ahead_s = -2;
        assert_fault("ros1", "its clock is 2.0 s behind this machine's", "timedatectl");
}

TEST_WITH(messages_that_do_not_pass_have_a_direction, set_up, tear_down)
{
        set_live(1, false);
        assert_fault(
                "sfi1",
                "no message passes between it and the DFM dfm at 10.0.0.1, UDP port 26800, although both run",
                "UDP ports 26800 and 26801");
        set(2, "reason", json_string("refused by the DFM dfm: another process runs as sfi1"));
        assert_fault("sfi1", "refused by the DFM dfm: another process runs as sfi1",
                     "journalctl -u evb-sfi@sfi1");
        set_live(1, true);
        set(2, "reason", json_string("dfm silent for 3.2 s"));
        assert_fault("sfi1", "messages of the DFM to UDP port 26800 do not reach it", "nft");
        json_object_del(t.nodes[2].status, "reason");
        set(1, "reason", json_string("dfm silent for 3.2 s"));
        assert_fault("ros1", "multicast of the DFM to 239.192.0.1 does not reach it",
                     "network.control-group = none");
        set(1, "reason", json_string("waiting for run 7 to begin"));
        assert_fault("ros1", "multicast of the DFM to 239.192.0.1 does not reach it", "tcpdump");
        strcpy(t.scenario.network.control_group, "none");
        json_object_del(t.nodes[0].status, "digest");
        json_object_del(t.nodes[1].status, "digest");
        json_object_del(t.nodes[2].status, "digest");
        assert_fault("ros1", "messages of the DFM to UDP port 26800 do not reach it", "nft");
        no_answer(0, "no answer from 10.0.0.1:9464: Connection timed out");
        assert_fault("dfm", t.nodes[0].problem, "ping");
}

TEST_WITH(fragments_must_arrive_at_an_sfi, set_up, tear_down)
{
        set(2, "rates", json_pack("{s:f}", "fragments_hz", 0.0));
        set(2, "losses", json_pack("{s:i}", "events_lost", 0));
        assert_fault(NULL, NULL, NULL);
        set(2, "losses", json_pack("{s:i}", "events_lost", 7));
        assert_fault("sfi1", "no fragment arrives at its port 26801", "UDP port 26801");
        set(2, "rates", json_pack("{s:f}", "fragments_hz", 0.5));
        assert_fault(NULL, NULL, NULL);
}

TEST_WITH(a_path_with_a_smaller_mtu_is_a_fault, set_up, tear_down)
{
        strcpy(t.scenario.nodes[1].device, "eth1");
        set(1, "mtu_failed_paths", json_integer(2));
        assert_fault("ros1",
                     "packets of 9000 bytes (network.mtu) do not reach 2 nodes from there, but short ones do",
                     "ip link set dev eth1 mtu 9000");
}
