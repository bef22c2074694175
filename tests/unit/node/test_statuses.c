/* Tests what the answers of nodes become: servers of the test answer in their places. */
#include "../json_assert.h"

#include "node_sample.h"

#include "base/strbuf.h"
#include "net/http_server.h"
#include "net/local_listener.h"
#include "node/metrics/run_summary.h"
#include "node/metrics/statuses.h"

#define ANSWERS 3
#define LIMIT_NS (60 * NS_PER_S)

static struct {
        struct scenario *scenario;
        char folder[64];
        struct server {
                struct local_listener listener;
                struct http_server *http;
                const char *text;
                unsigned status;
        } servers[ANSWERS];
} t;

static void answer(void *ctx, const struct http_request *request, struct http_reply *ret)
{
        const struct server *s = ctx;

        assert_string_equal(request->path, "/status");
        ret->content_type = "application/json";
        ret->status = s->status;
        ret->text = strdup(s->text);
        ret->text_bytes = strlen(ret->text);
}

/* The node answers with this text. */
static void serve(struct server *s, const char *node, unsigned status, const char *text)
{
        struct http_config config = {.answer = answer, .ctx = s};
        char path[128];
        struct error e = {};

        snprintf(path, sizeof path, "%s/%s", t.folder, node);
        assert_int_equal(local_listener_open(&s->listener, path, &e), 0);
        s->status = status;
        s->text = text;
        config.listener = s->listener.fd;
        assert_int_equal(http_server_new(&s->http, &config, &e), 0);
}

static void stop(struct server *s)
{
        http_server_free(take_ptr(s->http));
        if (s->listener.fd >= 0)
                local_listener_close(&s->listener);
        s->listener.fd = -1;
}

static int set_up(void **state)
{
        strcpy(t.folder, "/tmp/evb-test-XXXXXX");
        assert_non_null(mkdtemp(t.folder));
        for (size_t i = 0; i < ANSWERS; i++)
                t.servers[i].listener.fd = -1;
        t.scenario = sample_scenario("udp");
        snprintf(t.scenario->metrics.listen, sizeof t.scenario->metrics.listen, "unix:%s/%%n", t.folder);
        t.scenario->metrics.kind = METRICS_UNIX;
        return 0;
}

static int tear_down(void **state)
{
        for (size_t i = 0; i < ANSWERS; i++)
                stop(&t.servers[i]);
        free(t.scenario);
        return rmdir(t.folder);
}

static struct node_status *find(struct statuses *s, const char *name)
{
        for (size_t i = 0; i < s->n; i++) {
                if (strcmp(s->nodes[i].node->name, name) == 0)
                        return &s->nodes[i];
        }
        fail_msg("no node %s", name);
        return NULL;
}

TEST_WITH(each_answer_is_judged, set_up, tear_down)
{
        _cleanup_(statuses_fini) struct statuses s;
        struct error e = {};
        char expected[SCENARIO_TEXT_MAX + 40];

        serve(&t.servers[0], "dfm", 200,
              "{\"node\":\"dfm\",\"state\":\"running\",\"stalled_seconds\":6.7,\"reason\":\"no credit\"}");
        serve(&t.servers[1], "ros1", 200, "{\"node\":\"ros2\",\"state\":\"running\"}");
        serve(&t.servers[2], "ros2", 200, "[{\"state\":\"running\"}]");
        assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
        assert_int_equal(s.n, 5);
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_string_equal(find(&s, "dfm")->problem, "stalled for 7 s: no credit");
        assert_string_equal(json_string_value(json_object_get(find(&s, "dfm")->status, "state")), "running");
        snprintf(expected, sizeof expected, "unix:%s/ros1 is node ros2", t.folder);
        assert_string_equal(find(&s, "ros1")->problem, expected);
        assert_null(find(&s, "ros1")->status);
        snprintf(expected, sizeof expected, "unix:%s/ros2 is not a node of evb", t.folder);
        assert_string_equal(find(&s, "ros2")->problem, expected);
        assert_null(find(&s, "ros2")->status);
        snprintf(expected, sizeof expected, "no answer from unix:%s/sfi1: No such file or directory",
                 t.folder);
        assert_string_equal(find(&s, "sfi1")->problem, expected);
}

