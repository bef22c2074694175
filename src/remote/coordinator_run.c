/* Runs event building on standby nodes: sends the command, collects the answers and makes one report. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/keys.h"
#include "run/counters_json.h"
#include "run/launched_run.h"
#include "run/scenario_load.h"
#include "run/summary.h"
#include "coordinator_internal.h"

/* Time to start, to find each other and to answer. */
#define OVERHEAD_NS (10 * NS_PER_S)
#define CPU_SECONDS_MAX 1e9
#define EXIT_NO_PRIVILEGE 77

/* One run; `launch` presents the nodes to summary.c as if they were child processes. */
struct remote_run {
        struct coordinator *coordinator;
        struct launch launch;
        struct launch_options options;
        size_t *nodes; /* of the run, as indices into the coordinator's scenario */
        bool *answered;
        bool failed; /* the run gives no valid result */
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
        coordinator_command(run->coordinator, run->nodes, run->launch.n_children,
                            json_pack("{s:s}", "kind", "stop"));
}

/* Stops the other nodes: without one node the result is invalid. */
static void fail(struct remote_run *run)
{
        if (!run->failed)
                stop_all(run);
        run->failed = true;
}

/* Limits the value, which comes from the network. */
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
        /* A run with unknown counters has no valid result. */
        if (counters_from_json(c->stats, json_object_get(answer, "counters")) < 0) {
                log_error("%s sent invalid counters", c->node->name);
                fail(run);
        }
}

/* After a failure the other nodes were stopped, perhaps before the run began: their exit is no error. */
static void check_exit(struct remote_run *run, const struct child *c)
{
        if (run->failed)
                return;
        if (WIFSIGNALED(c->status))
                log_error("%s was killed by signal %d (%s)", c->node->name, WTERMSIG(c->status),
                          strsignal(WTERMSIG(c->status)));
        else if (child_state(c) < NODE_RUNNING && WEXITSTATUS(c->status) == EXIT_NO_PRIVILEGE)
                log_error("%s could not take part: a privilege is missing%s; see its log", c->node->name,
                          c->node->role == ROLE_ROS ? " (a ROS that shapes needs evb-ros-shaping.conf)" : "");
        else if (child_state(c) < NODE_RUNNING)
                log_error("%s could not take part: it exited with status %d; see its log", c->node->name,
                          WEXITSTATUS(c->status));
        else
                return;
        fail(run);
}

static void answered(void *ctx, size_t node, const json_t *answer)
{
        struct remote_run *run = ctx;
        const char *state = json_string_value(json_object_get(answer, "state"));
        char why[JSON_CONNECTION_TEXT_MAX_BYTES];
        struct child *c;
        size_t i;

        c = child_of(run, node, &i);
        if (!c || !state || run->answered[i])
                return;
        if (strcmp(state, "refused") == 0) {
                log_error("%s refused: %s", c->node->name,
                          json_connection_text(json_object_get(answer, "reason"), why, sizeof why));
                fail(run);
        } else if (strcmp(state, "ended") == 0) {
                take_result(run, c, answer);
                check_exit(run, c);
        } else
                return;
        run->answered[i] = true;
}

