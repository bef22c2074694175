/* Written scenarios load as the same scenario, and the scenarios in configs/ load as intended. */
#include <jansson.h>
#include <limits.h>

#include "conf_sample.h"
#include "conf/scenario.h"

/* Ignores the path of the file and the lines of nodes. */
static void assert_same(const struct scenario *a, const struct scenario *b)
{
        char one[SCENARIO_TEXT_MAX], other[SCENARIO_TEXT_MAX];

        for (size_t i = 0; i < n_scenario_keys; i++)
                assert_string_equal(scenario_key_value(a, &scenario_keys[i], one, sizeof one),
                                    scenario_key_value(b, &scenario_keys[i], other, sizeof other));
        assert_int_equal(a->ros.source_kind, b->ros.source_kind);
        assert_string_equal(a->ros.source_at, b->ros.source_at);
        assert_int_equal(a->ros.sizes_kind, b->ros.sizes_kind);
        assert_int_equal(a->n_nodes, b->n_nodes);
        for (size_t i = 0; i < a->n_nodes; i++) {
                assert_string_equal(a->nodes[i].name, b->nodes[i].name);
                assert_fields(&a->nodes[i], role, b->nodes[i].role, index, b->nodes[i].index);
                assert_string_equal(a->nodes[i].address, b->nodes[i].address);
                assert_string_equal(a->nodes[i].device, b->nodes[i].device);
                assert_int_equal(a->nodes[i].n_cpus, b->nodes[i].n_cpus);
                assert_int_equal(a->nodes[i].cpus_auto, b->nodes[i].cpus_auto);
                assert_memory_equal(a->nodes[i].cpus, b->nodes[i].cpus, sizeof a->nodes[i].cpus);
        }
}

static void assert_written_is_same(void)
{
        _cleanup_free_ struct scenario *first = malloc(sizeof *first);
        _cleanup_free_ char *text = sample_written(), *again = NULL;

        assert_non_null(first);
        *first = sample;
        assert_loads(text);
        assert_same(first, &sample);
        again = sample_written();
        assert_string_equal(text, again);
}

TEST(test_written)
{
        const char *const settings[] = {
                "scenario.name=a;b#c",
                "scenario.mode=pull",
                "scenario.duration=1500us",
                "trigger.rate=1.001kHz",
                "network.loss=0.00001",
                "network.link-rate=unlimited",
                "sfi.credits=17",
                "qos.backend=htb+tbf",
                "qos.burst=1500",
                "run.seed=18446744073709551615",
                "ros.source=file:x.raw",
                "sfi.directory=.",
                "ros.fragment-size=uniform:1-2kB",
                "sfi.file-size=1500000",
                "sfi.file-name=x{sfi}-{run}_{sequence}",
                "dfm.start-timeout=12345678ns",
                "network.dscp=cs6,10",
                "network.reorder=0.0125",
        };

        assert_int_equal(sample_load_with(COUNTS, settings, ARRAY_SIZE(settings)), 0);
        assert_written_is_same();
        assert_int_equal(sample.run.seed, UINT64_MAX);
        assert_int_equal(sample.trigger.rate_millihertz, 1001000);
}

TEST(test_written_nodes)
{
        assert_loads("[node a]\nrole=sfi\ncpus=1,3-4\n[node b]\nrole=dfm\ncpus=auto\naddress=fe80::1%eth0\n"
                     "[node c]\nrole=ros\ndevice=eth1\n[network]\ncontrol-group=none\n");
        assert_written_is_same();
        assert_int_equal(scenario_find(&sample, "a")->n_cpus, 3);
}

static const char *const boards[] = {
        "frame = datagram\nevent-number = 0:64\nfragments = join count 128 index 12:32\n",
        "frame = fixed 4136 marker 45484452\nevent-number = 4:32\nnumber-from = 1\n",
        "frame = length 0:28 unit 4\nevent-number = 8:24\nnumber-from = -1\n",
        "event-number = count\nevent-time = 8:48 within 500ns\ntick = 8ns\n",
        "event-number = count\nevent-time = none\n",
};

/* A ROS's own keys of its board, which differ from those in [ros]. */
TEST_EACH(test_written_boards, i, ARRAY_SIZE(boards))
{
        char text[512];
        _cleanup_free_ char *written = NULL;

        snprintf(text, sizeof text,
                 "[trigger]\nsource=udp:239.0.0.9:4000\n[ros]\nsource=tcp:10.0.0.9:4000\n"
                 "[node ros1]\nrole=ros\nsource=udp:5000\n%s[node ros2]\nrole=ros\n"
                 "[node dfm]\nrole=dfm\n[node sfi]\nrole=sfi\n",
                 boards[i]);
        assert_loads(text);
        assert_written_is_same();
        written = sample_written();
        assert_non_null(strstr(written, boards[i]));
}