static void assert_condition(const char *answer, const char *word, const char *problem)
{
        struct statuses s;
        struct error e = {};

        serve(&t.servers[0], "dfm", 200, answer);
        assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_string_equal(node_status_word(find(&s, "dfm")), word);
        assert_string_equal(find(&s, "dfm")->problem, problem);
        assert_string_equal(node_status_word(find(&s, "sfi1")), "no answer");
        statuses_fini(&s);
        stop(&t.servers[0]);
}

#define ANSWER(members) "{\"node\":\"dfm\",\"state\":\"running\"" members "}"

TEST_WITH(the_condition_is_what_an_operator_should_see, set_up, tear_down)
{
        assert_condition(ANSWER(""), "running", "");
        assert_condition(ANSWER(",\"control_state\":\"running\",\"losses\":{\"events_lost\":0}"), "running",
                         "");
        assert_condition(ANSWER(",\"control_state\":\"paused\""), "paused", "");
        assert_condition(ANSWER(",\"control_state\":\"paused\",\"stalled_seconds\":6,\"reason\":\"x\""),
                         "paused", "stalled for 6 s: x");
        assert_condition(ANSWER(",\"losses\":{\"seconds\":7.25,\"events_lost\":3,\"events_partial\":1}"),
                         "losing", "3 events lost, 1 partial in the last 7 s");
        assert_condition(ANSWER(",\"losses\":{\"events_not_written\":2},\"stalled_seconds\":5"), "stalled",
                         "stalled for 5 s");
        assert_condition(ANSWER(",\"control_state\":\"error\",\"control_error\":\"disk\\u001b full\""),
                         "error", "the last run ended in an error: disk? full");
        assert_condition(ANSWER(",\"control_state\":\"error\""), "error", "the last run ended in an error");
}

