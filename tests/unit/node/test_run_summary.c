/* Tests the judgement of a whole run, which evb status, evb top and the page show. */
#include "../test.h"

#include "conf/keys.h"
#include "node/metrics/run_summary.h"

#define NODES 4

static struct {
        struct scenario scenario;
        struct node_status nodes[NODES];
        struct statuses statuses;
} t;

static int set_up(void **state)
{
        static const char *const names[NODES] = {"dfm", "ros1", "sfi1", "sfi2"};
        static const enum node_role roles[NODES] = {ROLE_DFM, ROLE_ROS, ROLE_SFI, ROLE_SFI};

        memset(&t, 0, sizeof t);
        t.statuses = (struct statuses){&t.scenario, NODES, t.nodes};
        t.scenario.n_nodes = NODES;
        for (size_t i = 0; i < NODES; i++) {
                strcpy(t.scenario.nodes[i].name, names[i]);
                t.scenario.nodes[i].role = roles[i];
                t.scenario.nodes[i].required = true;
                t.nodes[i].node = &t.scenario.nodes[i];
                t.nodes[i].status = json_pack("{s:s, s:i}", "state", "running", "run", 7);
        }
        return 0;
}

static int tear_down(void **state)
{
        for (size_t i = 0; i < NODES; i++)
                json_decref(t.nodes[i].status);
        return 0;
}

static void bad(size_t i, enum node_condition condition, const char *problem)
{
        t.nodes[i].condition = condition;
        t.nodes[i].is_losing = condition == CONDITION_LOSING;
        strcpy(t.nodes[i].problem, problem);
}

static void assert_run(const char *state, bool ok, const char *reason)
{
        struct run_summary r;

        run_summary_make(&t.statuses, &r);
        assert_string_equal(r.state, state);
        assert_string_equal(r.reason, reason);
        assert_fields(&r, ok, ok, run, t.nodes[0].status ? 7 : 0);
        assert_int_equal(!r.whose, !reason[0]);
        assert_int_equal(r.blames, !ok || strstr(reason, ": it") != NULL);
}

TEST_WITH(a_healthy_run_has_the_state_of_its_dfm, set_up, tear_down)
{
        assert_run("running", true, "");
        json_object_set_new(t.nodes[0].status, "reason", json_string("no trigger for 9.0 s"));
        assert_run("running", true, "no trigger for 9.0 s");
        t.nodes[0].condition = CONDITION_PAUSED;
        json_object_set_new(t.nodes[0].status, "reason", json_string("paused\033[2J"));
        assert_run("paused", true, "paused?[2J");
}

TEST_WITH(the_dfm_knows_the_first_cause, set_up, tear_down)
{
        bad(2, CONDITION_SILENT, "no answer from x");
        assert_run("running", false, "sfi1: no answer from x");
        bad(1, CONDITION_STALLED, "stalled for 7 s");
        assert_run("running", false, "sfi1: no answer from x; 1 more problem");
        bad(0, CONDITION_STALLED, "stalled for 6 s: no credit");
        assert_run("stalled", false, "stalled for 6 s: no credit; 2 more problems");
        bad(0, CONDITION_ERROR, "the last run ended in an error: the disk is full");
        assert_run("error", false, "the last run ended in an error: the disk is full; 2 more problems");
}

TEST_WITH(a_dfm_without_an_answer_has_no_state, set_up, tear_down)
{
        json_decref(take_ptr(t.nodes[0].status));
        bad(0, CONDITION_SILENT, "no answer from y");
        assert_run("no answer", false, "no answer from y");
        t.statuses.n = 0;
        t.nodes[0].status = NULL;
        assert_run("?", true, "");
}

TEST_WITH(a_losing_run_says_where, set_up, tear_down)
{
        json_object_set_new(t.nodes[1].status, "losses",
                            json_pack("{s:i, s:i, s:n}", "source_qdisc_packets", 4, "send_failed_packets", 3,
                                      "network_packets"));
        for (size_t i = 2; i < NODES; i++) {
                bad(i, CONDITION_LOSING, "3 events partial in the last 7 s");
                json_object_set_new(t.nodes[i].status, "losses",
                                    json_pack("{s:{s:i, s:i}, s:i, s:i}", "missing_fragments", "ros1", 3,
                                              "other", 1000, "network_packets", 5, "socket_packets", -1));
        }
        /* The DFM has not heard of it yet. */
        assert_run("losing", false, "sfi1: 3 events partial in the last 7 s");
        bad(0, CONDITION_LOSING, "2 events lost, 6 partial in the last 7 s");
        assert_run("losing", false,
                   "2 events lost, 6 partial in the last 7 s; missing fragments: ros1 6; dropped packets: "
                   "source queue 4, refused by the kernel 3, network 7");
        /* That is one problem; others are others. */
        bad(1, CONDITION_SILENT, "no answer");
        t.nodes[0].condition = CONDITION_PAUSED;
        assert_run("paused", false,
                   "ros1: no answer; 2 events lost, 6 partial in the last 7 s; missing fragments: ros1 6; "
                   "dropped packets: source queue 4, refused by the kernel 3, network 7");
}

