/* Several runs of the same nodes, as an operator commands them: their numbers, ends, reports and accounts. */
#include "operator.h"

/* A run of each 200 triggers, at least. */
#define TRIGGERS 200

static uint64_t triggers_of(json_t *state)
{
        return (uint64_t)json_integer_value(json_object_get(json_object_get(state, "events"), "triggers"));
}

static void wait_triggers(void)
{
        uint64_t before = triggers_of(show());

        operator_until(triggers_of(show()) >= before + TRIGGERS);
}

static long long begin_any(const char *command)
{
        assert_int_equal(bed_ctl(command, "100s"), 0);
        assert_true(is_state("running"));
        wait_triggers();
        return run_of(show());
}

static void begin(const char *command, long long run)
{
        assert_int_equal(begin_any(command), run);
}

static void check_last(long long run, const char *status, const char *reason)
{
        json_t *last = last_run();

        assert_int_equal(run_of(last), run);
        assert_string_equal(text_of(last, "status"), status);
        assert_int_equal(json_array_size(json_object_get(last, "reasons")) > 0, reason != NULL);
        assert_true(!reason || has_reason(last, reason));
}

/* The run is ok. */
static void stop(long long run)
{
        json_t *events;

        assert_int_equal(bed_ctl("stop", "100s"), 0);
        check_last(run, "ok", NULL);
        events = json_object_get(last_run(), "events");
        assert_true(json_integer_value(json_object_get(events, "complete")) > 0);
        assert_true(json_equal(json_object_get(events, "complete"), json_object_get(events, "triggers")));
        assert_true(json_is_string(json_object_get(last_run(), "end")));
}

/* By a signal; the DFM exits with 1 if a run fell short. */
static void end(int status)
{
        for (size_t i = 0; i < bed_scenario()->n_nodes; i++) {
                if (!bed_has_ended(bed_scenario()->nodes[i].name))
                        bed_signal(bed_scenario()->nodes[i].name, SIGTERM);
        }
        bed_ends("dfm", status);
        for (size_t i = 1; i < bed_scenario()->n_nodes; i++)
                bed_ends(bed_scenario()->nodes[i].name, 0);
}

static uint64_t value_of(json_t *report, const char *name)
{
        return (uint64_t)json_integer_value(json_object_get(report, name));
}

/* Events end once; returns the number of triggers. */
static uint64_t check_balance(json_t *report)
{
        uint64_t triggers = value_of(report, "triggers");

        assert_int_equal(triggers, value_of(report, "events_complete") + value_of(report, "events_partial") +
                                           value_of(report, "events_lost") +
                                           value_of(report, "events_rejected"));
        return triggers;
}

static size_t reports_of(const char *name)
{
        size_t n = 0;

        for (json_t *o; (o = bed_report_of_run(name, n)); n++)
                json_decref(o);
        return n;
}

/* Each node reported runs 1 to n, whose events are complete, and whose SFIs count what the DFM counts. */
static void check_reports(size_t n)
{
        uint64_t written = 0;

        for (size_t i = 0; i < bed_scenario()->n_nodes; i++)
                assert_int_equal(reports_of(bed_scenario()->nodes[i].name), n);
        for (size_t run = 0; run < n; run++) {
                json_t *dfm = bed_report_of_run("dfm", run);
                uint64_t triggers = check_balance(dfm), built = 0;

                assert_true(triggers > 0);
                assert_int_equal(value_of(dfm, "events_complete"), triggers);
                written += triggers;
                for (size_t i = 0; i < bed_scenario()->n_nodes; i++) {
                        const struct scenario_node *node = &bed_scenario()->nodes[i];
                        json_t *o = bed_report_of_run(node->name, run);

                        assert_int_equal(run_of(o), run + 1);
                        built += node->role == ROLE_SFI ? value_of(o, "events_complete") : 0;
                        json_decref(o);
                }
                assert_int_equal(built, triggers);
                json_decref(dfm);
        }
        assert_int_equal(bed_events() + bed_events_again(), written);
}

