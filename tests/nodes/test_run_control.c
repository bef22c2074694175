/* The answers of `evb ctl` in each state of run control, and whether they are true, above all after the DFM
 * has restarted: status 0 without an effect, or for a run that fell short, is an error. */
#include "operator.h"

/* Where the DFM is when the command comes. It restarted in run 1: */
enum scene {
        SCENE_CONFIGURED,
        SCENE_RUNNING,
        SCENE_PAUSED,
        SCENE_DRAINING,
        SCENE_ENDED,     /* run 1, a moment ago */
        SCENE_ALONE,     /* and no node has come yet; sfi2 is gone for good */
        SCENE_WHOLE,     /* the same, and all nodes will join */
        SCENE_RESUMING,  /* and waits for sfi2 */
        SCENE_ABANDONED, /* and all nodes are new: run 1 has no end */
        SCENES,
};

/* ---- The scenes ---- */

static void freeze_nodes(bool frozen)
{
        for (size_t i = 1; i < bed_scenario()->n_nodes; i++) {
                if (!bed_has_ended(bed_scenario()->nodes[i].name))
                        bed_freeze(bed_scenario()->nodes[i].name, frozen);
        }
}

static void restart_dfm(bool without_sfi2)
{
        if (without_sfi2)
                bed_kill("sfi2");
        bed_kill("dfm");
        freeze_nodes(true);
        bed_start("dfm");
        bed_pass(100 * NS_PER_MS);
}

static bool permits(const char *command)
{
        json_t *one;
        bool found = false;
        size_t i;

        json_array_foreach(json_object_get(show(), "permits"), i, one) found |=
                strcmp(json_string_value(one), command) == 0;
        return found;
}

static void begin_run(void)
{
        assert_int_equal(bed_ctl("start", "60s"), 0);
        bed_until(count_of("dfm", triggers) > 200);
}

static void replace_nodes(void)
{
        for (size_t i = 0; i < bed_scenario()->n_nodes; i++)
                bed_kill(bed_scenario()->nodes[i].name);
        bed_start_all();
        operator_until(is_state("configured"));
}

static void bring(enum scene scene)
{
        RUN(1, OPERATED);
        operator_until(is_state("configured"));
        if (scene == SCENE_CONFIGURED)
                return;
        begin_run();
        switch (scene) {
        case SCENE_PAUSED:
                assert_int_equal(bed_ctl("pause", NULL), 0);
                break;
        case SCENE_DRAINING:
                assert_int_equal(bed_ctl("stop", NULL), 0);
                assert_true(is_state("draining"));
                break;
        case SCENE_ENDED:
                assert_int_equal(bed_ctl("stop", "60s"), 0);
                break;
        case SCENE_ALONE:
        case SCENE_RESUMING:
                restart_dfm(true);
                if (scene == SCENE_RESUMING)
                        freeze_nodes(false);
                bed_pass(NS_PER_S);
                if (scene == SCENE_RESUMING)
                        assert_string_equal(text_of(show(), "reason"), "waiting for sfi2");
                break;
        case SCENE_WHOLE:
                restart_dfm(false);
                break;
        case SCENE_ABANDONED:
                replace_nodes();
                break;
        default:
                break;
        }
}

/* ---- One command in one scene ---- */

/* What a command does. */
enum effect {
        REFUSED,
        NOTHING,
        ENDS,   /* run 1; no other one begins */
        BEGINS, /* another run, after run 1 has ended, if there is one */
        PAUSES,
        RESUMES,
        SETS,
};

#define AS_IN(a)                                                                                             \
        {                                                                                                    \
                a, a, a, a, a, a, a, a, a                                                                    \
        }

