/* Turns a command into a child process or flows, and their results into answers. */
#include "standby_job.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/util.h"
#include "conf/keys.h"
#include "conf/standby_rules.h"
#include "run/counters_json.h"
#include "run/launched_run.h"
#include "run/scenario_load.h"
#include "net/json_connection.h"

#define SETTINGS_MAX 128u
/* Interval at which the state of flows is polled. */
#define FLOWS_POLL_NS (2 * NS_PER_MS)
/* A command may set long timeouts. Its run is killed after this time, or after the drain time of the node's
 * own scenario if that is longer. */
#define STOP_MAX_NS (60 * NS_PER_S)

void job_init(struct job *j, const struct standby_options *options, const struct scenario_node *self,
              struct loop *loop, void (*answer)(void *ctx, json_t *answer), void *ctx)
{
        *j = (struct job){.options = options,
                          .self = self,
                          .loop = loop,
                          .answer = answer,
                          .ctx = ctx,
                          .kill_ns = NEVER_NS};
}

/* Ends the previous job. */
static void clear(struct job *j)
{
        standby_flows_end(&j->flows);
        if (j->child.node)
                child_fini(&j->child);
        j->meter = cpu_meter_free(j->meter);
        free(j->scenario);
        j->scenario = NULL;
}

void job_fini(struct job *j)
{
        clear(j);
        json_decref(j->next);
        j->next = NULL;
}

bool job_is_running(const struct job *j)
{
        return j->child.running || j->flows.active;
}

const char *job_status(const struct job *j)
{
        return !job_is_running(j)        ? "idle"
               : j->flows.active         ? "flows active"
               : j->press == JOB_RUNNING ? "run active"
                                         : "run stopping";
}

uint64_t job_deadline_ns(const struct job *j)
{
        return j->flows.active    ? loop_now_ns(j->loop) + FLOWS_POLL_NS
               : j->child.running ? MIN(j->kill_ns, cpu_meter_deadline_ns(j->meter))
                                  : NEVER_NS;
}

/* A reason may quote a file or a command and end within a character. Replaces non-ASCII bytes if the text is
 * not valid UTF-8. */
static json_t *text_to_json(const char *text)
{
        json_t *json = json_string(text);
        char ascii[ERROR_TEXT_MAX];
        size_t n = 0;

        if (json)
                return json;
        for (; text[n] && n + 1 < sizeof ascii; n++)
                ascii[n] = (signed char)text[n] < 0 ? '?' : text[n];
        ascii[n] = '\0';
        return json_string(ascii);
}

static void refuse(struct job *j, json_int_t id, const char *why)
{
        log_limited(LOG_LEVEL_WARNING, NULL, "refused a command: %s", why);
        j->answer(j->ctx,
                  json_pack("{s:I, s:s, s:o}", "job", id, "state", "refused", "reason", text_to_json(why)));
}

static void refuse_error(struct job *j, json_int_t id, const struct error *e)
{
        char text[ERROR_TEXT_MAX];

        refuse(j, id, error_format(e, text));
}

static void run_ended(void *ctx, struct child *c)
{
        struct job *j = ctx;
        json_t *report = c->report_bytes > 0
                                 ? json_loadb(c->report, c->report_bytes, JSON_DISABLE_EOF_CHECK, NULL)
                                 : NULL;
        const json_t *reason;
        size_t i;

        json_array_foreach(json_object_get(report, "reasons"), i, reason)
                log_error("run %lld: %s", (long long)j->id, json_string_value(reason));
        log_info("run %lld ended with %s %d", (long long)j->id, WIFEXITED(c->status) ? "status" : "signal",
                 WIFEXITED(c->status) ? WEXITSTATUS(c->status) : WTERMSIG(c->status));
        /* The answer consumes the report. */
        j->answer(j->ctx, json_pack("{s:I, s:s, s:i, s:f, s:o, s:I, s:o, s:o?}", "job", j->id, "state",
                                    "ended", "status", c->status, "cpu_seconds", child_cpu_seconds(c),
                                    "cpu_shares", histogram_to_json(cpu_meter_shares(j->meter, 0)),
                                    "peak_rss_bytes", (json_int_t)c->usage.ru_maxrss * 1024, "counters",
                                    counters_to_json(c->stats), "report", report));
        /* The next job frees the child, which must not free itself in its own callback. */
}