static void configure(void)
{
        bed_start_all();
        operator_until(is_state("configured"));
}

TEST_EACH(runs_follow_each_other, i, 3)
{
        BED(1, OPERATED, bed_mode(i == 1), i == 2 ? "scenario.transport=tcp" : "scenario.transport=udp");
        configure();
        for (int run = 1; run <= 3; run++) {
                begin("start", run);
                stop(run);
        }
        operator_until(is_state("configured"));
        assert_int_equal(json_integer_value(json_object_get(show(), "next_run")), 4);
        end(0);
        check_reports(3);
}

/* No trigger is lost between two runs, and none is in both. */
TEST(runs_change_under_load)
{
        BED(1, OPERATED, "trigger.rate=5kHz");
        configure();
        begin("start", 1);
        for (int run = 2; run <= 4; run++) {
                begin("next-run", run);
                check_last(run - 1, "ok", NULL);
        }
        stop(4);
        end(0);
        check_reports(4);
}

/* Until a stop; then none begins until a start. */
TEST(runs_follow_by_themselves)
{
        size_t n;

        RUN(1, OPERATED, "run.start=auto", "trigger.events=300");
        bed_until(reports_of("dfm") >= 3);
        assert_int_equal(bed_ctl("stop", NULL), 0);
        operator_until(is_state("configured"));
        n = (size_t)run_of(last_run());
        for (int i = 0; i < 20; i++) {
                bed_pass(100 * NS_PER_MS);
                assert_true(is_state("configured"));
        }
        assert_int_equal(bed_ctl("start", "100s"), 0);
        bed_until(reports_of("dfm") > n);
        assert_int_equal(bed_ctl("stop", NULL), 0);
        operator_until(is_state("configured"));
        end(0);
        assert_true(reports_of("dfm") > n);
        check_reports(reports_of("dfm"));
}

/* A run waits for a start, and then for missing nodes. A stop withdraws the start. */
TEST(a_start_waits_for_nodes)
{
        json_t *nodes;

        BED(1, OPERATED);
        bed_start("dfm");
        bed_start("ros1");
        bed_start("ros2");
        bed_start("sfi1");
        bed_pass(NS_PER_S);
        assert_true(is_state("idle"));
        nodes = json_object_get(show(), "nodes");
        assert_int_equal(value_of(nodes, "expected"), 4);
        assert_int_equal(value_of(nodes, "present"), 3);
        assert_int_equal(json_array_size(json_object_get(nodes, "missing")), 1);
        assert_string_equal(json_string_value(json_array_get(json_object_get(nodes, "missing"), 0)), "sfi2");
        assert_true(json_is_null(json_object_get(show(), "run")));
        assert_int_equal(json_integer_value(json_object_get(show(), "next_run")), 1);
        assert_true(json_is_true(json_object_get(show(), "held")));
        assert_int_equal(bed_ctl("start", NULL), 0);
        assert_true(is_state("idle") && json_is_false(json_object_get(show(), "held")));
        assert_int_equal(bed_ctl("stop", NULL), 0);
        assert_true(json_is_true(json_object_get(show(), "held")));
        bed_start("sfi2");
        operator_until(is_state("configured"));
        begin("start", 1);
        end(0);
}