TEST_WITH(an_sfi_names_the_cause_of_its_losses, set_up, tear_down)
{
        static const struct {
                const char *losses, *problem, *cause;
        } rows[] = {
                {"\"events_starved\":9", "", ""},
                {"\"events_lost\":7,\"events_starved\":3", "7 events lost in the last 0 s",
                 "events are lost or partial"},
                {"\"events_lost\":7,\"events_starved\":4",
                 "its events find no memory (sfi.buffer-size); 7 events lost in the last 0 s",
                 "its events find no memory (sfi.buffer-size)"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                _cleanup_(statuses_fini) struct statuses s;
                char answer[200];
                struct error e = {};

                snprintf(answer, sizeof answer, "{\"node\":\"sfi1\",\"state\":\"running\",\"losses\":{%s}}",
                         rows[i].losses);
                serve(&t.servers[0], "sfi1", 200, answer);
                assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
                assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
                assert_string_equal(find(&s, "sfi1")->problem, rows[i].problem);
                assert_string_equal(find(&s, "sfi1")->cause, rows[i].cause);
                stop(&t.servers[0]);
        }
}

static void assert_sfi(const char *dfm, const char *sfi, const char *word)
{
        struct statuses s;
        struct error e = {};

        serve(&t.servers[0], "dfm", 200, dfm);
        serve(&t.servers[1], "sfi1", 200, sfi);
        assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_string_equal(node_status_word(find(&s, "sfi1")), word);
        statuses_fini(&s);
        stop(&t.servers[0]);
        stop(&t.servers[1]);
}

#define DFM(state) "{\"node\":\"dfm\",\"state\":\"" state "\",\"peers\":[{\"node\":\"sfi1\",\"live\":false}]}"
#define SFI(state, start) "{\"node\":\"sfi1\",\"state\":\"" state "\",\"time\":1000,\"start_time\":" start "}"

/* A node that runs, but whose messages do not reach the DFM, is cut off, also between two runs. */
TEST_WITH(a_node_that_the_dfm_does_not_receive_is_cut_off, set_up, tear_down)
{
        assert_sfi(DFM("running"), SFI("running", "900"), "cut off");
        assert_sfi(DFM("ready"), SFI("ready", "900"), "cut off");
        assert_sfi(DFM("running"), SFI("ready", "900,\"reason\":\"refused by the DFM dfm\""), "cut off");
        assert_sfi(DFM("running"), SFI("ready", "996"), "ready");
        assert_sfi(DFM("running"), SFI("ready", "999,\"reason\":\"refused by the DFM dfm: for a moment\""),
                   "ready");
        assert_sfi("{\"node\":\"dfm\",\"state\":\"running\"}",
                   SFI("ready",
                       "999,\"reason\":\"refused by the DFM dfm: its scenario differs from ours in a.b\""),
                   "cut off");
        assert_sfi(DFM("ready"), SFI("sealing", "900"), "sealing");
        assert_sfi(DFM("draining"), SFI("running", "900"), "running");
        assert_sfi("{\"node\":\"dfm\",\"state\":\"ready\"}", SFI("ready", "900"), "ready");
}

/* It may still work, because other nodes reach it. */
TEST_WITH(a_node_that_receives_nothing_from_the_dfm_is_cut_off, set_up, tear_down)
{
        assert_sfi(ANSWER(""), SFI("running", "900,\"reason\":\"dfm silent for 3.2 s\""), "cut off");
        assert_sfi(ANSWER(""), SFI("running", "900,\"reason\":\"dfm2 silent for 3.2 s\""), "running");
        assert_sfi(ANSWER(""), SFI("ready", "900,\"reason\":\"waiting for run 7 to begin\""), "ready");
}

TEST_WITH(a_node_whose_longest_packets_do_not_pass_is_cut_off, set_up, tear_down)
{
        assert_condition(ANSWER(",\"mtu_failed_paths\":2,\"losses\":{\"events_lost\":3}"), "cut off",
                         "its longest packets (network.mtu) do not reach 2 nodes, but short ones do");
        assert_condition(ANSWER(",\"mtu_failed_paths\":0"), "running", "");
}

/* Losses follow from it, unless events do without the ROS. */
TEST_WITH(a_ros_blames_its_front_end, set_up, tear_down)
{
        static const char *const problems[][2] = {
                {"front_end_missing", "no front-end"},
                {"front_end_silent", "silent front-end"},
                {"front_end_out_of_step", "front-end out of step with the triggers"}};
        struct scenario_node *ros = &t.scenario->nodes[1];

        assert_string_equal(ros->name, "ros1");
        for (size_t i = 0; i < 2 * ARRAY_SIZE(problems); i++) {
                const char *const *problem = problems[i / 2];
                _cleanup_(statuses_fini) struct statuses s;
                bool required = i % 2;
                char answer[128], reason[128];
                struct run_summary r;
                struct error e = {};

                snprintf(answer, sizeof answer, "{\"node\":\"ros1\",\"state\":\"running\",\"%s\":true}",
                         problem[0]);
                snprintf(reason, sizeof reason, "%s%s%s3 events partial in the last 7 s",
                         required ? "ros1: " : "", required ? problem[1] : "", required ? "; " : "");
                ros->required = required;
                serve(&t.servers[0], "dfm", 200, ANSWER(",\"losses\":{\"events_partial\":3,\"seconds\":7}"));
                serve(&t.servers[1], "ros1", 200, answer);
                assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
                s.n = 2;
                assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
                run_summary_make(&s, &r);
                assert_string_equal(r.state, "losing");
                assert_string_equal(node_status_word(find(&s, "ros1")), required ? "no frames" : "running");
                assert_string_equal(find(&s, "ros1")->cause, required ? problem[1] : "");
                assert_string_equal(r.reason, reason);
                stop(&t.servers[0]);
                stop(&t.servers[1]);
        }
}

TEST_WITH(an_sfi_without_fragments_says_so, set_up, tear_down)
{
        assert_sfi(ANSWER(""),
                   SFI("running", "900,\"losses\":{\"events_lost\":3},\"rates\":{\"fragments_hz\":0}"),
                   "losing");
}

static void assert_cause(const char *members, const char *cause)
{
        struct statuses s;
        struct error e = {};
        char text[256];

        snprintf(text, sizeof text, "{\"node\":\"dfm\",\"state\":\"running\"%s}", members);
        serve(&t.servers[0], "dfm", 200, text);
        assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_string_equal(find(&s, "dfm")->cause, cause);
        assert_string_equal(find(&s, "sfi1")->cause, "no answer");
        statuses_fini(&s);
        stop(&t.servers[0]);
}

/* A metric has it as a label, so it must not change while the fault lasts. */
TEST_WITH(causes_have_no_times_and_counts, set_up, tear_down)
{
        assert_cause("", "");
        assert_cause(",\"stalled_seconds\":6,\"reason\":\"waits for ros1 silent for 3.2 s\"",
                     "stalled: waits for ros1 silent");
        assert_cause(",\"stalled_seconds\":6,\"reason\":\"waits for event 3 of 99, 1.5 MB\"",
                     "stalled: waits for event N of N, N MB");
        assert_cause(",\"stalled_seconds\":6,\"reason\":\"waits for fragments of ros4 and 2 more for 3.2 s\"",
                     "stalled: waits for fragments of ros4");
        assert_cause(",\"stalled_seconds\":6,\"reason\":\"slow disk: /data/2 of sfi1: 80%\"",
                     "stalled: slow disk: /data/2 of sfi1: N%");
        assert_cause(",\"stalled_seconds\":6", "stalled");
        assert_cause(",\"losses\":{\"events_lost\":3}", "events are lost or partial");
        assert_cause(",\"mtu_failed_paths\":2", "its longest packets (network.mtu) do not reach other nodes");
        assert_cause(",\"control_state\":\"error\",\"control_error\":\"x\"",
                     "the last run ended in an error: x");
}

/* Otherwise no scrape of the DFM's metrics would succeed, and no report could be made. */
TEST_WITH(texts_cut_within_a_character_stay_utf8, set_up, tear_down)
{
        char text[512], reason[400], word[331];
        struct statuses s;
        struct error e = {};

        memset(word, 'a', sizeof word - 1);
        word[sizeof word - 1] = '\0';
        for (size_t n = 280; n < 330; n++) {
                snprintf(reason, sizeof reason, "%.*s\303\244\303\244\303\244", (int)n, word);
                snprintf(text, sizeof text,
                         "{\"node\":\"dfm\",\"state\":\"running\",\"stalled_seconds\":6,\"reason\":\"%s\"}",
                         reason);
                serve(&t.servers[0], "dfm", 200, text);
                assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
                assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
                assert_true(text_is_utf8(find(&s, "dfm")->cause));
                assert_true(text_is_utf8(find(&s, "dfm")->problem));
                statuses_fini(&s);
                stop(&t.servers[0]);
        }
}

/* The clock of the answer is compared with the time of the request. */
TEST_WITH(a_clock_is_compared_when_its_node_answers, set_up, tear_down)
{
        _cleanup_(statuses_fini) struct statuses s;
        struct error e = {};
        char text[128];

        snprintf(text, sizeof text, "{\"node\":\"dfm\",\"state\":\"ready\",\"time\":%.1f}",
                 (double)clock_utc_ns() / NS_PER_S - 10800);
        serve(&t.servers[0], "dfm", 200, text);
        assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_true(find(&s, "dfm")->clock_ahead_s <= -10799);
        t.servers[0].text = "{\"node\":\"dfm\",\"state\":\"ready\",\"time\":1e300}";
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_true(find(&s, "dfm")->clock_ahead_s > 1e299);
}

/* Any program may listen where a node should. */
TEST_WITH(nonsense_is_no_loss, set_up, tear_down)
{
        assert_condition(ANSWER(",\"losses\":[1]"), "running", "");
        assert_condition(ANSWER(",\"losses\":{\"events_lost\":\"many\",\"events_partial\":-5}"), "running",
                         "");
        assert_condition(ANSWER(",\"losses\":{\"events_lost\":1,\"missing_fragments\":{\"ros1\":\"x\","
                                "\"ros9\":1,\"ros2\":2}}"),
                         "losing", "1 event lost in the last 0 s; missing fragments: ros2 2");
}

/* What a node answered last is not shown for one that is gone, nor its previous problem once it is back. */
TEST_WITH(answers_replace_each_other, set_up, tear_down)
{
        _cleanup_(statuses_fini) struct statuses s;
        struct error e = {};

        assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_null(find(&s, "dfm")->status);
        serve(&t.servers[0], "dfm", 200, "{\"node\":\"dfm\",\"state\":\"ready\",\"stalled_seconds\":null}");
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_non_null(find(&s, "dfm")->status);
        assert_string_equal(find(&s, "dfm")->problem, "");
        stop(&t.servers[0]);
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_null(find(&s, "dfm")->status);
        serve(&t.servers[0], "dfm", 500, "{\"node\":\"dfm\",\"state\":\"ready\"}");
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        assert_null(find(&s, "dfm")->status);
}

TEST_WITH(the_object_names_nodes_without_an_answer, set_up, tear_down)
{
        _cleanup_(statuses_fini) struct statuses s;
        struct error e = {};
        json_t *o;

        serve(&t.servers[0], "dfm", 200, "{\"node\":\"dfm\",\"state\":\"ready\"}");
        assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
        assert_int_equal(statuses_ask(&s, LIMIT_NS), 0);
        o = node_status_to_json(find(&s, "dfm"));
        assert_json(o, "{'reachable': true, 'problem': null}");
        assert_non_null(json_object_get(o, "state"));
        json_decref(o);
        assert_null(json_object_get(find(&s, "dfm")->status, "reachable"));
        o = node_status_to_json(find(&s, "sfi2"));
        assert_json(o, "{'reachable': false, 'role': 'sfi', 'node': 'sfi2'}");
        assert_string_equal(json_string_value(json_object_get(o, "problem")), find(&s, "sfi2")->problem);
        json_decref(o);
}

static void wait_until_pending(struct statuses_watch *w, struct loop *loop, size_t n)
{
        uint64_t until_ns = clock_now_ns() + LIMIT_NS;

        while (statuses_watch_pending(w, 0) != n) {
                assert_true(clock_now_ns() < until_ns);
                assert_int_equal(loop_wait(loop, until_ns), 0);
        }
}

/* ros1 accepts connections and says nothing, as a stopped process does. */
TEST_WITH(a_silent_node_delays_no_other, set_up, tear_down)
{
        struct statuses_watch *w;
        struct node_status *dfm, *ros;
        struct loop *loop;
        _cleanup_(statuses_fini) struct statuses s;
        struct error e = {};
        uint64_t now_ns = clock_now_ns(), asked_ns;
        char path[128];

        serve(&t.servers[0], "dfm", 200, "{\"node\":\"dfm\",\"state\":\"ready\"}");
        snprintf(path, sizeof path, "%s/ros1", t.folder);
        assert_int_equal(local_listener_open(&t.servers[1].listener, path, &e), 0);
        assert_int_equal(loop_new(&loop), 0);
        assert_int_equal(statuses_init(&s, t.scenario, &e), 0);
        assert_int_equal(statuses_watch_new(&w, &s, loop, LIMIT_NS), 0);
        dfm = find(&s, "dfm");
        ros = find(&s, "ros1");
        assert_true(statuses_watch_deadline_ns(w) == NEVER_NS);
        statuses_watch_ask(w, now_ns);
        wait_until_pending(w, loop, 1);
        assert_non_null(dfm->status);
        assert_true(dfm->answered_ns >= now_ns && dfm->asked_ns == 0);
        assert_true(ros->asked_ns >= now_ns && ros->answered_ns == 0 && ros->problem[0] == '\0');
        assert_non_null(strstr(find(&s, "sfi2")->problem, "No such file or directory"));
        assert_true(statuses_watch_deadline_ns(w) == ros->asked_ns + LIMIT_NS);
        /* The next look has a request of its own for all but ros1. */
        asked_ns = ros->asked_ns;
        now_ns = clock_now_ns();
        t.servers[0].text = "{\"node\":\"dfm\",\"state\":\"running\"}";
        statuses_watch_ask(w, now_ns);
        assert_int_equal(statuses_watch_pending(w, now_ns), 1);
        wait_until_pending(w, loop, 1);
        assert_int_equal(statuses_watch_pending(w, now_ns), 0);
        assert_string_equal(json_string_value(json_object_get(dfm->status, "state")), "running");
        assert_true(ros->asked_ns == asked_ns);
        statuses_watch_expire(w, asked_ns + LIMIT_NS - 1);
        assert_int_equal(statuses_watch_pending(w, 0), 1);
        statuses_watch_expire(w, asked_ns + LIMIT_NS);
        assert_int_equal(statuses_watch_pending(w, 0), 0);
        assert_non_null(strstr(ros->problem, "Connection timed out"));
        assert_true(ros->asked_ns == 0);
        /* The end comes in the middle of a request. */
        statuses_watch_ask(w, clock_now_ns());
        assert_true(ros->asked_ns > 0);
        statuses_watch_free(w);
        assert_true(ros->asked_ns == 0);
        loop_free(loop);
}

TEST_WITH(a_scenario_without_places_is_refused, set_up, tear_down)
{
        _cleanup_(statuses_fini) struct statuses s;
        struct error e = {};

        t.scenario->metrics.kind = METRICS_NONE;
        assert_int_equal(statuses_init(&s, t.scenario, &e), -EINVAL);
        assert_non_null(strstr(e.message, "metrics.listen: the nodes serve no status"));
        assert_string_equal(e.location, t.scenario->path);
}