/* Fails unless the node's own scenario permits this setting in a command. */
static int check_permission(const struct job *j, const char *text, struct error *e)
{
        const struct scenario *own = j->options->scenario;
        const char *permission = scenario_setting_permission(text);

        if (scenario_setting_is_local(text))
                return error_set(e, -EACCES, "setting \"%.100s\" is local: no command may change it", text);
        if (!permission || scenario_allows(own, permission) || !scenario_setting_changes(own, text))
                return 0;
        return error_set(e, -EACCES,
                         "setting \"%.100s\" needs the permission \"%s\": add it to standby.allow in the "
                         "scenario of node %s",
                         text, permission, j->self->name);
}

/* Lists the node's own settings, then the command's. Returns their number. */
static ssize_t merge_settings(const struct job *j, const json_t *settings, const char **all, size_t max,
                              struct error *e)
{
        size_t n = j->options->n_settings, i;
        const json_t *each;
        int r;

        if (!json_is_array(settings) || n + json_array_size(settings) > max)
                return error_set(e, -EINVAL, "settings: expected an array of at most %zu", max - n);
        if (n > 0)
                memcpy(all, j->options->settings, n * sizeof *all);
        json_array_foreach(settings, i, each)
        {
                const char *text = json_string_value(each);

                if (!text || strlen(text) != json_string_length(each))
                        return error_set(e, -EINVAL,
                                         "settings: expected texts of the form SECTION.KEY=VALUE");
                r = check_permission(j, text, e);
                if (r < 0)
                        return r;
                all[n++] = text;
        }
        return (ssize_t)n;
}

static int load(struct scenario **ret, const struct job *j, const char *const *settings, size_t n,
                struct error *e)
{
        _cleanup_free_ struct scenario *s = NULL;
        int r = scenario_load_one(&s, j->options->config, settings, n, e);

        if (r < 0)
                return r;
        if (!scenario_find(s, j->self->name))
                return error_set(e, -ENOENT, "node %s does not take part in this run", j->self->name);
        *ret = take_ptr(s);
        return 0;
}

static void begin_run(struct job *j, json_int_t id, const json_t *command)
{
        const char *settings[SETTINGS_MAX];
        struct error e = {};
        ssize_t n = merge_settings(j, json_object_get(command, "settings"), settings, SETTINGS_MAX, &e);
        struct scenario *s = NULL;
        struct child_command start = {.program = "/proc/self/exe",
                                      .config = j->options->config,
                                      .settings = settings,
                                      .n_settings = (size_t)MAX(n, 0),
                                      .namespace = -1};

        if (n < 0 || load(&s, j, settings, (size_t)n, &e) < 0) {
                refuse_error(j, id, &e);
                return;
        }
        clear(j);
        j->id = id;
        j->scenario = s;
        j->press = JOB_RUNNING;
        j->kill_ns = NEVER_NS;
        j->child = (struct child){.node = j->self, .loop = j->loop, .ended = run_ended, .ctx = j};
        if (cpu_meter_new(&j->meter, 1, 1) < 0 || child_start(&j->child, &start) < 0) {
                clear(j);
                refuse(j, id, "cannot start the node; see its log");
                return;
        }
        (void)cpu_meter_add(j->meter, j->child.pid, 0);
        log_info("run %lld started", (long long)id);
}

