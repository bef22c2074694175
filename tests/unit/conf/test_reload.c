/* Two scenarios are compared by the table of keys. */
#include "conf_sample.h"

#include "conf/digest.h"
#include "conf/scenario_changes.h"

#define ALL (KEY_OF(ROLE_DFM) | KEY_OF(ROLE_ROS) | KEY_OF(ROLE_SFI))

static struct scenario running;
static char differences[1024];

static void add(void *ctx, const struct scenario_difference *d)
{
        static const char *const kinds[] = {
                [DIFFERENCE_APPLIES] = "applies",
                [DIFFERENCE_OTHERS] = "others",
                [DIFFERENCE_FIXED] = "fixed",
                [DIFFERENCE_COMMON] = "common",
        };
        size_t n = strlen(differences);

        assert_ptr_equal(ctx, &running);
        assert_true(!d->key == !d->to[0]);
        snprintf(differences + n, sizeof differences - n, "%s%s %s", n > 0 ? ", " : "", d->what,
                 kinds[d->kind]);
        if (d->key)
                snprintf(differences + strlen(differences), sizeof differences - strlen(differences),
                         " %s>%s", d->from, d->to);
}

static const char *compare(enum node_role role, const char *name)
{
        differences[0] = '\0';
        assert_int_equal(scenario_compare(&running, &sample, role, name, add, &running), 0);
        return differences;
}

/* The name of a scenario follows from that of its file. */
static void load(const char *text)
{
        assert_loads(text);
        strcpy(sample.scenario.name, "n");
}

static void load_running(const char *text)
{
        load(text);
        running = sample;
}

TEST(test_keys)
{
        load_running(COUNTS "credits = 9\n[trigger]\nrate = 1kHz\n");
        assert_string_equal(compare(ROLE_DFM, "dfm"), "");
        load("# other lines\n" COUNTS "credits = 10\nretries = 3\n[trigger]\nrate = 2kHz\n"
             "[scenario]\nmode = pull\n[dfm]\nkeep-alive = 100ms\n");
        assert_string_equal(compare(ROLE_DFM, "dfm"),
                            "scenario.mode common push>pull, trigger.rate applies 1kHz>2kHz, sfi.credits "
                            "others 9>10, sfi.retries others auto>3, test.keep-alive fixed 200ms>100ms");
        (void)compare(ROLE_SFI, "sfi1");
        assert_non_null(strstr(differences, "trigger.rate others 1kHz>2kHz"));
        assert_non_null(strstr(differences, "test.keep-alive fixed"));
        assert_non_null(strstr(differences, "sfi.credits applies 9>10, sfi.retries applies auto>3"));
}

#define NODES                                                                                                \
        "[node d]\nrole = dfm\naddress = 10.0.0.1\n[node r]\nrole = ros\naddress = 10.0.0.2\n"               \
        "[node q]\nrole = ros\naddress = 10.0.0.3\n"

TEST(test_nodes)
{
        load_running(NODES "[node s]\nrole = sfi\naddress = 10.0.0.4\n[metadata]\nBeam = e\n");
        load("\n\n" NODES "\n[node s]\nrole = sfi\naddress = 10.0.0.4\n[metadata]\nBeam = e\n");
        assert_string_equal(compare(ROLE_ROS, "r"), "");
        load(NODES "[node s]\nrole = sfi\naddress = 10.0.0.5\n[metadata]\nBeam = p\n");
        assert_string_equal(compare(ROLE_ROS, "r"), "[node s] common, [metadata] fixed");
        assert_string_equal(compare(ROLE_SFI, "s"), "[node s] fixed, [metadata] fixed");
        /* Nodes that change places, or get other settings of their own. */
        load("[node d]\nrole = dfm\naddress = 10.0.0.1\n[node q]\nrole = ros\naddress = 10.0.0.3\n"
             "[node r]\nrole = ros\naddress = 10.0.0.2\n[node s]\nrole = sfi\n"
             "address = 10.0.0.4\ncpus = 1\n[metadata]\nBeam = e\n");
        assert_string_equal(compare(ROLE_DFM, "d"), "[node r] and 2 more common");
        assert_string_equal(compare(ROLE_ROS, "r"), "[node r] fixed, [node q] and 1 more common");
        /* One more, and one less. */
        load("[node d]\nrole = dfm\naddress = 10.0.0.1\n[node r]\nrole = ros\naddress = 10.0.0.2\n"
             "[node s]\nrole = sfi\naddress = 10.0.0.4\n[node t]\nrole = sfi\n"
             "address = 10.0.0.5\n");
        assert_string_equal(compare(ROLE_SFI, "s"),
                            "ros.count common 2>1, sfi.count common 1>2, [node q] common, [metadata] fixed");
}

/* Keys that change at run time are plain values, which no other node relies on, and their copy is complete.
 */
TEST(test_table)
{
        struct member_keys before, after;
        unsigned n = 0;

        for (size_t i = 0; i < n_scenario_keys; i++) {
                const struct scenario_key *k = &scenario_keys[i];
                char appliers[64];

                assert_int_equal((k->applied_by | k->used_by) & ~ALL, 0);
                assert_true(k->applied_by == 0 || k->used_by == 0);
                assert_int_equal(scenario_key_appliers(k, appliers, sizeof appliers)[0] == 0,
                                 k->applied_by == 0);
                if (k->applied_by == 0)
                        continue;
                n++;
                assert_int_not_equal(k->kind, KEY_TEXT);
                assert_false(scenario_digest_has(k));
                load_running(COUNTS);
                *(uint64_t *)((char *)&sample + k->offset) = k->kind == KEY_CHOICE ? 1 : 77;
                scenario_digest(&running, &before);
                scenario_digest(&sample, &after);
                assert_memory_equal(&before, &after, sizeof before);
                scenario_key_copy(&running, &sample, k);
                assert_memory_equal(&running, &sample, sizeof running);
        }
        assert_true(n > 10);
        assert_string_equal(scenario_key_appliers(scenario_key_find("log", "level"), (char[64]){}, 64),
                            "any node");
        assert_string_equal(scenario_key_appliers(scenario_key_find("trigger", "rate"), (char[64]){}, 64),
                            "the DFM");
}

/* Values that come from two files are checked against each other again. */
TEST(test_check)
{
        load_running(COUNTS);
        assert_int_equal(scenario_check(&running, &sample_errors), 0);
        running.ros.wait_ns = running.sfi.timeout_ns;
        assert_int_equal(scenario_check(&running, &sample_errors), -EINVAL);
        assert_int_equal(sample_errors.n, 1);
        assert_non_null(
                strstr(sample_errors.text[0], ": ros.wait: too long; expected shorter than sfi.timeout"));
}
