/* From an order to a child process or to ends of streams, and from their end to an answer. */
#include "standby_job.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/conf/keys.h"
#include "evb/conf/standby.h"
#include "evb/launch/counters_json.h"
#include "evb/launch/load.h"
#include "evb/launch/run.h"
#include "json_connection.h"

#define SETTINGS_MAX 128u
/* How often the page of streams is looked at. */
#define LOOK_NS (2 * NS_PER_MS)
/* How long a run that an order gave long times may take to end: at most this, or what our own scenario
 * permits. */
#define STOP_MOST_NS (60 * NS_PER_S)

void job_init(struct job *j, const struct standby_options *options, const struct scenario_node *self,
              struct loop *loop, void (*answer)(void *ctx, json_t *what), void *ctx)
{
        *j = (struct job){.options = options,
                          .self = self,
                          .loop = loop,
                          .answer = answer,
                          .ctx = ctx,
                          .kill_ns = NEVER_NS};
}

/* What was ordered last, which has ended or is to. */
static void clear(struct job *j)
{
        streams_end(&j->streams);
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
        return j->child.running || j->streams.active;
}

const char *job_status(const struct job *j)
{
        return !job_is_running(j)     ? "no run"
               : j->streams.active    ? "streams go"
               : j->press == JOB_GOES ? "a run goes"
                                      : "a run ends";
}

uint64_t job_deadline_ns(const struct job *j)
{
        return j->streams.active  ? loop_now_ns(j->loop) + LOOK_NS
               : j->child.running ? MIN(j->kill_ns, cpu_meter_deadline_ns(j->meter))
                                  : NEVER_NS;
}

/* A reason may quote bytes of a file or an order, and end in the middle of a character: what is no UTF-8 is
 * told without. */
static json_t *text_to_json(const char *text)
{
        json_t *as_it_is = json_string(text);
        char ascii[LOAD_WHY_MAX_BYTES];
        size_t n = 0;

        if (as_it_is)
                return as_it_is;
        for (; text[n] && n + 1 < sizeof ascii; n++)
                ascii[n] = (signed char)text[n] < 0 ? '?' : text[n];
        ascii[n] = '\0';
        return json_string(ascii);
}

static void refuse(struct job *j, json_int_t id, const char *why)
{
        char text[LOAD_WHY_MAX_BYTES];

        /* The reason quotes the order. */
        snprintf(text, sizeof text, "%s", why);
        log_warning("refused an order: %s", json_connection_printable(text));
        j->answer(j->ctx,
                  json_pack("{s:I, s:s, s:o}", "job", id, "state", "refused", "why", text_to_json(why)));
}

static void run_ended(void *ctx, struct child *c)
{
        struct job *j = ctx;
        json_t *report = c->report_bytes > 0
                                 ? json_loadb(c->report, c->report_bytes, JSON_DISABLE_EOF_CHECK, NULL)
                                 : NULL;

        j->answer(j->ctx, json_pack("{s:I, s:s, s:i, s:f, s:o, s:I, s:o, s:o?}", "job", j->id, "state",
                                    "ended", "status", c->status, "cpu_seconds", child_cpu_seconds(c),
                                    "cpu_shares", histogram_to_json(cpu_meter_shares(j->meter, 0)),
                                    "peak_rss_bytes", (json_int_t)c->usage.ru_maxrss * 1024, "page",
                                    counters_to_json(c->stats), "report", report));
        const json_t *reason;
        size_t i;

        json_array_foreach(json_object_get(report, "reasons"), i, reason)
                log_error("run %lld: %s", (long long)j->id, json_string_value(reason));
        log_info("run %lld ended with %s %d", (long long)j->id, WIFEXITED(c->status) ? "status" : "signal",
                 WIFEXITED(c->status) ? WEXITSTATUS(c->status) : WTERMSIG(c->status));
        /* The child is cleared away before the next run, not in its own call. */
}

/* Whether this node's own scenario permits a command to make this setting; if not, `why`. */
static bool is_allowed(const struct job *j, const char *text, char *why, size_t size)
{
        const struct scenario *own = j->options->scenario;
        const char *permission = scenario_setting_permission(text);

        if (scenario_setting_is_local(text)) {
                snprintf(why, size, "setting \"%.100s\" is local: no command may change it", text);
                return false;
        }
        if (!permission || scenario_allows(own, permission) || !scenario_setting_changes(own, text))
                return true;
        snprintf(why, size,
                 "setting \"%.100s\" needs the permission \"%s\": add it to standby.allow in the scenario of "
                 "node %s",
                 text, permission, j->self->name);
        return false;
}

/* Our own settings, then the order's. How many, or -EINVAL. */
static ssize_t gather(const struct job *j, const json_t *settings, const char **all, size_t max, char *why,
                      size_t size)
{
        size_t n = j->options->n_settings, i;
        const json_t *each;

        if (!json_is_array(settings) || n + json_array_size(settings) > max) {
                snprintf(why, size, "settings: allowed: an array of at most %zu", max - n);
                return -EINVAL;
        }
        memcpy(all, j->options->settings, n * sizeof *all);
        json_array_foreach(settings, i, each)
        {
                const char *text = json_string_value(each);

                if (!text || strlen(text) != json_string_length(each)) {
                        snprintf(why, size, "setting \"%.100s\" is local: no command may change it",
                                 text ?: "(no text)");
                        return -EINVAL;
                }
                if (!is_allowed(j, text, why, size))
                        return -EINVAL;
                all[n++] = text;
        }
        return (ssize_t)n;
}