static void begin_flows(struct job *j, json_int_t id, const json_t *command)
{
        struct error e = {};

        clear(j);
        j->id = id;
        if (standby_flows_begin(&j->flows, j->options->scenario, j->self, command, &e) < 0)
                refuse_error(j, id, &e);
}

/* Removes shaping that a killed run or standby node left, so that it does not affect the next job. */
static void unshape(const struct job *j)
{
        char device[IF_NAMESIZE] = "";

        if (flow_shaping_device(j->self, device) >= 0)
                flow_shaping_clear(device);
}

/* A command that arrives while a run stops waits for its end; the coordinator need not know of that. */
static void start_job(struct job *j, json_int_t id, const char *kind, json_t *command)
{
        if (strcmp(kind, "run") != 0 && strcmp(kind, "flows") != 0)
                refuse(j, id, "unknown kind of command; expected run, flows, state or stop");
        else if (j->child.running && j->press != JOB_RUNNING && !j->next)
                j->next = json_incref(command);
        else if (job_is_running(j))
                refuse(j, id, "the previous command has not finished");
        else {
                unshape(j);
                if (strcmp(kind, "run") == 0)
                        begin_run(j, id, command);
                else
                        begin_flows(j, id, command);
        }
}

void job_command(struct job *j, json_t *command, uint64_t now_ns)
{
        const char *kind = json_string_value(json_object_get(command, "kind"));
        json_int_t id = json_integer_value(json_object_get(command, "job"));

        if (kind && strcmp(kind, "stop") == 0)
                job_stop(j, now_ns);
        else if (kind && strcmp(kind, "state") == 0) {
                if (id == j->id)
                        standby_flows_set(&j->flows,
                                          (int)json_integer_value(json_object_get(command, "state")));
        } else
                start_job(j, id, kind ?: "", command);
}

static json_t *take_next(struct job *j)
{
        json_t *next = j->next;

        j->next = NULL;
        return next;
}

void job_stop(struct job *j, uint64_t now_ns)
{
        json_t *next = take_next(j);

        if (next)
                refuse(j, json_integer_value(json_object_get(next, "job")), "stopped before it started");
        json_decref(next);
        standby_flows_end(&j->flows);
        if (!j->child.running || j->press != JOB_RUNNING)
                return;
        j->press = JOB_STOPPING;
        j->kill_ns = now_ns + MIN(launch_drain_ns(j->scenario),
                                  MAX(launch_drain_ns(j->options->scenario), STOP_MAX_NS));
        kill(j->child.pid, SIGTERM);
}

static void report_flows(struct job *j)
{
        struct error e = {};
        json_t *answer;

        switch (standby_flows_turn(&j->flows)) {
        case FLOWS_READY:
                j->answer(j->ctx, json_pack("{s:I, s:s}", "job", j->id, "state", "ready"));
                break;
        case FLOWS_QUIET:
                j->answer(j->ctx, json_pack("{s:I, s:s}", "job", j->id, "state", "quiet"));
                break;
        case FLOWS_ENDED:
                if (standby_flows_error(&j->flows, &e) < 0)
                        refuse_error(j, j->id, &e);
                else {
                        answer = json_pack("{s:I, s:s}", "job", j->id, "state", "ended");
                        standby_flows_add_result(&j->flows, answer);
                        j->answer(j->ctx, answer);
                }
                standby_flows_end(&j->flows);
                break;
        case FLOWS_UNCHANGED:
                break;
        }
}

void job_turn(struct job *j, uint64_t now_ns)
{
        report_flows(j);
        if (!job_is_running(j) && j->next) {
                json_t *next = take_next(j);

                job_command(j, next, now_ns);
                json_decref(next);
        }
        if (j->child.running)
                cpu_meter_turn(j->meter, now_ns, child_state(&j->child) == NODE_RUNNING);
        if (!j->child.running || now_ns < j->kill_ns)
                return;
        j->press = JOB_KILLED;
        j->kill_ns = NEVER_NS;
        kill(j->child.pid, SIGKILL);
}