TEST_WITH(losses_at_one_of_several_sfis_are_named_by_it, set_up, tear_down)
{
        t.scenario.sfi.count = 2;
        bad(0, CONDITION_LOSING, "130 events lost in the last 7 s");
        bad(3, CONDITION_LOSING, "no fragment arrives at its port 26801; 130 events lost in the last 7 s");
        assert_run("losing", false,
                   "sfi2: no fragment arrives at its port 26801; 130 events lost in the last 7 s");
        bad(2, CONDITION_LOSING, "1 event partial in the last 7 s");
        assert_run("losing", false, "130 events lost in the last 7 s");
}

TEST_WITH(an_sfi_without_memory_for_events_is_named_first, set_up, tear_down)
{
        bad(0, CONDITION_LOSING, "9 events partial in the last 7 s");
        for (size_t i = 2; i < NODES; i++) {
                bad(i, CONDITION_LOSING, "no memory");
                json_object_set_new(t.nodes[i].status, "losses",
                                    json_pack("{s:i, s:i}", "events_partial", 9, "events_starved", i + 2));
        }
        assert_run("losing", false, "sfi2: no memory"); /* 4 of 9 of sfi1 are fewer than half */
}

static void assert_view(size_t i, enum node_mood mood, const char *word, const char *why)
{
        struct node_view v;

        node_view_make(&t.statuses, &t.nodes[i], 3 * NS_PER_S, NS_PER_S, &v);
        assert_string_equal(v.word, word);
        assert_string_equal(v.why, why);
        assert_fields(&v, mood, mood, is_late, strcmp(word, "late") == 0);
}

static void set(size_t i, const char *name, json_t *value)
{
        json_object_set_new(t.nodes[i].status, name, value);
}

/* What the DFM says of it counts, too. */
TEST_WITH(a_node_is_judged_once_for_all_screens, set_up, tear_down)
{
        json_t *peer = json_pack("{s:s, s:b}", "node", "sfi1", "live", true);

        assert_view(2, MOOD_GOOD, "running", "");
        set(2, "busy", json_true());
        assert_view(2, MOOD_WARN, "busy", "triggers wait for free credits");
        set(2, "reason", json_string("no\033[2J event"));
        assert_view(2, MOOD_WARN, "waiting", "no?[2J event");
        set(2, "reason", json_string("waiting for run 7 to begin"));
        assert_view(2, MOOD_IDLE, "waiting", "waiting for run 7 to begin");
        set(0, "reason", json_string("waiting for the command start"));
        set(0, "control_state", json_string("idle"));
        assert_view(0, MOOD_WARN, "waiting", "waiting for the command start");
        set(0, "control_state", json_string("configured"));
        assert_view(0, MOOD_IDLE, "waiting", "waiting for the command start");
        set(0, "peers", json_pack("[{s:s}, o]", "node", "ros1", peer));
        json_object_set_new(peer, "xoff", json_true());
        assert_view(2, MOOD_WARN, "holds back", "its buffer is nearly full, and triggers wait");
        set(2, "output_size_bytes", json_real(1e12));
        set(2, "output_free_bytes", json_real(1e11));
        set(2, "output_left_seconds", json_integer(3600));
        assert_view(2, MOOD_WARN, "holds back", "its buffer is nearly full, and triggers wait");
        set(2, "output_left_seconds", json_integer(3599));
        assert_view(2, MOOD_WARN, "disk low", "the disk has 100 GB of 1 TB free, full in 59 min");
        set(2, "shaped", json_false());
        assert_view(2, MOOD_WARN, "not shaped", "its shaping is not installed as planned");
        bad(2, CONDITION_LOSING, "2 events lost");
        assert_view(2, MOOD_BAD, "losing", "2 events lost");
        json_object_set_new(peer, "live", json_false());
        bad(2, CONDITION_CUT_OFF, "the DFM receives nothing from it");
        assert_view(2, MOOD_BAD, "cut off", "the DFM receives nothing from it");
        bad(2, CONDITION_STALLED, "stalled for 7 s");
        assert_view(2, MOOD_BAD, "stalled", "stalled for 7 s");
        t.nodes[2].asked_ns = 2 * NS_PER_S;
        t.nodes[2].answered_ns = NS_PER_S;
        assert_view(2, MOOD_WARN, "late", "no answer for 2.0 s");
        json_decref(take_ptr(t.nodes[2].status));
        bad(2, CONDITION_SILENT, "refused");
        assert_view(2, MOOD_GONE, "gone", "the DFM receives nothing from it; refused");
        json_object_set_new(peer, "live", json_true());
        assert_view(2, MOOD_WARN, "no figures", "refused");
        json_object_set_new(peer, "live", json_null());
        assert_view(2, MOOD_GONE, "no answer", "refused");
        bad(2, CONDITION_SILENT, "");
        assert_view(2, MOOD_GONE, "late", "no answer yet");
        set(0, "state", json_string("ready"));
        set(0, "reason", json_string("paused by bob"));
        t.nodes[0].condition = CONDITION_PAUSED;
        assert_view(0, MOOD_WARN, "paused", "paused by bob");
        bad(0, CONDITION_PAUSED, "1 event lost");
        assert_view(0, MOOD_BAD, "paused", "1 event lost");
        assert_view(1, MOOD_GOOD, "running", "");
        set(1, "state", json_string("draining"));
        assert_view(1, MOOD_IDLE, "draining", "");
}

