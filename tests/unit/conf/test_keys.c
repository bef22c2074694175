/* The table of keys is consistent, and every value survives the way to text and back. */
#include "conf_sample.h"

static char text[SCENARIO_TEXT_MAX];

static void assert_comes_back(const struct scenario_key *k, const char *value, const char *written)
{
        assert_int_equal(scenario_key_set(&sample, k, value), 0);
        assert_string_equal(scenario_key_value(&sample, k, text, sizeof text), written);
        assert_int_equal(scenario_key_set(&sample, k, text), 0);
        assert_string_equal(scenario_key_value(&sample, k, text, sizeof text), written);
}

TEST(test_table)
{
        const char *section = "";
        bool seen_end = false;

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                assert_ptr_equal(scenario_key_find(k->section, k->name), k);
                assert_true(k->offset < sizeof(struct scenario));
                assert_true(strlen(k->help) > 10 && k->help[strlen(k->help) - 1] == '.');
                assert_true(scenario_key_allowed(k, text, sizeof text)[0]);
                assert_int_equal(scenario_key_set(&sample, k, k->standard), 0);
                /* The keys of a section are adjacent. */
                for (size_t j = 0; strcmp(section, k->section) != 0 && j < i; j++)
                        assert_string_not_equal(scenario_keys[j].section, k->section);
                section = k->section;
                /* No two keys share a member. */
                for (size_t j = 0; j < i; j++)
                        assert_int_not_equal(scenario_keys[j].offset, k->offset);
                seen_end |= strcmp(k->name, "seed") == 0;
        }
        assert_true(seen_end);
        assert_null(scenario_key_find("ros", "no-such"));
        assert_null(scenario_key_find("no-such", "count"));
}

TEST_EACH(test_defaults_are_written_as_they_stand, i, n_scenario_keys)
{
        const struct scenario_key *k = &scenario_keys[i];
        char first[SCENARIO_TEXT_MAX];

        assert_int_equal(scenario_key_set(&sample, k, k->standard), 0);
        strcpy(first, scenario_key_value(&sample, k, text, sizeof text));
        assert_comes_back(k, first, first);
}

TEST(test_bounds)
{
        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];
                static const char *const units[] = {
                        [KEY_COUNT] = "",  [KEY_BYTES] = "",        [KEY_RATE] = "",
                        [KEY_TIME] = "ns", [KEY_FREQUENCY] = "mHz",
                };
                char value[64];

                if (k->kind < KEY_COUNT || k->kind == KEY_FRACTION)
                        continue;
                assert_true(k->least <= k->most);
                snprintf(value, sizeof value, "%llu%s", (unsigned long long)k->least, units[k->kind]);
                assert_int_equal(scenario_key_set(&sample, k, value), 0);
                snprintf(value, sizeof value, "%llu%s", (unsigned long long)k->most, units[k->kind]);
                assert_int_equal(scenario_key_set(&sample, k, value), 0);
                scenario_key_value(&sample, k, text, sizeof text);
                assert_int_equal(scenario_key_set(&sample, k, text), 0);
                assert_int_equal(*(uint64_t *)((char *)&sample + k->offset), k->most);
                if (k->least > 0) {
                        snprintf(value, sizeof value, "%llu%s", (unsigned long long)k->least - 1,
                                 units[k->kind]);
                        assert_true(scenario_key_set(&sample, k, value) < 0);
                }
                if (k->most < UINT64_MAX) {
                        snprintf(value, sizeof value, "%llu%s", (unsigned long long)k->most + 1,
                                 units[k->kind]);
                        assert_true(scenario_key_set(&sample, k, value) < 0);
                }
                assert_int_equal(*(uint64_t *)((char *)&sample + k->offset), k->most);
        }
}