/* Each role is killed and starts again. The next run has all nodes. */
TEST_EACH(nodes_restart, in_a_run, 2)
{
        static const char *const names[] = {"ros1", "sfi1", "dfm"};
        long long run = 0;

        BED(1, OPERATED);
        configure();
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                bool is_dfm = i == 2;
                char restarted[40];

                snprintf(restarted, sizeof restarted, "%s has restarted", names[i]);
                if (in_a_run)
                        run = begin_any("start");
                bed_restart(names[i]);
                if (!is_dfm)
                        bed_until(bed_logged("dfm", restarted));
                if (!in_a_run) {
                        operator_until(is_state("configured"));
                        run = begin_any("start");
                } else if (is_dfm) {
                        bed_until(bed_logged("dfm", "resumed run 3 of an earlier DFM"));
                }
                operator_until(is_state("running"));
                wait_triggers();
                if (in_a_run) {
                        bed_ctl("stop", "100s");
                        assert_int_equal(run_of(last_run()), run);
                } else {
                        stop(run);
                }
                operator_until(is_state("configured"));
        }
        run = begin_any("start");
        stop(run);
}

/* It ends the run that is being resumed, and begins another one once all nodes are present. */
TEST(a_run_follows_one_that_is_resumed)
{
        BED(1, OPERATED);
        configure();
        begin("start", 1);
        bed_kill("sfi2");
        bed_restart("dfm");
        operator_until(is_state("resuming"));
        assert_int_equal(bed_ctl("next-run", NULL), 0);
        assert_true(is_state("draining"));
        bed_start("sfi2");
        operator_until(is_state("running"));
        assert_int_equal(run_of(last_run()), 1);
        assert_string_equal(text_of(last_run(), "status"), "fell short");
        wait_triggers();
        stop(run_of(show()));
}

/* It is named when a DFM starts, and when another run begins. */
TEST(a_run_whose_nodes_are_lost_has_no_end)
{
        BED(1, OPERATED);
        configure();
        begin("start", 1);
        for (size_t i = 0; i < bed_scenario()->n_nodes; i++)
                bed_kill(bed_scenario()->nodes[i].name);
        for (unsigned i = 1; i <= 2; i++) {
                bed_start("dfm");
                bed_pass(NS_PER_S);
                assert_true(is_state("resuming"));
                assert_int_equal(run_of(show()), 1);
                assert_true(json_is_null(json_object_get(show(), "next_run")) && json_is_null(last_run()));
                assert_int_equal(bed_times_logged("dfm", "run 1 of an earlier DFM, which began at "), i);
                assert_int_equal(bed_times_logged("dfm", "Z, has no end"), i);
                bed_stop("dfm", 0);
        }
        configure();
        check_last(1, "fell short", "it has no end");
        assert_false(bed_logged("dfm", "is abandoned"));
        assert_int_equal(bed_ctl("start", "100s"), 0);
        assert_true(run_of(show()) > 1);
        assert_true(bed_logged("dfm", "run 1, which began at ") &&
                    bed_logged("dfm", "Z, is abandoned without an end"));
        assert_int_equal(bed_ctl("stop", "100s"), 0);
        end(0);
        bed_start("dfm");
        bed_pass(NS_PER_S);
        assert_true(is_state("idle") && run_of(last_run()) > 1);
        assert_string_equal(text_of(last_run(), "status"), "ok");
}

/* A DFM is killed between the end of its run and its report. */
TEST(the_next_dfm_knows_of_an_unreported_end)
{
        BED(1, OPERATED);
        configure();
        begin("start", 1);
        assert_int_equal(bed_ctl("pause", NULL), 0);
        bed_until(count_of("dfm", triggers) == count_of("dfm", events_complete));
        bed_freeze("sfi2", true);
        assert_int_equal(bed_ctl("stop", NULL), 0);
        bed_until(atomic_load(&bed_stats("dfm")->state) == NODE_ENDED);
        bed_kill("dfm");
        bed_freeze("sfi2", false);
        bed_start("dfm");
        operator_until(is_state("configured"));
        check_last(1, "fell short", "it ended, but its DFM did not report it");
        assert_true(bed_logged("dfm", "run 1 of an earlier DFM, which began at ") &&
                    bed_logged("dfm", "Z, ended, but its DFM did not report it"));
        assert_int_equal(bed_ctl("start", "100s"), 0);
        wait_triggers();
        assert_int_equal(bed_ctl("stop", "100s"), 0);
        end(0);
        bed_start("dfm");
        bed_pass(NS_PER_S);
        assert_true(is_state("idle") && run_of(last_run()) > 1);
        assert_string_equal(text_of(last_run(), "status"), "ok");
}