/* A node that only waits for another one is not red. */
TEST_WITH(the_node_at_fault_stands_out, set_up, tear_down)
{
        strcpy(t.scenario.nodes[2].address, "10.0.0.3");
        bad(0, CONDITION_STALLED, "stalled for 7 s: no credit from sfi10, sfi1: slow disk on sfi1");
        assert_view(0, MOOD_BAD, "stalled", t.nodes[0].problem);
        bad(1, CONDITION_STALLED, "stalled for 7 s: queue to 10.0.0.3 full");
        bad(2, CONDITION_STALLED, "stalled for 7 s: slow disk: /data");
        assert_view(0, MOOD_WARN, "stalled", t.nodes[0].problem);
        assert_view(1, MOOD_WARN, "stalled", t.nodes[1].problem);
        assert_view(2, MOOD_BAD, "stalled", t.nodes[2].problem);
        /* Only whole names count, and two nodes that wait for each other are both at fault. */
        bad(0, CONDITION_STALLED, "stalled for 7 s: no credit from sfi10");
        assert_view(0, MOOD_BAD, "stalled", t.nodes[0].problem);
        bad(0, CONDITION_STALLED, "stalled for 7 s: ros1: queue full");
        bad(1, CONDITION_STALLED, "stalled for 7 s: 3 fragments held, no Clear of the DFM");
        assert_view(0, MOOD_BAD, "stalled", t.nodes[0].problem);
        assert_view(1, MOOD_BAD, "stalled", t.nodes[1].problem);
        /* Losses follow from a node that is gone, unless the run does without it. */
        bad(0, CONDITION_LOSING, "3 events lost");
        bad(1, CONDITION_SILENT, "refused");
        bad(2, CONDITION_FINE, "");
        json_decref(take_ptr(t.nodes[1].status));
        assert_view(0, MOOD_WARN, "losing", "3 events lost");
        assert_view(1, MOOD_GONE, "no answer", "refused");
        t.scenario.nodes[1].required = false;
        assert_view(0, MOOD_BAD, "losing", "3 events lost");
}

static void assert_fault(const char *node, const char *state, const char *cause, const char *text)
{
        struct run_fault f;

        assert_true(run_summary_find_fault(&t.statuses, &f));
        assert_string_equal(f.node, node);
        if (!node[0])
                return;
        assert_string_equal(f.state, state);
        assert_string_equal(f.cause, cause);
        assert_string_equal(f.text, text);
        assert_int_equal(f.is_gone, strcmp(state, "no answer") == 0);
}

#define assert_no_fault() assert_fault("", NULL, NULL, NULL)