static const struct verb {
        const char *name;
        enum effect effects[SCENES];
} verbs[] = {
        /* configured, running, paused, draining, ended, alone, whole, resuming, abandoned */
        {"status", AS_IN(NOTHING)},
        {"start", {BEGINS, REFUSED, REFUSED, BEGINS, BEGINS, REFUSED, REFUSED, REFUSED, BEGINS}},
        {"stop", {NOTHING, ENDS, ENDS, ENDS, NOTHING, ENDS, ENDS, ENDS, NOTHING}},
        {"pause", {REFUSED, PAUSES, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED}},
        {"resume", {REFUSED, REFUSED, RESUMES, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED}},
        {"set trigger.rate=2kHz", AS_IN(SETS)},
        {"next-run", {BEGINS, BEGINS, BEGINS, BEGINS, BEGINS, BEGINS, BEGINS, BEGINS, BEGINS}},
};

/* Run 1 fell short. */
static bool is_short(enum scene scene)
{
        return scene == SCENE_ALONE || scene == SCENE_RESUMING || scene == SCENE_ABANDONED;
}

/* The nodes of run 1 that were away come, and for a run that begins those that are gone. */
static void let_come(enum scene scene, bool begins)
{
        if (scene == SCENE_ALONE || scene == SCENE_WHOLE)
                freeze_nodes(false);
        if (!begins || (scene != SCENE_ALONE && scene != SCENE_RESUMING))
                return;
        operator_until(run_of(last_run()) == 1);
        bed_start("sfi2");
}

static void check_run_1(enum scene scene)
{
        json_t *last;

        operator_until(run_of(last_run()) == 1);
        last = last_run();
        assert_string_equal(text_of(last, "status"), is_short(scene) ? "fell short" : "ok");
        assert_int_equal(json_array_size(json_object_get(last, "reasons")) > 0, is_short(scene));
        assert_true(scene != SCENE_RESUMING || has_reason(last, "sfi2"));
}

/* The state stays as it is. */
static void check_same(enum scene scene, const char *before)
{
        if (scene == SCENE_DRAINING)
                return;
        bed_pass(100 * NS_PER_MS);
        assert_true(is_state(before));
}

static void check_effect(enum scene scene, enum effect effect)
{
        bool has_run_1 = scene != SCENE_CONFIGURED;

        switch (effect) {
        case ENDS:
                check_run_1(scene);
                bed_pass(5 * NS_PER_S);
                assert_true(is_state("configured") || is_state("idle"));
                break;
        case BEGINS:
                if (has_run_1)
                        check_run_1(scene);
                operator_until(is_state("running") && run_of(show()) > has_run_1);
                break;
        case PAUSES:
                assert_true(is_state("paused"));
                break;
        case RESUMES:
                assert_true(is_state("running"));
                break;
        case SETS:
                assert_true(bed_logged("dfm", "set: trigger.rate 1kHz -> 2kHz"));
                break;
        case REFUSED:
        case NOTHING:
                break;
        }
}

static void check_command(enum scene scene, const struct verb *v, bool waits)
{
        enum effect effect = v->effects[scene];
        char before[32];
        int status;

        bring(scene);
        snprintf(before, sizeof before, "%s", text_of(show(), "state"));
        bed_ctl_start("operator", v->name, waits ? "200s" : NULL);
        bed_pass(500 * NS_PER_MS);
        if (effect == REFUSED || effect == NOTHING)
                check_same(scene, before);
        else if (!waits)
                bed_ends("operator", 0);
        let_come(scene, effect == BEGINS);
        check_effect(scene, effect);
        status = bed_status("operator");
        assert_int_equal(status,
                         effect == REFUSED || (waits && strcmp(v->name, "stop") == 0 && is_short(scene)));
}

TEST_EACH(each_command_in_each_scene, s, SCENES)
{
        static const char *const wait[] = {"start", "stop", "next-run"};

        for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
                bool may_wait = false;

                for (size_t k = 0; k < ARRAY_SIZE(wait); k++)
                        may_wait |= strcmp(verbs[i].name, wait[k]) == 0;
                for (int waits = 0; waits <= may_wait; waits++)
                        check_command((enum scene)s, &verbs[i], waits);
        }
}