/* Reports and records have all keys, with the values of a file. */
TEST(test_json)
{
        const char *const settings[] = {"scenario.mode=pull", "sfi.credits=17", "metadata.Shift=night"};
        char value[SCENARIO_TEXT_MAX];
        const json_t *nodes, *ros;
        json_auto_t *o;

        assert_int_equal(sample_load_with("[node a]\nrole=sfi\n[node b]\nrole=dfm\n"
                                          "[node c]\nrole=ros\ndevice=eth1\nsource-id=0x510001\n",
                                          settings, ARRAY_SIZE(settings)),
                         0);
        o = scenario_to_json(&sample);
        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];
                const json_t *section = json_object_get(o, k->section);

                assert_string_equal(json_string_value(json_object_get(section, k->name)),
                                    scenario_key_value(&sample, k, value, sizeof value));
        }
        assert_string_equal(json_string_value(json_object_get(json_object_get(o, "metadata"), "Shift")),
                            "night");
        nodes = json_object_get(o, "nodes");
        assert_int_equal(json_array_size(nodes), 3);
        assert_string_equal(json_string_value(json_object_get(json_array_get(nodes, 0), "role")), "sfi");
        assert_null(json_object_get(json_array_get(nodes, 0), "source"));
        ros = json_array_get(nodes, 2);
        assert_string_equal(json_string_value(json_object_get(ros, "device")), "eth1");
        assert_int_equal(json_integer_value(json_object_get(ros, "source_id")), 0x510001);
        assert_true(json_is_true(json_object_get(ros, "required")));
        assert_true(json_is_null(json_object_get(ros, "wait_seconds")));
}

/* The longest line that is written can be read again. */
TEST(test_longest)
{
        char setting[300] = "ros.source=file:/";

        memset(setting + strlen(setting), 'x', 249);
        assert_sets(setting);
        assert_written_is_same();
}

/* Messages about a run name its scenario only if the name is set. */
TEST(test_name)
{
        char text[SCENARIO_RUN_MAX];

        assert_loads(COUNTS);
        assert_string_equal(sample.scenario.name, strrchr(sample_path, '/') + 1);
        assert_string_equal(scenario_run_name(&sample, 7, text), "run 7");
        assert_sets("scenario.name=other");
        assert_string_equal(sample.scenario.name, "other");
        assert_string_equal(scenario_run_name(&sample, 7, text), "run 7 of other");
        /* A long name is cut, but no character of it. */
        assert_sets("scenario.name=0123456789012345678901234567890123456789012345678901234567\u00e9\u00e9");
        assert_string_equal(
                scenario_run_name(&sample, UINT32_MAX, text),
                "run 4294967295 of 0123456789012345678901234567890123456789012345678901234567\u00e9");
        assert_sets("scenario.name=01234567890123456789012345678901234567890123456789012345678\u00e9");
        assert_string_equal(scenario_run_name(&sample, 7, text),
                            "run 7 of 01234567890123456789012345678901234567890123456789012345678");
}

static void load_config(const char *name)
{
        char path[PATH_MAX];

        snprintf(path, sizeof path, "%s/configs/scenarios/%s.conf", getenv("EVB_SOURCE_ROOT"), name);
        if (scenario_load(&sample, path, NULL, 0, &sample_errors) != 0)
                fail_msg("%s: %s", path, sample_errors.n > 0 ? sample_errors.text[0] : "cannot be read");
        assert_string_equal(sample.scenario.name, name);
}

static const struct {
        const char *name;
        unsigned mode, output, qos, ros, sfi;
} cases[] = {
        {"demo", MODE_PUSH, OUTPUT_FILE, QOS_NONE, 6, 1},
        {"push-6x1", MODE_PUSH, OUTPUT_NULL, QOS_NONE, 6, 1},
        {"pull-6x1", MODE_PULL, OUTPUT_NULL, QOS_NONE, 6, 1},
        {"push-6x1-qos", MODE_PUSH, OUTPUT_NULL, QOS_AUTO, 6, 1},
        {"bes3-replay", MODE_PUSH, OUTPUT_FILE, QOS_NONE, 26, 1},
        {"testbed", MODE_PUSH, OUTPUT_FILE, QOS_NONE, 2, 1},
};

TEST_EACH(test_configs, i, ARRAY_SIZE(cases))
{
        load_config(cases[i].name);
        assert_fields(&sample.scenario, mode, cases[i].mode, transport, TRANSPORT_UDP);
        assert_int_equal(sample.sfi.output, cases[i].output);
        assert_int_equal(sample.qos.backend, cases[i].qos);
        assert_int_equal(sample.ros.count, cases[i].ros);
        assert_int_equal(sample.sfi.count, cases[i].sfi);
        /* Each run ends. */
        assert_true(sample.scenario.duration_ns > 0 || sample.trigger.events > 0);
        assert_written_is_same();
}

TEST(test_config_of_real_data)
{
        load_config("bes3-replay");
        assert_int_equal(sample.ros.source_kind, SOURCE_FILE);
        assert_int_equal(sample.trigger.events, 10);
        assert_int_equal(sample.sfi.format, FORMAT_EFORMAT3);
        assert_int_equal(sample.ros.source_at[0], '/');
        assert_non_null(
                strstr(sample.ros.source_at, "/configs/scenarios/../../../shared/data/bes3-run91668.raw"));
}

TEST(test_config_of_real_machines)
{
        const struct scenario_node *n;

        load_config("testbed");
        n = scenario_find(&sample, "pc-sfi1");
        assert_non_null(n);
        assert_string_equal(n->address, "192.168.69.31");
        assert_string_equal(n->device, "eth1");
        assert_int_equal(n->n_cpus, 2);
        assert_string_equal(scenario_node_of(&sample, ROLE_DFM, 0)->name, "pc-dfm");
}