TEST_WITH(the_fault_is_the_first_one_of_the_reason, set_up, tear_down)
{
        assert_no_fault();
        t.nodes[2].clock_ahead_s = 7;
        assert_fault("sfi1", "differs", "its clock is ahead of this machine's",
                     "sfi1: its clock is 7.0 s ahead of this machine's");
        set(1, "shaped", json_false());
        assert_fault("ros1", "not shaped", "its shaping is not installed as planned",
                     "ros1: its shaping is not installed as planned");
        bad(2, CONDITION_LOSING, "2 events lost");
        strcpy(t.nodes[2].cause, "events are lost or partial");
        assert_fault("sfi1", "losing", "events are lost or partial", "sfi1: 2 events lost");
        bad(3, CONDITION_CUT_OFF, "x for 3 s");
        strcpy(t.nodes[3].cause, "x");
        assert_fault("sfi2", "cut off", "x", "sfi2: x for 3 s");
        set(0, "state", json_string("draining"));
        assert_no_fault();
        set(0, "state", json_string("ready"));
        set(0, "time", json_real(100));
        set(0, "start_time", json_real(96));
        assert_no_fault();
        set(0, "start_time", json_real(94));
        assert_fault("sfi2", "cut off", "x", "sfi2: x for 3 s");
        /* Its clock was set back after the start. */
        set(0, "start_time", json_real(3700));
        assert_fault("sfi2", "cut off", "x", "sfi2: x for 3 s");
}

/* What may soon be a fault is looked at again soon. */
TEST_WITH(a_silent_node_is_awaited_until_the_dfm_misses_it, set_up, tear_down)
{
        assert_false(statuses_await_silence(&t.statuses));
        bad(2, CONDITION_SILENT, "no answer from x");
        set(0, "peers", json_pack("[{s:s,s:b}]", "node", t.nodes[2].node->name, "live", true));
        assert_true(statuses_await_silence(&t.statuses));
        assert_no_fault();
        set(0, "peers", json_pack("[{s:s,s:b}]", "node", t.nodes[2].node->name, "live", false));
        assert_false(statuses_await_silence(&t.statuses));
}

TEST(a_fault_is_confirmed_by_its_node_and_state)
{
        static const struct run_fault none = {}, gone = {.node = "ros1", .state = "cut off", .cause = "x"},
                                      silent = {.node = "ros1", .state = "no answer", .is_gone = true};
        static const struct run_fault stalls[] = {
                {.node = "ros1", .state = "stalled", .cause = "stalled: a"},
                {.node = "ros1", .state = "stalled", .cause = "stalled: b"}};

        assert_true(run_fault_confirms(&none, &none, &silent));
        assert_false(run_fault_confirms(&silent, &silent, &none));
        assert_false(run_fault_confirms(&none, &none, &gone));
        assert_true(run_fault_confirms(&none, &gone, &gone));
        assert_false(run_fault_confirms(&gone, &gone, &none));
        assert_true(run_fault_confirms(&gone, &none, &none));
        assert_false(run_fault_confirms(&gone, &gone, &stalls[0]));
        /* The cause alternates. */
        assert_true(run_fault_confirms(&gone, &stalls[0], &stalls[1]));
        assert_false(run_fault_confirms(&stalls[1], &stalls[1], &stalls[0]));
        assert_false(run_fault_confirms(&stalls[1], &stalls[0], &stalls[1]));
        assert_true(run_fault_confirms(&stalls[1], &stalls[0], &stalls[0]));
}

TEST_WITH(a_node_that_has_not_started_yet_or_need_not_is_no_fault, set_up, tear_down)
{
        bad(1, CONDITION_SILENT, "no answer from x");
        strcpy(t.nodes[1].cause, "no answer");
        assert_fault("ros1", "no answer", "no answer", "ros1: no answer from x");
        t.scenario.nodes[1].required = false;
        assert_no_fault();
        assert_run("running", false, "ros1: no answer from x");
        t.scenario.nodes[1].required = true;
        set(0, "state", json_string("ready"));
        set(0, "peers", json_pack("[{s:s, s:b}]", "node", "sfi1", "live", false));
        assert_no_fault();
        set(0, "peers", json_pack("[{s:s, s:b}]", "node", "sfi1", "live", true));
        set(0, "time", json_real(100));
        set(0, "start_time", json_real(91));
        t.scenario.dfm.start_timeout_ns = 10 * NS_PER_S;
        assert_no_fault();
        t.scenario.dfm.start_timeout_ns = SCENARIO_AUTO;
        t.scenario.dfm.node_timeout_ns = 8 * NS_PER_S;
        assert_fault("ros1", "no answer", "no answer", "ros1: no answer from x");
}

TEST_WITH(a_dfm_without_an_answer_leaves_the_fault_open, set_up, tear_down)
{
        struct run_fault f;

        bad(3, CONDITION_STALLED, "x");
        json_decref(take_ptr(t.nodes[0].status));
        bad(0, CONDITION_SILENT, "no answer");
        assert_false(run_summary_find_fault(&t.statuses, &f));
}