/* A signal is no end of the run: nodes that come after this DFM has ended wait for the next one. */
TEST(a_dfm_is_stopped_before_the_nodes_come)
{
        bring(SCENE_ALONE);
        bed_start("sfi2");
        bed_until(bed_logged("dfm", "sfi2 has joined"));
        bed_stop("dfm", 0);
        freeze_nodes(false);
        bed_start("dfm");
        bed_until(bed_logged("dfm", "resumed run 1 of an earlier DFM"));
        assert_int_equal(run_of(show()), 1);
        assert_int_equal(bed_ctl("stop", "60s"), 1);
}

/* ---- A DFM restarts while its run ends ---- */

static void check_failed(void)
{
        json_t *last;

        bed_until(run_of(last_run()) == 1);
        last = last_run();
        assert_string_equal(text_of(last, "status"), "error");
        assert_true(has_reason(last, "the output of sfi1 failed (disk full"));
        assert_true(is_state("error"));
}

/* Only the DFM knew why the run ends, if the SFI is gone as well. */
TEST_EACH(a_dfm_restarts_while_its_run_fails, i, 3)
{
        bool gone = i > 0;

        RUN(1, OPERATED);
        bed_until(is_state("configured"));
        begin_run();
        bed_fail_output("sfi1");
        bed_freeze("ros1", true);
        bed_until(bed_logged("dfm", "the output of sfi1 failed (disk full"));
        bed_kill("dfm");
        if (gone)
                bed_kill("sfi1");
        bed_fail_output(NULL);
        bed_start("dfm");
        if (gone)
                bed_start("sfi1");
        if (i > 1) {
                bed_pass(200 * NS_PER_MS);
                bed_restart("dfm");
        }
        bed_freeze("ros1", false);
        check_failed();
}

/* The run has ended, and its DFM is killed before the report. */
TEST(a_dfm_restarts_after_its_run_has_failed)
{
        RUN(1, OPERATED);
        bed_until(is_state("configured"));
        begin_run();
        bed_fail_output("sfi1");
        bed_until(atomic_load(&bed_stats("dfm")->state) == NODE_ENDED);
        bed_restart("dfm");
        check_failed();
        assert_true(bed_logged("dfm", "ended, but its DFM did not report it: the output of sfi1 failed"));
}

/* A stopped run takes no further trigger, and is complete. */
TEST(a_dfm_restarts_while_its_run_is_stopped)
{
        uint64_t triggers;

        RUN(1, OPERATED);
        bed_until(is_state("configured"));
        begin_run();
        bed_freeze("ros1", true);
        bed_pass(100 * NS_PER_MS);
        assert_int_equal(bed_ctl("stop", NULL), 0);
        triggers = count_of("dfm", triggers);
        bed_restart("dfm");
        bed_freeze("ros1", false);
        bed_until(run_of(last_run()) == 1);
        assert_string_equal(text_of(last_run(), "status"), "ok");
        assert_int_equal(bed_events(), triggers);
}

/* The DFM dies before it has answered the operator, and after it has stored the stop: its run runs, or is
 * resumed and waits for ros1, or for all nodes. */
TEST_EACH(a_stop_outlives_a_dfm_that_dies, i, 4)
{
        const char *words = i == 1 ? "stopped by SIGTERM" : "stop requested from";
        uint64_t triggers;

        RUN(1, OPERATED);
        bed_until(is_state("configured"));
        begin_run();
        bed_freeze("ros1", true);
        bed_pass(NS_PER_S);
        triggers = count_of("dfm", triggers);
        for (unsigned again = 0; again < (i > 1 ? 2 : 0); again++) {
                bed_kill("dfm");
                if (i == 3)
                        freeze_nodes(true);
                bed_start("dfm");
                bed_until(is_state("resuming"));
        }
        bed_die_at("dfm", words);
        if (i == 1)
                bed_signal("dfm", SIGTERM);
        else
                bed_ctl_start("operator", "stop", NULL);
        bed_until(bed_logged("dfm", words));
        bed_start("dfm");
        freeze_nodes(false);
        bed_until(run_of(last_run()) == 1);
        assert_string_equal(text_of(last_run(), "status"), "ok");
        assert_int_equal(bed_events(), triggers);
}