static struct scenario *load(const struct job *j, const char *const *settings, size_t n, char *why,
                             size_t size)
{
        _cleanup_free_ struct scenario *s = lab_load_scenario(j->options->config, settings, n, why, size);

        if (s && !scenario_find(s, j->self->name)) {
                snprintf(why, size, "node %s takes no part in such a run", j->self->name);
                return NULL;
        }
        return take_ptr(s);
}

static void run(struct job *j, json_int_t id, const json_t *order)
{
        const char *settings[SETTINGS_MAX];
        char why[LOAD_WHY_MAX_BYTES];
        ssize_t n = gather(j, json_object_get(order, "settings"), settings, SETTINGS_MAX, why, sizeof why);
        struct scenario *s = n >= 0 ? load(j, settings, (size_t)n, why, sizeof why) : NULL;
        struct child_command command = {.program = "/proc/self/exe",
                                        .config = j->options->config,
                                        .settings = settings,
                                        .n_settings = (size_t)MAX(n, 0),
                                        .namespace = -1};

        if (!s) {
                refuse(j, id, why);
                return;
        }
        clear(j);
        j->id = id;
        j->scenario = s;
        j->press = JOB_GOES;
        j->kill_ns = NEVER_NS;
        j->child = (struct child){.node = j->self, .loop = j->loop, .ended = run_ended, .ctx = j};
        if (cpu_meter_new(&j->meter, 1, 1) < 0 || child_start(&j->child, &command) < 0) {
                clear(j);
                refuse(j, id, "the node cannot be started; its own log says why");
                return;
        }
        (void)cpu_meter_add(j->meter, j->child.pid, 0);
        log_info("run %lld begins", (long long)id);
}

static void begin_streams(struct job *j, json_int_t id, const json_t *order)
{
        char why[LOAD_WHY_MAX_BYTES] = "";

        clear(j);
        j->id = id;
        if (streams_begin(&j->streams, j->options->scenario, j->self, order, why, sizeof why) < 0)
                refuse(j, id, why);
}

/* Of a run, or a node that stood by, that was killed: what comes next begins with the device as it was. */
static void unshape(const struct job *j)
{
        char device[IF_NAMESIZE] = "";

        if (lab_device_of(j->self, device) >= 0)
                lab_unshape_device(device);
}

/* A run that is being stopped may take a moment, and who orders the next one need not know of it. */
static void order_job(struct job *j, json_int_t id, const char *kind, json_t *order)
{
        if (strcmp(kind, "run") != 0 && strcmp(kind, "streams") != 0)
                refuse(j, id, "an order of an unknown kind");
        else if (j->child.running && j->press != JOB_GOES && !j->next)
                j->next = json_incref(order);
        else if (job_is_running(j))
                refuse(j, id, "what was ordered before has not ended yet");
        else {
                unshape(j);
                if (strcmp(kind, "run") == 0)
                        run(j, id, order);
                else
                        begin_streams(j, id, order);
        }
}

void job_order(struct job *j, json_t *order, uint64_t now_ns)
{
        const char *kind = json_string_value(json_object_get(order, "kind"));
        json_int_t id = json_integer_value(json_object_get(order, "job"));

        if (kind && strcmp(kind, "stop") == 0)
                job_stop(j, now_ns);
        else if (kind && strcmp(kind, "state") == 0) {
                if (id == j->id)
                        streams_set(&j->streams, (int)json_integer_value(json_object_get(order, "state")));
        } else
                order_job(j, id, kind ?: "", order);
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
                refuse(j, json_integer_value(json_object_get(next, "job")), "stopped before it began");
        json_decref(next);
        streams_end(&j->streams);
        if (!j->child.running || j->press != JOB_GOES)
                return;
        j->press = JOB_TOLD_TO_END;
        j->kill_ns = now_ns + MIN(launch_drain_ns(j->scenario),
                                  MAX(launch_drain_ns(j->options->scenario), STOP_MOST_NS));
        kill(j->child.pid, SIGTERM);
}

static void tell_streams(struct job *j)
{
        char why[LOAD_WHY_MAX_BYTES];
        json_t *answer;

        switch (streams_turn(&j->streams)) {
        case STREAMS_READY:
                j->answer(j->ctx, json_pack("{s:I, s:s}", "job", j->id, "state", "ready"));
                break;
        case STREAMS_QUIET:
                j->answer(j->ctx, json_pack("{s:I, s:s}", "job", j->id, "state", "quiet"));
                break;
        case STREAMS_ENDED:
                if (flow_group_error(&j->streams.group) < 0) {
                        streams_tell_error(&j->streams, why, sizeof why);
                        refuse(j, j->id, why);
                } else {
                        answer = json_pack("{s:I, s:s}", "job", j->id, "state", "ended");
                        streams_add_result(&j->streams, answer);
                        j->answer(j->ctx, answer);
                }
                streams_end(&j->streams);
                break;
        case STREAMS_NOTHING:
                break;
        }
}

void job_turn(struct job *j, uint64_t now_ns)
{
        tell_streams(j);
        if (!job_is_running(j) && j->next) {
                json_t *next = take_next(j);

                job_order(j, next, now_ns);
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