/* Its metrics may be out of reach of the DFM, which is no fault of the run. */
TEST_WITH(a_node_that_sends_messages_but_does_not_answer_comes_last, set_up, tear_down)
{
        bad(2, CONDITION_SILENT, "no answer from x");
        strcpy(t.nodes[2].cause, "no answer");
        assert_fault("sfi1", "no answer", "no answer", "sfi1: no answer from x");
        set(0, "peers", json_pack("[{s:s, s:b}]", "node", "sfi1", "live", true));
        assert_no_fault();
        assert_run("running", false, "sfi1: no answer from x");
        set(1, "shaped", json_false());
        assert_fault("ros1", "not shaped", "its shaping is not installed as planned",
                     "ros1: its shaping is not installed as planned");
        bad(3, CONDITION_LOSING, "3 events lost");
        strcpy(t.nodes[3].cause, "events are lost or partial");
        assert_fault("sfi2", "losing", "events are lost or partial", "sfi2: 3 events lost; 1 more problem");
}

static void differs(size_t i, const char *why)
{
        char reason[600];

        assert_view(i, MOOD_WARN, "differs", why);
        snprintf(reason, sizeof reason, "no trigger; %s: %s", t.nodes[i].node->name, why);
        assert_run("running", true, reason);
}

TEST_WITH(a_node_that_stops_says_so, set_up, tear_down)
{
        set(1, "reason", json_string("stopping: serves run 7 until it ends, at most 9 s longer"));
        assert_view(1, MOOD_WARN, "stopping", "serves run 7 until it ends, at most 9 s longer");
}

/* The answer has one digest for each key; other sizes are those of other versions. */
static json_t *settings_with(const char *section, const char *name, int value)
{
        json_t *all = json_array();

        for (size_t i = 0; i < n_scenario_keys; i++)
                json_array_append_new(
                        all, json_integer(&scenario_keys[i] == scenario_key_find(section, name) ? value : 1));
        return all;
}

TEST_WITH(a_key_that_need_not_agree_is_named, set_up, tear_down)
{
        set(0, "settings", settings_with("sfi", "timeout", 2));
        set(2, "settings", settings_with("sfi", "timeout", 3));
        assert_fault("sfi1", "differs", "its scenario differs from that of the DFM in sfi.timeout",
                     "sfi1: its scenario differs from that of the DFM in sfi.timeout");
        set(2, "settings", json_pack("[i]", 3));
        assert_no_fault();
}

TEST_WITH(a_dfm_that_differs_from_all_others_is_named, set_up, tear_down)
{
        set(0, "settings", settings_with("sfi", "timeout", 2));
        for (size_t i = 1; i < NODES; i++)
                set(i, "settings", settings_with("sfi", "timeout", 3));
        assert_fault("dfm", "differs", "its scenario differs from that of all other nodes in sfi.timeout",
                     "dfm: its scenario differs from that of all other nodes in sfi.timeout");
        set(3, "settings", settings_with("sfi", "timeout", 4));
        assert_fault("ros1", "differs", "its scenario differs from that of the DFM in sfi.timeout",
                     "ros1: its scenario differs from that of the DFM in sfi.timeout");
}

/* Such a node works, so the run is well, but all screens say it. */
TEST_WITH(a_node_that_differs_is_named, set_up, tear_down)
{
        set(0, "reason", json_string("no trigger"));
        set(0, "digest", json_pack("[i,i,i]", 7, 8, 9));
        set(2, "digest", json_pack("[i,i,i]", 7, 8, 9));
        t.nodes[2].clock_ahead_s = 1;
        assert_view(2, MOOD_GOOD, "running", "");
        assert_run("running", true, "no trigger");
        t.nodes[2].clock_ahead_s = -10800;
        differs(2, "its clock is 10800.0 s behind this machine's");
        set(2, "digest", json_pack("[i,i,i]", 7, 8, 10));
        differs(2, "its scenario differs from that of the DFM in scenario.transport");
        set(2, "digest", json_pack("[i,i]", 6, 8));
        differs(2, "its scenario differs from that of the DFM in another version of evb");
        set(2, "version", json_string("0.0.1"));
        differs(2, "it runs evb 0.0.1, and this is evb " EVB_VERSION);
}

TEST_WITH(the_object_has_null_for_what_is_not_known, set_up, tear_down)
{
        struct run_summary r = {.ok = true, .state = "ready"};
        json_auto_t *o = run_summary_to_json(&r);

        assert_true(json_is_true(json_object_get(o, "ok")) && json_is_null(json_object_get(o, "run")));
        assert_true(json_is_null(json_object_get(o, "reason")));
        assert_string_equal(json_string_value(json_object_get(o, "state")), "ready");
}
