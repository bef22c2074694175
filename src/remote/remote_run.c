/* A run of event building by nodes that stand by: the order, what each of them answers, and one report of
 * all. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/conf/keys.h"
#include "evb/launch/counters_json.h"
#include "evb/launch/load.h"
#include "evb/launch/run.h"
#include "remote_internal.h"

/* To start, to hear of each other, and to answer. */
#define BESIDE_NS (10 * NS_PER_S)
#define CPU_SECONDS_MAX 1e9
#define EXIT_NO_PRIVILEGE 77

/* One run: what the summary is made from, as if the nodes had been our children. */
struct remote_run {
        struct remote *remote;
        struct launch launch;
        struct launch_options options;
        size_t *nodes; /* of the run, in the remote's scenario */
        bool *answered;
        bool failed; /* what comes out is no figure of anything */
};

static struct child *child_of(struct remote_run *run, size_t node, size_t *ret_index)
{
        for (size_t i = 0; i < run->launch.n_children; i++) {
                if (run->nodes[i] == node) {
                        *ret_index = i;
                        return &run->launch.children[i];
                }
        }
        return NULL;
}

static void stop_all(struct remote_run *run)
{
        remote_order(run->remote, run->nodes, run->launch.n_children, json_pack("{s:s}", "kind", "stop"));
}

/* Without one of them it is not the run that was meant: the others need not go on. */
static void fail(struct remote_run *run)
{
        if (!run->failed)
                stop_all(run);
        run->failed = true;
}

/* Bounded: a node may send anything. */
static struct timeval cpu_time(double seconds)
{
        seconds = seconds > 0 ? MIN(seconds, CPU_SECONDS_MAX) : 0;
        return (struct timeval){.tv_sec = (time_t)seconds,
                                .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
}

static void take_result(struct remote_run *run, struct child *c, const json_t *answer)
{
        struct histogram shares;
        json_t *report = json_object_get(answer, "report");

        c->status = (int)json_integer_value(json_object_get(answer, "status"));
        c->usage.ru_utime = cpu_time(json_number_value(json_object_get(answer, "cpu_seconds")));
        c->usage.ru_maxrss = (long)(json_integer_value(json_object_get(answer, "peak_rss_bytes")) / 1024);
        if (histogram_from_json(&shares, json_object_get(answer, "cpu_shares")) >= 0)
                histogram_merge(&run->launch.cpu_shares[c->node->role], &shares);
        c->report = json_is_object(report) ? json_dumps(report, JSON_COMPACT) : NULL;
        c->report_bytes = c->report ? strlen(c->report) : 0;
        /* Unknown counters are not 0: a run without them has no figures. */
        if (counters_from_json(c->stats, json_object_get(answer, "page")) < 0) {
                log_error("%s sent counters that are not valid", c->node->name);
                fail(run);
        }
}

/* Those that were stopped, perhaps while they still waited for the run to begin, are not to blame. */
static void judge_end(struct remote_run *run, const struct child *c)
{
        if (run->failed)
                return;
        if (WIFSIGNALED(c->status))
                log_error("%s was killed by signal %d (%s)", c->node->name, WTERMSIG(c->status),
                          strsignal(WTERMSIG(c->status)));
        else if (child_state(c) < NODE_RUNNING && WEXITSTATUS(c->status) == EXIT_NO_PRIVILEGE)
                log_error("%s could not take part: a privilege is missing%s; its own log says which",
                          c->node->name,
                          c->node->role == ROLE_ROS ? " (a ROS that shapes needs evb-ros-shaping.conf)" : "");
        else if (child_state(c) < NODE_RUNNING)
                log_error("%s could not take part: status %d; its own log says why", c->node->name,
                          WEXITSTATUS(c->status));
        else
                return;
        fail(run);
}

static void answered(void *ctx, size_t node, const json_t *answer)
{
        struct remote_run *run = ctx;
        const char *state = json_string_value(json_object_get(answer, "state"));
        char why[TALK_TEXT_MAX_BYTES];
        struct child *c;
        size_t i;

        c = child_of(run, node, &i);
        if (!c || !state || run->answered[i])
                return;
        if (strcmp(state, "refused") == 0) {
                log_error("%s refused: %s", c->node->name,
                          json_connection_text(json_object_get(answer, "why"), why, sizeof why));
                fail(run);
        } else if (strcmp(state, "ended") == 0) {
                take_result(run, c, answer);
                judge_end(run, c);
        } else
                return;
        run->answered[i] = true;
}

/* Nothing more is known of it. */
static void left(void *ctx, size_t node)
{
        struct remote_run *run = ctx;
        struct child *c;
        size_t i;

        c = child_of(run, node, &i);
        if (!c || run->answered[i])
                return;
        log_error("%s has gone in the middle of a run", c->node->name);
        run->answered[i] = true;
        fail(run);
}

static bool all_answered(void *ctx)
{
        const struct remote_run *run = ctx;
        bool all = true;

        for (size_t i = 0; i < run->launch.n_children; i++)
                all &= run->answered[i];
        return all;
}

static void give_order(struct remote_run *run, const char *const *settings, size_t n)
{
        const struct remote *r = run->remote;
        json_t *all = json_array();
        char number[40];

        /* What is local to a machine is our own business only. */
        for (size_t i = 0; i < r->n_settings; i++) {
                if (!scenario_setting_is_local(r->settings[i]))
                        json_array_append_new(all, json_string(r->settings[i]));
        }
        for (size_t i = 0; i < n; i++)
                json_array_append_new(all, json_string(settings[i]));
        /* What is under way from runs before is foreign to this one. */
        snprintf(number, sizeof number, "run.number=%u",
                 (unsigned)(clock_utc_ns() / NS_PER_MS % UINT32_MAX) | 1);
        json_array_append_new(all, json_string(number));
        remote_order(run->remote, run->nodes, run->launch.n_children,
                     json_pack("{s:s, s:I, s:o}", "kind", "run", "job", r->job, "settings", all));
}

static int make(struct remote_run *run, const char *const *settings, size_t n)
{
        const struct scenario *s = run->launch.scenario;
        uint64_t end_ns = launch_drain_ns(s) + BESIDE_NS + s->dfm.node_timeout_ns;
        int r = remote_wait_for(run->remote, run->nodes, run->launch.n_children);

        if (r < 0)
                return r;
        run->remote->job++;
        run->remote->answered = answered;
        run->remote->left = left;
        run->remote->ctx = run;
        run->launch.start_ns = clock_now_ns();
        give_order(run, settings, n);
        r = remote_wait(run->remote, all_answered, run,
                        s->scenario.duration_ns > 0 ? clock_now_ns() + s->scenario.duration_ns + end_ns
                                                    : NEVER_NS);
        if (r == -ETIMEDOUT) {
                log_warning("the run does not end by itself: stopped");
                stop_all(run);
                r = remote_wait(run->remote, all_answered, run, clock_now_ns() + end_ns);
        }
        run->launch.end_ns = clock_now_ns();
        run->remote->answered = NULL;
        run->remote->left = NULL;
        for (size_t i = 0; r == -ETIMEDOUT && i < run->launch.n_children; i++) {
                if (!run->answered[i])
                        log_error("%s does not answer", run->launch.children[i].node->name);
        }
        if (r < 0)
                return log_error_errno(r, "waiting for the nodes' answers: %m");
        if (run->failed)
                return -ECANCELED;
        /* Started all, and none of them could be heard: nothing was measured. */
        if (stats_get(&launch_dfm(&run->launch)->stats->triggers) == 0)
                return log_error_errno(ENODATA,
                                       "a run without a single trigger: do packets of port %llu and %llu, "
                                       "and of group %s, reach all nodes?",
                                       (unsigned long long)s->network.control_port,
                                       (unsigned long long)s->network.data_port, s->network.control_group);
        return 0;
}

static json_t *report_of(struct remote_run *run)
{
        char *text = NULL;
        size_t size = 0;
        json_t *report = NULL;

        run->options.json = open_memstream(&text, &size);
        if (!run->options.json)
                return NULL;
        (void)summary_write(&run->launch);
        if (fclose(run->options.json) == 0)
                report = json_loadb(text, size, JSON_DISABLE_EOF_CHECK, NULL);
        free(text);
        return report;
}

struct scenario *remote_load(const struct remote *r, const char *const *settings, size_t n)
{
        _cleanup_free_ const char **all = calloc(r->n_settings + n + 1, sizeof *all);
        char why[LOAD_WHY_MAX_BYTES];
        struct scenario *s;

