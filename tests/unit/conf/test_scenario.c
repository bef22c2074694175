/* Loads scenarios: accepted files, errors, old names of keys, and a round trip through a file. */
#include "../test.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "evb/conf/keys.h"
#include "evb/conf/scenario.h"

static struct scenario s, again;
static struct scenario_errors errors;
static char path[64], text[1 << 16];

static int load(const char *content, const char *setting)
{
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        fputs(content, f);
        fclose(f);
        return scenario_load(&s, path, &setting, setting ? 1 : 0, &errors);
}

static bool says_what_to_do(const char *error)
{
        static const char *const ways[] = {
                "; expected ",
                "; did you mean ",
                "; set ",
                "; first set on line ",
                "; `evb check --keys` lists all keys",
        };

        for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
                if (strstr(error, ways[i]))
                        return true;
        }
        return false;
}

static void expect_error(const char *content, const char *setting, const char *where, const char *what)
{
        if (load(content, setting) != -EINVAL || errors.n == 0)
                fail_msg("accepted: %s %s", content, setting ? setting : "");
        for (size_t i = 0; i < MIN(errors.n, (size_t)SCENARIO_ERRORS_MAX); i++) {
                if (strstr(errors.text[i], where) && strstr(errors.text[i], what)) {
                        if (!says_what_to_do(errors.text[i]))
                                fail_msg("does not say what to do: %s", errors.text[i]);
                        return;
                }
        }
        fail_msg("expected the error \"%s... %s\", got: %s", where, what, errors.text[0]);
}

#define NODES "[ros]\ncount = 2\n[sfi]\ncount = 1\n"

TEST(reads_keys)
{
        assert_int_equal(load("# comment\n[scenario]\nmode = pull ; inline\nduration = 250ms\n" NODES
                              "[network]\nloss = 2%\nlink-rate = 1Gbit\n[qos]\nbackend = cbq+tbf\n",
                              "sfi.outstanding=7"),
                         0);
        assert_int_equal(s.scenario.mode, MODE_PULL);
        assert_int_equal(s.scenario.duration_ns, 250000000);
        assert_int_equal(s.network.link_rate_bps, 1000000000);
        assert_true(s.network.loss == 0.02);
        assert_int_equal(s.qos.backend, QOS_CBQ_TBF);
        assert_int_equal(s.sfi.outstanding, 7);
        assert_int_equal(s.trigger.rate_millihertz, SCENARIO_MAX);
        assert_int_equal(s.n_nodes, 4);
        assert_string_equal(scenario_node_of(&s, ROLE_ROS, 1)->name, "ros2");
        assert_int_equal(scenario_count(&s, ROLE_SFI), 1);
        assert_null(scenario_find(&s, "ros3"));
        /* The command line wins. */
        assert_int_equal(load("[scenario]\nmode = pull\n" NODES, "scenario.mode=push"), 0);
        assert_int_equal(s.scenario.mode, MODE_PUSH);
}

TEST(reads_nodes)
{
        const struct scenario_node *n;

        assert_int_equal(load("[node a]\nrole = dfm\naddress = 10.0.0.1\n[node b]\nrole = ros\naddress = "
                              "10.0.0.2\ndevice = eth1\n"
                              "cpus = 2-3,7\n[node c]\nrole = sfi\naddress = 10.0.0.3\n",
                              NULL),
                         0);
        n = scenario_find(&s, "b");
        assert_string_equal(n->device, "eth1");
        assert_int_equal(n->n_cpus, 3);
        assert_int_equal(n->cpus[2], 7);
        assert_int_equal(s.ros.count, 1);
}