static void left(void *ctx, size_t node)
{
        struct remote_run *run = ctx;
        struct child *c;
        size_t i;

        c = child_of(run, node, &i);
        if (!c || run->answered[i])
                return;
        log_error("%s disconnected during a run", c->node->name);
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

static void send_run(struct remote_run *run, const char *const *settings, size_t n)
{
        const struct coordinator *c = run->coordinator;
        json_t *all = json_array();
        char number[40];

        /* Settings that are local to this machine do not apply to others. */
        for (size_t i = 0; i < c->n_settings; i++) {
                if (!scenario_setting_is_local(c->settings[i]))
                        json_array_append_new(all, json_string(c->settings[i]));
        }
        for (size_t i = 0; i < n; i++)
                json_array_append_new(all, json_string(settings[i]));
        /* No operator starts the runs of measurements. */
        json_array_append_new(all, json_string("run.start=auto"));
        /* A new run number makes packets of earlier runs foreign to this one. */
        snprintf(number, sizeof number, "run.number=%u",
                 (unsigned)(clock_utc_ns() / NS_PER_MS % UINT32_MAX) | 1);
        json_array_append_new(all, json_string(number));
        coordinator_command(run->coordinator, run->nodes, run->launch.n_children,
                            json_pack("{s:s, s:I, s:o}", "kind", "run", "job", c->job, "settings", all));
}

static int execute(struct remote_run *run, const char *const *settings, size_t n)
{
        const struct scenario *s = run->launch.scenario;
        uint64_t end_ns = launch_drain_ns(s) + OVERHEAD_NS + s->dfm.node_timeout_ns;
        int r = coordinator_wait_for_nodes(run->coordinator, run->nodes, run->launch.n_children);

        if (r < 0)
                return r;
        run->coordinator->job++;
        run->coordinator->answered = answered;
        run->coordinator->left = left;
        run->coordinator->ctx = run;
        run->launch.start_ns = clock_now_ns();
        send_run(run, settings, n);
        r = coordinator_wait(run->coordinator, all_answered, run,
                             s->scenario.duration_ns > 0 ? clock_now_ns() + s->scenario.duration_ns + end_ns
                                                         : NEVER_NS);
        if (r == -ETIMEDOUT) {
                log_warning("stopping the run: it exceeds its duration");
                stop_all(run);
                r = coordinator_wait(run->coordinator, all_answered, run, clock_now_ns() + end_ns);
        }
        run->launch.end_ns = clock_now_ns();
        run->coordinator->answered = NULL;
        run->coordinator->left = NULL;
        for (size_t i = 0; r == -ETIMEDOUT && i < run->launch.n_children; i++) {
                if (!run->answered[i])
                        log_error("%s did not answer", run->launch.children[i].node->name);
        }
        if (r < 0)
                return log_error_errno(r, "the run failed: %m");
        if (run->failed)
                return -ECANCELED;
        /* All nodes ran, but their messages did not reach each other. */
        if (stats_get(&launch_dfm(&run->launch)->stats->triggers) == 0)
                return log_error_errno(ENODATA,
                                       "the run accepted no trigger; check that packets to ports %llu and %u "
                                       "and to group %s reach all nodes",
                                       (unsigned long long)s->network.control_port, scenario_data_port(s),
                                       s->network.control_group);
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

struct scenario *coordinator_load(const struct coordinator *c, const char *const *settings, size_t n)
{
        _cleanup_free_ const char **all = calloc(c->n_settings + n + 1, sizeof *all);
        struct scenario *s = NULL;
        struct error e = {};
        char text[ERROR_TEXT_MAX];

        if (!all) {
                (void)log_error_errno(ENOMEM, "%s: %m", c->scenario->path);
                return NULL;
        }
        memcpy(all, c->settings, c->n_settings * sizeof *all);
        memcpy(all + c->n_settings, settings, n * sizeof *all);
        if (scenario_load_one(&s, c->scenario->path, all, c->n_settings + n, &e) < 0)
                log_error("%s", error_format(&e, text));
        return s;
}

static int prepare(struct remote_run *run, struct coordinator *coordinator, const struct scenario *s)
{
        struct launch *l = &run->launch;

        *run = (struct remote_run){.coordinator = coordinator, .launch = {.scenario = s}};
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

                run->nodes[i] = coordinator_find_node(coordinator, s->nodes[i].name);
                c->node = &s->nodes[i];
                c->stats = calloc(1, sizeof *c->stats);
                if (!c->stats)
                        return -ENOMEM;
                if (run->nodes[i] == SIZE_MAX)
                        return log_error_errno(ESTALE,
                                               "%s: node %s was added while evb lab ran; start evb lab again",
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

json_t *coordinator_run(struct coordinator *c, const char *const *settings, size_t n)
{
        _cleanup_free_ struct scenario *s = coordinator_load(c, settings, n);
        struct remote_run run = {};
        json_t *report = NULL;

        if (!s)
                return NULL;
        if (prepare(&run, c, s) >= 0 && execute(&run, settings, n) >= 0)
                report = report_of(&run);
        clean_up(&run);
        return report;
}