TEST(test_kinds)
{
        assert_comes_back(scenario_key_find("sfi", "file-size"), "14KiB", "14KiB");
        assert_comes_back(scenario_key_find("sfi", "file-size"), "2kB", "2000");
        assert_comes_back(scenario_key_find("sfi", "file-size"), "0", "0");
        assert_comes_back(scenario_key_find("trigger", "rate"), "5kHz", "5kHz");
        assert_comes_back(scenario_key_find("trigger", "rate"), "1.5Hz", "1500mHz");
        assert_comes_back(scenario_key_find("trigger", "rate"), "max", "max");
        assert_comes_back(scenario_key_find("network", "link-rate"), "1Gbit", "1Gbit");
        assert_comes_back(scenario_key_find("network", "link-rate"), "unlimited", "unlimited");
        assert_comes_back(scenario_key_find("sfi", "timeout"), "1.5s", "1500ms");
        assert_comes_back(scenario_key_find("dfm", "start-timeout"), "auto", "auto");
        assert_comes_back(scenario_key_find("run", "number"), "next", "next");
        assert_comes_back(scenario_key_find("run", "number"), "auto", "auto");
        assert_comes_back(scenario_key_find("qos", "backend"), "cbq+tbf", "cbq+tbf");
        assert_comes_back(scenario_key_find("scenario", "mode"), "pull", "pull");
}

TEST(test_fractions)
{
        const struct scenario_key *loss = scenario_key_find("network", "loss");

        assert_comes_back(loss, "0", "0");
        assert_comes_back(loss, "1", "1");
        assert_comes_back(loss, "100%", "1");
        assert_comes_back(loss, "2%", "0.02");
        assert_comes_back(loss, "0.00001", "0.00001");
        assert_comes_back(loss, "0.123456789", "0.123456789");
        assert_true(scenario_key_set(&sample, loss, "1e-3") < 0);
        assert_true(scenario_key_set(&sample, loss, "-0.1") < 0);
        assert_true(scenario_key_set(&sample, loss, "nan") < 0);
        assert_true(scenario_key_set(&sample, loss, "1.01") < 0);
}

TEST(test_choices)
{
        const struct scenario_key *backend = scenario_key_find("qos", "backend");

        assert_int_equal(scenario_key_set(&sample, backend, "htb+tbf"), 0);
        assert_int_equal(sample.qos.backend_choice, QOS_HTB_TBF);
        assert_true(scenario_key_set(&sample, backend, "htb+") < 0);
        assert_true(scenario_key_set(&sample, backend, "") < 0);
        assert_true(scenario_key_set(&sample, backend, "none|auto") < 0);
        assert_true(scenario_key_set(&sample, backend, "HTB") < 0);
        assert_int_equal(sample.qos.backend_choice, QOS_HTB_TBF);
}

/* A file could not hold these texts. */
TEST(test_texts)
{
        static const char *const wrong[] = {"a\nb", "a\tb", " a", "a ", "#a", "a #b", ";a", "a ;b", "a\x7f"};
        const struct scenario_key *name = scenario_key_find("scenario", "name");
        char longest[SCENARIO_TEXT_MAX + 1];

        assert_comes_back(name, "a;b#c = [d] e:f", "a;b#c = [d] e:f");
        assert_comes_back(name, "", "");
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_true(scenario_key_set(&sample, name, wrong[i]) < 0);
        memset(longest, 'x', sizeof longest);
        longest[SCENARIO_TEXT_MAX] = '\0';
        assert_true(scenario_key_set(&sample, name, longest) < 0);
        longest[SCENARIO_TEXT_MAX - 1] = '\0';
        assert_comes_back(name, longest, longest);
}

TEST(test_allowed)
{
        static const struct {
                const char *section, *name, *allowed;
        } cases[] = {
                {"scenario", "mode", "push or pull"},
                {"trigger", "rate", "a frequency of 1mHz or more, or max"},
                {"trigger", "events", "a number"},
                {"network", "loss", "a fraction from 0 to 1"},
                {"network", "mtu", "a size from 1280 to 65535, or auto"},
                {"sfi", "credits", "a number from 1 to 12000, or auto"},
                {"run", "number", "a number from 1 to 4294967295, auto or next"},
                {"scenario", "name", "text of at most 255 bytes"},
        };
        char allowed[256];

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                assert_string_equal(scenario_key_allowed(scenario_key_find(cases[i].section, cases[i].name),
                                                         allowed, sizeof allowed),
                                    cases[i].allowed);
}