/* ---- Several operators ---- */

static void begin_short_run(void)
{
        begin_run();
        bed_restart("sfi2");
        bed_until(bed_logged("dfm", "sfi2 has restarted"));
}

/* Another operator begins a run while the stopped one drains: the answer is about that one. */
TEST_EACH(another_run_begins_after_a_stop, i, 4)
{
        bool falls_short = i % 2;

        RUN(1, OPERATED);
        bed_until(is_state("configured"));
        if (falls_short)
                begin_short_run();
        else
                begin_run();
        bed_ctl_start("first", "stop", "60s");
        bed_until(is_state("draining"));
        assert_int_equal(bed_ctl(i / 2 ? "start" : "next-run", "60s"), 0);
        bed_ends("first", falls_short);
        bed_until(is_state("running") && run_of(show()) == 2);
}

/* Both runs end between two looks of the first operator, whose run fell short. */
TEST(two_runs_end_between_two_looks)
{
        RUN(1, OPERATED);
        bed_until(is_state("configured"));
        begin_short_run();
        bed_ctl_start("first", "stop", "60s");
        bed_until(is_state("draining"));
        bed_freeze("first", true);
        assert_int_equal(bed_ctl("next-run", "60s"), 0);
        bed_until(count_of("dfm", triggers) > 0);
        assert_int_equal(bed_ctl("stop", "60s"), 0);
        bed_freeze("first", false);
        bed_ends("first", 1);
}

/* A run that ends by itself just before an operator stops it. */
TEST_EACH(a_stop_comes_after_the_end, falls_short, 2)
{
        RUN(1, OPERATED, "trigger.events=2000");
        bed_until(is_state("configured"));
        if (falls_short)
                begin_short_run();
        else
                begin_run();
        bed_until(bed_logged("dfm", "run 1 ended"));
        assert_int_equal(bed_ctl("stop", "60s"), falls_short);
}

/* ---- The list of runs ---- */

static const char *listed(size_t i, const char *name)
{
        static json_t *all;
        json_t *runs;

        json_decref(all);
        assert_int_equal(bed_ctl("runs", NULL), 0);
        all = bed_report("ctl");
        runs = json_object_get(all, "runs");
        return json_array_size(runs) <= i ? "none" : text_of(json_array_get(runs, i), name);
}

static void check_listed(size_t i, const char *status, const char *how, const char *who)
{
        assert_string_equal(listed(i, "status"), status);
        assert_string_equal(listed(i, "ended"), how);
        assert_non_null(strstr(listed(i, "ended_by"), who));
}

/* The list is that of all DFMs of this address, also of those that were killed. */
TEST(the_list_says_how_each_run_ended)
{
        RUN(1, OPERATED, "scenario.duration=10s", "scenario.name=beam");
        bed_until(bed_logged("dfm", "sfi2 has joined") && is_state("configured"));
        assert_string_equal(listed(0, "status"), "none");
        begin_run();
        bed_until(bed_logged("dfm", "run 1 of beam ended"));
        check_listed(0, "ok", "scenario.duration", "");
        begin_run();
        check_listed(1, "running", "", "");
        bed_freeze("ros1", true);
        bed_pass(100 * NS_PER_MS);
        assert_int_equal(bed_ctl("stop", NULL), 0);
        bed_restart("dfm");
        bed_until(bed_logged("dfm", "resumed run 2"));
        check_listed(1, "running", "stop", "the Unix socket, user 1000");
        bed_freeze("ros1", false);
        bed_until(bed_logged("dfm", "run 2 of beam ended"));
        check_listed(1, "ok", "stop", "the Unix socket, user 1000");
        begin_short_run();
        bed_fail_output("sfi1");
        bed_until(bed_logged("dfm", "run 4 of beam ended"));
        bed_fail_output(NULL);
        check_listed(2, "error", "fault", "the output of sfi1 failed (disk full");
        assert_true(bed_logged("dfm", "run 4 of beam stops\n"));
        begin_run();
        replace_nodes();
        check_listed(3, "unknown", "unknown", "");
        begin_run();
        bed_stop("dfm", 0);
        bed_start("dfm");
        check_listed(4, "ok", "signal", "SIGTERM");
        assert_string_equal(listed(5, "status"), "none");
}