/* The run has been reported. A DFM that was killed still waits for an operator. One that was stopped, in its
 * run or after it, begins the next run. */
TEST_EACH(the_dfm_restarts_after_a_failure, i, 3)
{
        static const char failure[] = "the output of sfi1 failed (disk full";
        enum { KILLED, STOPPED, STOPPED_IN_RUN };

        RUN(1, OPERATED, "run.start=auto");
        operator_until(triggers_of(show()) > TRIGGERS);
        bed_freeze("ros1", i == STOPPED_IN_RUN);
        bed_fail_output("sfi1");
        bed_until(i == STOPPED_IN_RUN ? bed_logged("dfm", failure) : is_state("error"));
        bed_fail_output(NULL);
        if (i == KILLED)
                bed_kill("dfm");
        else
                bed_signal("dfm", SIGTERM);
        bed_freeze("ros1", false);
        if (i != KILLED)
                bed_ends("dfm", 1);
        bed_start("dfm");
        if (i == KILLED) {
                bed_pass(10 * NS_PER_S);
                assert_true(is_state("error"));
                assert_int_equal(bed_ctl("stop", "60s"), 1);
                assert_int_equal(bed_ctl("start", "60s"), 0);
        }
        operator_until(is_state("running"));
        assert_true(run_of(show()) > 1);
        check_last(1, "error", failure);
}

/* Its status is that of the last run. If the number of runs is fixed, a client that waits for the next run
 * must not see the end of this one. */
TEST_EACH(the_dfm_restarts_after_a_run_that_fell_short, is_fixed, 2)
{
        BED(1, OPERATED, is_fixed ? "run.number=1" : "run.number=auto");
        configure();
        begin("start", 1);
        bed_cut("ros1", "sfi1");
        bed_pass(NS_PER_S);
        assert_int_equal(bed_ctl("stop", "100s"), 1);
        for (size_t i = 0; i < bed_scenario()->n_nodes; i++)
                bed_kill(bed_scenario()->nodes[i].name);
        bed_start("dfm");
        bed_until(is_state("idle"));
        check_last(1, "fell short", "events are partial");
        assert_int_equal(bed_ctl("stop", "100s"), 1);
        assert_int_equal(bed_ctl("start", NULL), 0);
        assert_int_equal(json_is_null(last_run()), is_fixed);
}

/* ---- A trigger box in a pause ---- */

#define BOX_PORT 47200
#define BOX_TRIGGERS 40

static void send_triggers(uint32_t sequence)
{
        uint64_t entries[2 + 3 * BOX_TRIGGERS] = {};

        memcpy(entries, &(uint32_t[]){0x54425645, 1 | BOX_TRIGGERS << 16, sequence, 0}, 16);
        for (uint64_t k = 0; k < BOX_TRIGGERS; k++)
                entries[2 + 3 * k] = sequence * BOX_TRIGGERS + k;
        entries[4] = sequence == 0 ? UINT64_C(4) << 32 : 0; /* a reset */
        bed_send_datagram("dfm", BOX_PORT, entries, sizeof entries);
}

/* No trigger is missed, whether the box continues afterwards or not. The report has what the first DFM
 * counted. */