static const struct {
        const char *section, *name, *value, *reason;
} rejected[] = {
        {"trigger", "kind", "BURST", "invalid value \"BURST\"; expected periodic, poisson or burst"},
        {"trigger", "rate", "fast", "\"fast\" is not a frequency; expected e.g. 2kHz, or max"},
        {"network", "mtu", "big", "\"big\" is not a size; expected 1280 to 65535, or auto"},
        {"network", "mtu", "64KiB", "64KiB is out of range; expected 1280 to 65535, or auto"},
        {"sfi", "retries", "-1", "\"-1\" is not a number; expected 0 to 100, or auto"},
        {"run", "number", "nxt", "\"nxt\" is not a number; expected 1 to 4294967295, auto or next"},
        {"sfi", "timeout", "2 hours", "\"2 hours\" is not a time; expected e.g. 250ms"},
        {"network", "loss", "2", "\"2\" is not a fraction; expected 0 to 1, e.g. 0.01 or 1%"},
        {"trigger", "events", "99999999999999999999",
         "99999999999999999999 is out of range; expected 0 or more"},
        {"scenario", "name", "a #b",
         "invalid value \"a #b\"; expected text of at most 255 bytes, on one line, without # or ; "
         "after a blank"},
};

TEST_EACH(test_rejected, i, ARRAY_SIZE(rejected))
{
        char reason[400];
        const struct scenario_key *k = scenario_key_find(rejected[i].section, rejected[i].name);

        assert_true(scenario_key_set(&sample, k, rejected[i].value) < 0);
        assert_string_equal(scenario_key_reject(k, rejected[i].value, reason, sizeof reason),
                            rejected[i].reason);
}

static const struct scenario_key *find(const char *full)
{
        size_t n = strcspn(full, ".");
        char section[64];

        snprintf(section, sizeof section, "%.*s", (int)n, full);
        return scenario_key_find(section, full + n + 1);
}

/* Old names find the key, also when a remote command uses them. */
TEST(test_old_names)
{
        size_t n = 0;

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];

                if (!k->old_name)
                        continue;
                n++;
                assert_ptr_equal(find(k->old_name), k);
                for (size_t j = 0; j < n_scenario_keys; j++) {
                        char full[64];

                        snprintf(full, sizeof full, "%s.%s", scenario_keys[j].section, scenario_keys[j].name);
                        assert_string_not_equal(full, k->old_name);
                }
        }
        assert_true(n > 5);
}

/* `evb check --keys` and the manual page list each key once, with its section, help and old name. */
TEST_EACH(test_printed, i, 2)
{
        _cleanup_free_ char *printed = NULL;
        const char *at;
        size_t size;
        FILE *f = open_memstream(&printed, &size);
        char line[400];

        assert_non_null(f);
        (i == 0 ? scenario_keys_print : scenario_keys_print_man)(f);
        assert_int_equal(fclose(f), 0);
        at = printed;
        for (size_t k = 0; k < n_scenario_keys; k++) {
                const struct scenario_key *key = &scenario_keys[k];

                if (i == 0)
                        snprintf(line, sizeof line, "\n%s\n    %s\n    Values: ", key->name, key->help);
                else
                        snprintf(line, sizeof line, "\n.It Cm %s.%s\n%s\n.br\nValues: ", key->section,
                                 key->name, key->help);
                at = strstr(at, line);
                if (!at)
                        fail_msg("%s.%s is missing, or at another place", key->section, key->name);
                at += strlen(line);
                if (i == 1)
                        assert_null(strstr(at, line));
                if (key->old_name)
                        assert_non_null(strstr(at, key->old_name));
        }
        assert_non_null(strstr(printed, "May change at run time"));
}

/* A key that was removed is neither a key nor the old name of one. */
TEST(test_removed_keys)
{
        size_t n = 0;

        for (const struct removed_key *k = removed_keys; k->name; k++, n++)
                assert_null(find(k->name));
        assert_true(n > 0);
        assert_null(removed_key_find("sfi", "retries"));
}

/* Linux may have given an ephemeral port (net.ipv4.ip_local_port_range) to another program when a node
 * starts. */
TEST(default_ports_are_not_ephemeral)
{
        size_t n = 0;

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];
                size_t length = strlen(k->name);

                if (length < 4 || strcmp(k->name + length - 4, "port") != 0 || k->kind != KEY_COUNT)
                        continue;
                assert_in_range(strtoul(k->standard, NULL, 10), 1024, 32767);
                n++;
        }
        assert_true(n >= 1);
}