TEST(reports_errors)
{
        expect_error("[scenario]\nmode = shove\n" NODES, NULL, ":2: scenario.mode", "push or pull");
        expect_error("[ros]\nfragment-siz = 1\n", NULL, ":2: ros.fragment-siz",
                     "did you mean ros.fragment-size?");
        expect_error("[ros]\ncount = 5000\n[sfi]\ncount = 1\n", NULL, ":2: ros.count",
                     "5000 is out of range; expected 0 to 1024");
        expect_error("[trigger]\nrate = fast\n" NODES, NULL, ":2: trigger.rate",
                     "\"fast\" is not a frequency; expected e.g. 2kHz, or max");
        expect_error("[trigger]\nkind = poisson\n" NODES, NULL, ":2: trigger.kind", "trigger.rate");
        expect_error(NODES "[nonsense]\nx = 1\n", NULL, ":6: nonsense.x", "unknown key");
        expect_error(NODES "what is this\n", NULL, ":5: line", "invalid line");
        expect_error("[ros]\ncount = 1\n", NULL, "sfi.count", "1 to 512");
        expect_error(NODES, "ros.source=pigeon", "--set ros.source=pigeon: ros.source", "pattern, file:PATH");
        expect_error(NODES, "ros.source=udp:99999", "ros.source", "udp:PORT");
        expect_error(NODES, "ros.fragment-sizes=uniform:9-3", "ros.fragment-sizes", "uniform:A-B");
        expect_error(NODES, "ros.fragment-sizes=lognormal:1kB,nan", "ros.fragment-sizes", "lognormal");
        expect_error(NODES, "ros.fragment-size=5MiB", "ros.fragment-size", "4MiB");
        expect_error(NODES, "nonsense", "--set nonsense", "SECTION.KEY=VALUE");
        expect_error(NODES, "network.loss=1", "network.loss", "below 1");
        expect_error(NODES, "dfm.event-timeout=1s", "dfm.event-timeout", "longer than sfi.timeout");
        expect_error(NODES, "dfm.node-timeout=300ms", "dfm.node-timeout", "three times");
        expect_error(NODES, "network.data-port=26800", "network.data-port", "another port");
        expect_error(NODES "[node x]\nrole = ros\n", NULL, "ros.count", "2 is too many; expected at most 1");
        expect_error("[node a]\nrole = cook\n", NULL, ":2: node a.role", "dfm, ros or sfi");
        expect_error(
                "[node a]\nrole = dfm\n[node b]\nrole = dfm\n[node c]\nrole = ros\n[node d]\nrole = sfi\n",
                NULL, "node.role", "2 nodes have the role dfm");
        expect_error("[node a]\nrole = ros\naddress = 1.1.1.1\n[node b]\nrole = sfi\naddress = "
                     "1.1.1.1\n[node d]\nrole=dfm\n",
                     NULL, "node b.address", "node a already has address 1.1.1.1");
        expect_error("[node a]\nrole = ros\ncpus = 1-\n", NULL, ":3: node a.cpus", "2-5,8");
}

TEST(accepts_old_names)
{
        char wanted[128];

        assert_int_equal(load(NODES "[sfi]\nre-ask = 3\nretry-after = 5ms\n", "sfi.re-ask-after=7ms"), 0);
        assert_int_equal(s.sfi.retries, 3);
        assert_int_equal(s.sfi.retry_after_ns, 7000000);
        assert_int_equal(errors.n_warnings, 2);
        snprintf(wanted, sizeof wanted, "%s:6: warning: sfi.re-ask is now sfi.retries", path);
        assert_string_equal(errors.warnings[0], wanted);
        assert_string_equal(errors.warnings[1],
                            "--set sfi.re-ask-after=7ms: warning: sfi.re-ask-after is now sfi.retry-after");
        assert_int_equal(load(NODES "[sfi]\nretries = 3\n", NULL), 0);
        assert_int_equal(errors.n_warnings, 0);
}

/* One key, whichever names set it. */
TEST(old_and_new_name_are_duplicates)
{
        expect_error(NODES "[sfi]\nre-ask = 3\nretries = 3\n", NULL,
                     ":7: sfi.retries: ", "duplicate key; first set on line 6 by its old name sfi.re-ask");
        expect_error(NODES "[sfi]\nretries = 3\nre-ask = 3\n", NULL,
                     ":7: sfi.re-ask: ", "duplicate key; first set on line 6 by its new name sfi.retries");
        expect_error(NODES "[sfi]\nre-ask = 3\nre-ask = 3\n", NULL,
                     ":7: sfi.re-ask: ", "duplicate key; first set on line 6");
}