/* A DFM of a single run ends with it, but first tells the client that waits. */
TEST_EACH(the_end_of_a_single_run_is_reported, fails, 2)
{
        json_t *o;

        setenv("RUNTIME_DIRECTORY", "/run/evb", 1);
        RUN(1, OPERATED, "run.start=auto", "control.listen=none");
        bed_until(count_of("dfm", triggers) > 200);
        assert_false(permits("next-run") || permits("start"));
        assert_int_equal(bed_ctl("next-run", NULL), 1);
        if (fails)
                bed_cut("ros1", "sfi1");
        bed_pass(NS_PER_S);
        assert_int_equal(bed_ctl("stop", "60s"), fails);
        o = bed_report("ctl");
        assert_string_equal(text_of(json_object_get(o, "last_run"), "status"), fails ? "fell short" : "ok");
        json_decref(o);
        bed_ends("dfm", fails);
        unsetenv("RUNTIME_DIRECTORY");
}

/* As a unit whose DFM makes a single run: "first" waits for its end, which "ros1" delays for a moment. */
static void stop_single_run(void)
{
        setenv("RUNTIME_DIRECTORY", "/run/evb", 1);
        RUN(1, OPERATED, "run.start=auto", "control.listen=none");
        bed_until(count_of("dfm", triggers) > 200);
        unsetenv("RUNTIME_DIRECTORY");
        bed_freeze("ros1", true);
        bed_ctl_start("first", "stop", "60s");
        bed_until(is_state("draining"));
}

/* Questions of other operators change nothing for the client that waits. */
TEST(another_operator_asks_at_the_end)
{
        stop_single_run();
        bed_freeze("first", true);
        bed_freeze("ros1", false);
        bed_until(bed_logged("dfm", "run 1 ended"));
        for (int i = 0; i < 3; i++)
                assert_true(run_of(last_run()) == 1);
        bed_freeze("first", false);
        bed_ends("first", 0);
        bed_ends("dfm", 0);
}

/* Each client that waits learns it. */
TEST(two_operators_wait_for_the_end)
{
        stop_single_run();
        bed_ctl_start("second", "stop", "60s");
        bed_pass(50 * NS_PER_MS);
        bed_freeze("second", true);
        bed_freeze("ros1", false);
        bed_ends("first", 0);
        bed_freeze("second", false);
        bed_ends("second", 0);
        bed_ends("dfm", 0);
}

static void check_ends_at_once(void)
{
        bed_until(bed_logged("dfm", "run 1 ended"));
        bed_pass(500 * NS_PER_MS);
        assert_true(bed_has_ended("dfm"));
}

TEST(the_end_awaits_no_client_that_has_given_up)
{
        RUN(1, OPERATED);
        bed_freeze("sfi2", true);
        bed_pass(NS_PER_S);
        assert_int_equal(bed_ctl("start", "1s"), 1);
        bed_freeze("sfi2", false);
        bed_until(count_of("dfm", triggers) > 200);
        bed_pass(2 * NS_PER_S);
        bed_signal("dfm", SIGTERM);
        check_ends_at_once();
}

TEST(a_second_signal_awaits_no_client)
{
        stop_single_run();
        bed_freeze("first", true);
        bed_signal("dfm", SIGTERM);
        bed_pass(10 * NS_PER_MS);
        bed_signal("dfm", SIGINT);
        check_ends_at_once();
}