TEST_EACH(the_dfm_restarts_in_a_pause, more, 2)
{
        uint64_t n = BOX_TRIGGERS * (1 + (unsigned)more);
        json_t *dfm;

        BED(1, OPERATED, "trigger.source=udp:47200", "trigger.busy-to=127.0.1.1:27101");
        configure();
        assert_int_equal(bed_ctl("start", "100s"), 0);
        bed_until(bed_logged("dfm", "triggers begin"));
        send_triggers(0);
        bed_until(count_of("dfm", events_complete) == BOX_TRIGGERS);
        assert_int_equal(bed_ctl("pause", NULL), 0);
        bed_pass(2500 * NS_PER_MS);
        bed_restart("dfm");
        bed_until(bed_logged("dfm", "resumed run 1 of an earlier DFM"));
        operator_until(is_state("running"));
        if (more) {
                send_triggers(1);
                bed_until(count_of("dfm", events_complete) == n);
        }
        stop(1);
        end(0);
        dfm = bed_report("dfm");
        assert_each(value_of, dfm, "triggers", n, "events_complete", n, "triggers_missed", 0,
                    "events_assigned", n, "trigger_datagrams", 1 + (unsigned)more);
        assert_true(value_of(dfm, "paused_ns") > NS_PER_S && value_of(dfm, "busy_datagrams") > 2);
        json_decref(dfm);
}

/* ---- Ends ---- */

/* SIGTERM ends all nodes; only a run that fell short fails them. */
TEST_EACH(a_signal_ends_each_state, i, 5)
{
        static const char *const states[] = {"idle", "configured", "running", "paused", "draining"};

        BED(1, OPERATED);
        configure();
        if (i == 0) {
                bed_stop("sfi2", 0);
        }
        if (i >= 2)
                begin("start", 1);
        if (i == 3)
                assert_int_equal(bed_ctl("pause", NULL), 0);
        if (i == 4) {
                bed_freeze("ros1", true);
                assert_int_equal(bed_ctl("next-run", NULL), 0);
        }
        operator_until(is_state(states[i]));
        if (i == 4)
                bed_freeze("ros1", false);
        end(0);
        assert_int_equal(reports_of("dfm"), i >= 2);
        if (i >= 2)
                check_reports(1);
}

/* Silence of nodes is noticed soon. */
#define SILENCE "test.keep-alive=300ms", "dfm.node-timeout=3s", "sfi.timeout=3s", "ros.wait=500ms"

static size_t present(void)
{
        return (size_t)value_of(json_object_get(show(), "nodes"), "present");
}

/* It is reported, and the next run is ok. The DFM exits with 1 in the end. */
TEST(a_run_falls_short)
{
        json_t *first, *second;

        BED(1, OPERATED, SILENCE);
        configure();
        begin("start", 1);
        bed_kill("ros1");
        bed_until(count_of("dfm", events_partial) > 0);
        bed_start("ros1");
        operator_until(present() == 4);
        assert_true(is_state("running"));
        assert_int_equal(bed_ctl("stop", "100s"), 1);
        check_last(1, "fell short", " events are partial");
        begin("start", 2);
        stop(2);
        end(1);
        first = bed_report_of_run("dfm", 0);
        second = bed_report_of_run("dfm", 1);
        assert_true(json_array_size(json_object_get(first, "reasons")) > 0);
        assert_int_equal(json_array_size(json_object_get(second, "reasons")), 0);
        json_decref(first);
        json_decref(second);
}

/* An SFI stands still while its run ends and another one begins: it ends the previous one, and joins the
 * present one. */
TEST(an_sfi_misses_the_end_of_its_run)
{
        json_t *first, *second;

        BED(1, OPERATED, SILENCE, "dfm.start-timeout=3s");
        configure();
        begin("start", 1);
        bed_freeze("sfi1", true);
        operator_until(present() == 3);
        begin("next-run", 2);
        bed_freeze("sfi1", false);
        operator_until(present() == 4);
        assert_true(is_state("running"));
        assert_int_equal(run_of(show()), 2);
        wait_triggers();
        stop(2);
        bed_until(reports_of("sfi1") == 2);
        first = bed_report_of_run("sfi1", 0);
        second = bed_report_of_run("sfi1", 1);
        assert_true(run_of(first) == 1 && run_of(second) == 2);
        json_decref(first);
        json_decref(second);
}