        if (!all) {
                (void)log_error_errno(ENOMEM, "%s: %m", r->scenario->path);
                return NULL;
        }
        memcpy(all, r->settings, r->n_settings * sizeof *all);
        memcpy(all + r->n_settings, settings, n * sizeof *all);
        s = lab_load_scenario(r->scenario->path, all, r->n_settings + n, why, sizeof why);
        if (!s)
                log_error("%s", why);
        return s;
}

static int prepare(struct remote_run *run, struct remote *r, const struct scenario *s)
{
        struct launch *l = &run->launch;

        *run = (struct remote_run){.remote = r, .launch = {.scenario = s}};
        l->options = &run->options;
        for (enum node_role role = ROLE_DFM; role <= ROLE_SFI; role++)
                histogram_init(&l->cpu_shares[role]);
        l->children = calloc(s->n_nodes, sizeof *l->children);
        run->nodes = calloc(s->n_nodes, sizeof *run->nodes);
        run->answered = calloc(s->n_nodes, sizeof *run->answered);
        if (!l->children || !run->nodes || !run->answered)
                return -ENOMEM;
        for (size_t i = 0; i < s->n_nodes; i++) {
                struct child *c = &l->children[l->n_children++];

                run->nodes[i] = remote_node(r, s->nodes[i].name);
                c->node = &s->nodes[i];
                c->stats = calloc(1, sizeof *c->stats);
                if (!c->stats)
                        return -ENOMEM;
                if (run->nodes[i] == SIZE_MAX)
                        return log_error_errno(ESTALE, "%s has a node %s now that it had not when we began",
                                               s->path, c->node->name);
        }
        return 0;
}

static void clean_up(struct remote_run *run)
{
        for (size_t i = 0; i < run->launch.n_children; i++) {
                free(run->launch.children[i].stats);
                free(run->launch.children[i].report);
        }
        free(run->launch.children);
        free(run->nodes);
        free(run->answered);
}

json_t *remote_run(struct remote *r, const char *const *settings, size_t n)
{
        _cleanup_free_ struct scenario *s = remote_load(r, settings, n);
        struct remote_run run = {};
        json_t *report = NULL;

        if (!s)
                return NULL;
        if (prepare(&run, r, s) >= 0 && make(&run, settings, n) >= 0)
                report = report_of(&run);
        clean_up(&run);
        return report;
}
