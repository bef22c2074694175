/* Runs that make no progress: each node names what it waits for, and a run that stays stalled ends. */
#include "bed.h"

/* No node counts as gone, and no event times out. */
#define PATIENT "trigger.events=0", "dfm.node-timeout=100s", "dfm.start-timeout=60s", "sfi.timeout=200s"

/* Compares a value of a report with JSON. */
static void check_reported(const char *name, const char *field, const char *expected)
{
        json_t *o = bed_report(name);
        char *text = json_dumps(json_object_get(o, field), JSON_ENCODE_ANY);

        assert_string_equal(text, expected);
        free(text);
        json_decref(o);
}

static void check_stalled(const char *name)
{
        json_t *o = bed_report(name);

        assert_true(json_integer_value(json_object_get(o, "stalls")) >= 1);
        assert_true(json_real_value(json_object_get(o, "stalled_seconds")) >= 5);
        json_decref(o);
}

/* The others name it once, and the run continues after it. */
TEST_EACH(a_frozen_node_is_named, i, 3)
{
        static const struct {
                const char *frozen, *watcher, *text, *reason;
        } cases[] = {
                {"sfi1", "dfm", "no progress for 5 s: sfi1 silent for ", "\"sfi1 silent\""},
                {"ros2", "dfm", "no progress for 5 s: ros2 silent for ", "\"ros2 silent\""},
                {"dfm", "sfi1", "no progress for 5 s: dfm silent for ", "\"dfm silent\""},
        };
        uint64_t before;

        RUN(1, PATIENT, "trigger.rate=200Hz", "sfi.count=1", "sfi.credits=50", "ros.count=3");
        bed_until(count_of("dfm", events_complete) > 0);
        bed_freeze(cases[i].frozen, true);
        bed_until(bed_logged(cases[i].watcher, cases[i].text));
        bed_freeze(cases[i].frozen, false);
        before = count_of("dfm", events_complete);
        bed_until(count_of("dfm", events_complete) > before + 100);
        bed_until(bed_logged(cases[i].watcher, "progress again after"));
        bed_stop_run(0);
        bed_check_complete();
        assert_int_equal(bed_times_logged(cases[i].watcher, "no progress for "), 1);
        check_stalled(cases[i].watcher);
        check_reported(cases[i].watcher, "stall_reason", cases[i].reason);
        if (i == 2) {
                assert_int_equal(bed_reported("dfm", "stalls"), 0);
                check_reported("dfm", "stall_reason", "null");
        }
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++)
                check_reported(bed_scenario()->nodes[k].name, "ended_by_stall", "false");
}

TEST(a_run_that_stays_stalled_ends)
{
        /* No client decides events. */
        RUN(1, PATIENT, "ros.count=2", "sfi.count=2", "level2.listen=tcp:26803", "level2.timeout=1h",
            "test.buffer-events=40", "run.stall-timeout=5s", "run.stop-timeout=1s");
        bed_all_end(1);
        bed_check_accounts();
        assert_each(count_of, "dfm", triggers, 20, events_lost, 20);
        assert_true(
                bed_has_reason("dfm", "the run made no progress for 5 s: level 2 has not decided 20 events"));
        assert_int_equal(
                bed_times_logged("dfm", "level 2 has not decided 20 events; ending it (run.stall-timeout)"),
                1);
        check_stalled("dfm");
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++) {
                const char *name = bed_scenario()->nodes[k].name;

                check_reported(name, "ended_by_stall", "true");
                if (k > 0)
                        check_reported(name, "reasons",
                                       "[\"the DFM dfm ended the run because it made no progress\"]");
        }
}

/* Even if they are longer than run.stall-timeout. */
TEST(pauses_between_triggers_are_no_stall)
{
        RUN(1, PATIENT, "ros.count=2", "sfi.count=2", "trigger.rate=0.15Hz", "trigger.events=3",
            "run.stall-timeout=5s");
        bed_ends_complete();
        assert_int_equal(count_of("dfm", events_complete), 3);
        for (size_t k = 0; k < bed_scenario()->n_nodes; k++) {
                const char *name = bed_scenario()->nodes[k].name;

                assert_int_equal(bed_reported(name, "stalls"), 0);
                check_reported(name, "stall_reason", "null");
                assert_false(bed_logged(name, "progress"));
        }
}

/* The reason is logged once, and the end of the stall, too. */
TEST(a_run_without_sfis_stalls)
{
        RUN(1, PATIENT, "trigger.rate=2kHz", "ros.count=3", "sfi.count=2", "dfm.node-timeout=1500ms");
        bed_until(count_of("sfi1", events_complete) > 100 && count_of("sfi2", events_complete) > 100);
        bed_kill("sfi1");
        bed_kill("sfi2");
        bed_until(bed_logged("dfm", "sfi1, sfi2 left or fell silent"));
        assert_int_equal(bed_times_logged("dfm", "no progress for "), 1);
        bed_start("sfi1");
        bed_until(bed_logged("dfm", "progress again after "));
        assert_int_equal(bed_times_logged("dfm", "left or fell silent"), 1);
}