TEST(reports_many_at_once)
{
        size_t n = 0;

        for (int i = 0; i < 30; i++)
                n += (size_t)snprintf(text + n, sizeof text - n, "[ros]\nbad%d = 1\n", i);
        assert_int_equal(load(text, NULL), -EINVAL);
        assert_int_equal(errors.n, 30);
        assert_true(strstr(errors.text[SCENARIO_ERRORS_MAX - 1], "bad19"));
        assert_int_equal(scenario_load(&s, "/nowhere.conf", NULL, 0, &errors), -ENOENT);
}

TEST(relative_paths_are_the_files_own)
{
        char wanted[128];

        assert_int_equal(load("[ros]\ncount=1\nsource = file:data/x.raw\n[sfi]\ncount=1\n", NULL), 0);
        snprintf(wanted, sizeof wanted, "%.*s/data/x.raw", (int)(strrchr(path, '/') - path), path);
        assert_string_equal(s.ros.source_at, wanted);
        assert_int_equal(load(NODES, "ros.source=file:data/x.raw"), 0);
        /* Absolute, so that it stays valid where the launcher writes the scenario. */
        assert_int_equal(s.ros.source_at[0], '/');
        assert_non_null(strstr(s.ros.source_at, "/data/x.raw"));
}

/* Every kind of value survives the way to a file and back. */
TEST(written_and_read_again)
{
        FILE *f;

        assert_int_equal(
                load(NODES "[trigger]\nrate = 12345mHz\n[sfi]\nfile-size = 1500000\nretry-after = 1234567ns\n"
                           "[network]\nreorder = 0.0125\n",
                     NULL),
                0);
        f = fopen(path, "w");
        scenario_write(&s, f);
        fclose(f);
        assert_int_equal(scenario_load(&again, path, NULL, 0, &errors), 0);
        for (size_t i = 0; i < n_scenario_keys; i++) {
                char one[SCENARIO_TEXT_MAX], other[SCENARIO_TEXT_MAX], allowed[256];
                const struct scenario_key *k = &scenario_keys[i];

                scenario_key_value(&s, k, one, sizeof one);
                assert_string_equal(one, scenario_key_value(&again, k, other, sizeof other));
                assert_true(scenario_key_allowed(k, allowed, sizeof allowed)[0] && k->help[0]);
                assert_ptr_equal(scenario_key_find(k->section, k->name), k);
                /* The default is valid. */
                assert_int_equal(scenario_key_set(&again, k, k->standard), 0);
        }
        assert_int_equal(again.n_nodes, s.n_nodes);
}

/* Linux may have given an ephemeral port (net.ipv4.ip_local_port_range) to another program when a node
 * starts. */
TEST(default_ports_are_not_ephemeral)
{
        size_t n = 0;

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];
                size_t length = strlen(k->name);

                if (length < 5 || strcmp(k->name + length - 5, "-port") != 0)
                        continue;
                assert_in_range(strtoul(k->standard, NULL, 10), 1024, 32767);
                n++;
        }
        assert_true(n >= 3);
}

/* A scenario is large, and only its used nodes are cleared. */
TEST(a_scenario_loads_into_used_memory)
{
        static const char made[] = NODES, own[] = "[node dfm]\nrole = dfm\n[node a]\nrole = ros\n"
                                                  "[node b]\nrole = sfi\ncpus = 1\n";

        for (int i = 0; i < 2; i++) {
                memset(&s, 0, sizeof s);
                assert_int_equal(load(i == 0 ? made : own, NULL), 0);
                again = s;
                memset(&s, 0xa5, sizeof s);
                assert_int_equal(load(i == 0 ? made : own, NULL), 0);
                assert_memory_equal(&s, &again, (size_t)((char *)&s.nodes[s.n_nodes] - (char *)&s));
                assert_int_equal(s.n_nodes, again.n_nodes);
        }
}

static int make_path(void **state)
{
        int fd;

        snprintf(path, sizeof path, "/tmp/evb-test-XXXXXX");
        fd = mkstemp(path);
        return fd < 0 || close(fd) < 0;
}

static int remove_path(void **state)
{
        return unlink(path);
}

int main(int argc, char **argv)
{
        return test_run(argc, argv, make_path, remove_path);
}
