/* Digests of a scenario: each common setting changes exactly one digest, and other settings change none. */
#include "conf_sample.h"

#include "conf/digest.h"

/* Only digest number `differs` of the sample differs from `from`; UINT_MAX: none does. */
static void assert_differs(const struct member_keys *from, unsigned differs, const char *what)
{
        struct member_keys keys;

        scenario_digest(&sample, &keys);
        assert_fields(&keys, table, from->table, n, from->n);
        for (unsigned k = 0; k < keys.n; k++) {
                if ((keys.values[k] != from->values[k]) != (k == differs))
                        fail_msg("%s: %s %s", what, scenario_digest_name(k),
                                 k == differs ? "is equal" : "differs");
        }
}

static unsigned number_of(const char *name, unsigned n)
{
        for (unsigned k = 0; k < n; k++) {
                if (strcmp(scenario_digest_name(k), name) == 0)
                        return k;
        }
        fail_msg("no digest of %s", name);
        return UINT_MAX;
}

static const char nodes[] = "[node d]\nrole = dfm\naddress = 127.0.0.1\n"
                            "[node r]\nrole = ros\naddress = 127.0.0.%s\n"
                            "[node %s]\nrole = sfi\naddress = 127.0.0.4\n";

static void load(const char *address, const char *name, const char *setting)
{
        char text[512];

        snprintf(text, sizeof text, nodes, address, name);
        if (sample_load_with(text, &setting, setting ? 1 : 0) < 0)
                fail_msg("%s: %s", setting, sample_errors.text[0]);
}

TEST(each_common_key_changes_its_own_digest)
{
        static const char *const settings[][2] = {
                {"scenario.mode=pull", "scenario.mode"},
                {"scenario.transport=tcp", "scenario.transport"},
                {"network.port=26900", "network.port"},
                {"ros.source=udp:5000", "ros.source"},
                {"level2.listen=tcp:26910", "level2.listen"},
        };
        struct member_keys keys;

        load("2", "s", NULL);
        scenario_digest(&sample, &keys);
        assert_differs(&keys, UINT_MAX, "the same");
        for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
                load("2", "s", settings[i][0]);
                assert_differs(&keys, number_of(settings[i][1], keys.n), settings[i][0]);
        }
        load("3", "s", NULL);
        assert_differs(&keys, number_of("[node] sections", keys.n), "address");
        load("2", "t", NULL);
        assert_differs(&keys, number_of("[node] sections", keys.n), "name");
        assert_string_equal(scenario_digest_name(keys.n), "another version of evb");
}

/* Otherwise, SFIs would give a board different IDs. */
static const char *const board_settings[][2] = {
        {"source-id = 0x110300", "fragments = one"},
        {"source-id = 0x110400", "fragments = one"},
        {"source-id = 0x110300", "fragments = join count 2 demux 4:4"},
        {"source-id = 0x110300", "fragments = join count 2 demux 5:4"},
        {"source-id = 0x110300", "fragments = join count 2"},
};

TEST_EACH(ids_of_boards_are_common, i, ARRAY_SIZE(board_settings))
{
        struct member_keys keys;
        const char *source = "ros.source=udp:5000";
        char text[512];

        snprintf(text, sizeof text,
                 "[node d]\nrole = dfm\naddress = 127.0.0.1\n[node r]\nrole = ros\n"
                 "address = 127.0.0.2\nevent-number = 0:32\n%s\n%s\n"
                 "[node s]\nrole = sfi\naddress = 127.0.0.4\n",
                 board_settings[i][0], board_settings[i][1]);
        if (sample_load_with(text, &source, 1) < 0)
                fail_msg("%s: %s", board_settings[i][1], sample_errors.text[0]);
        if (i == 0)
                scenario_digest(&sample, &keys);
        assert_differs(&keys, i % 4 == 0 ? UINT_MAX : number_of("[node] sections", keys.n),
                       board_settings[i][1]);
}

TEST(settings_of_one_node_change_none)
{
        static const char *const settings[] = {
                "sfi.timeout=3s",   "trigger.rate=7kHz", "sfi.output=null",      "sfi.buffer-size=64MiB",
                "qos.backend=none", "run.seed=9",        "test.keep-alive=90ms", "trigger.events=5",
                "sfi.retries=3",    "sfi.re-ask=3"};
        struct member_keys keys;

        load("2", "s", NULL);
        scenario_digest(&sample, &keys);
        for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
                load("2", "s", settings[i]);
                assert_differs(&keys, UINT_MAX, settings[i]);
        }
}

/* Returns the only key whose other digest changes with a setting; NULL: none does. */
static const char *other_key_of(const char *setting)
{
        const char *found = NULL;
        uint32_t before[200];

        assert_true(n_scenario_keys <= ARRAY_SIZE(before));
        load("2", "s", NULL);
        for (size_t i = 0; i < n_scenario_keys; i++)
                before[i] = scenario_digest_other(&sample, i);
        load("2", "s", setting);
        for (size_t i = 0; i < n_scenario_keys; i++) {
                if (scenario_digest_other(&sample, i) == before[i])
                        continue;
                assert_null(found);
                found = scenario_keys[i].name;
        }
        return found;
}

TEST(keys_that_no_node_chooses_have_another_digest)
{
        static const char *const chosen[] = {
                "sfi.directory=/x",       "sfi.buffer-size=64MiB", "qos.backend=none",
                "sfi.retries=3",          "trigger.rate=7kHz",     "test.keep-alive=90ms",
                "dfm.node-timeout=7s",    "scenario.mode=pull",    "network.loss=0.1",
                "network.busy-poll=20ms", "sfi.output=file",       "sfi.page-cache=keep",
                "network.reorder=0.1",    "network.duplicate=0.1", "network.link-rate=1Gbit/s"};

        assert_string_equal(other_key_of("sfi.timeout=3s"), "timeout");
        assert_string_equal(other_key_of("network.mtu=9000"), "mtu");
        assert_string_equal(other_key_of("sfi.file-events=7"), "file-events");
        for (size_t i = 0; i < ARRAY_SIZE(chosen); i++)
                assert_null(other_key_of(chosen[i]));
}

/* All at once, as each needs the others. */
static void load_frames(const char *source, const char *number)
{
        const char *settings[] = {"ros.source=udp:5000", source, number};
        char text[512];

        snprintf(text, sizeof text, nodes, "2", "s");
        assert_int_equal(sample_load_with(text, settings, ARRAY_SIZE(settings)), 0);
}

TEST(frames_that_make_events_are_common)
{
        static const char *const others[][2] = {
                {"trigger.source=internal", "ros.event-number=0:32"},
                {"trigger.source=frames:r", "ros.event-number=0:32"},
                {"trigger.source=frames", "ros.event-number=0:16"},
        };
        struct member_keys keys;

        load_frames("trigger.source=frames", "ros.event-number=0:32");
        scenario_digest(&sample, &keys);
        for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
                load_frames(others[i][0], others[i][1]);
                assert_differs(&keys, keys.n - 1, scenario_digest_name(keys.n - 1));
        }
        load_frames("trigger.source=frames", "ros.event-number=4:32:be");
        assert_differs(&keys, UINT_MAX, "the place of the number");
}
