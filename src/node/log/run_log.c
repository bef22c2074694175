/* Writes the log lines about each run that an operator must find on each node. It only reads the counters of
 * the role and the core's account of the run. */
#include "run_log.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/strbuf.h"
#include "core/dfm.h"
#include "core/sfi.h"
#include "shape/model/layout.h"

/* Maximum number of ROSs named for partial events. */
#define NAMES_MAX 8

static bool has_done_anything(const struct node *n)
{
        const struct node_stats *s = n->stats;

        if (n->self->role == ROLE_DFM)
                return dfm_is_in_run(n->core);
        return stats_get(&s->fragments_sent) + stats_get(&s->events_assigned) > 0;
}

static const char *run_of(const struct node *n, char text[static SCENARIO_RUN_MAX])
{
        return scenario_run_name(n->scenario, n->run, text);
}

/* Returns the shaping that a ROS has installed; for other roles, the shaping in the scenario. */
static const char *shaping_of(const struct node *n)
{
        static const char *const names[] = {
                [QOS_NONE] = "none",       [QOS_AUTO] = "auto",       [QOS_HTB] = "htb",
                [QOS_HTB_TBF] = "htb+tbf", [QOS_CBQ_TBF] = "cbq+tbf", [QOS_SOCKET] = "socket",
                [QOS_EDT] = "edt",
        };

        if (n->self->role == ROLE_ROS)
                return tc_backend_name((enum tc_backend)stats_get(&n->stats->qos_backend));
        return names[n->scenario->qos.backend];
}

static void log_begin(struct node *n)
{
        const struct scenario *s = n->scenario;

        n->has_begun = true;
        log_id(LOG_LEVEL_INFO, LOG_ID_RUN_BEGUN,
               "run %u has begun: %s, %" PRIu64 " ROS%s, %" PRIu64 " SFI%s, %s over %s, shaping %s", n->run,
               s->scenario.name, s->ros.count, s->ros.count == 1 ? "" : "s", s->sfi.count,
               s->sfi.count == 1 ? "" : "s", s->scenario.mode == MODE_PUSH ? "push" : "pull",
               s->scenario.transport == TRANSPORT_UDP ? "UDP" : "TCP", shaping_of(n));
}

enum run_limit run_limit_reached(const struct node *n)
{
        const struct scenario *s = n->scenario;

        if (s->trigger.events > 0 && dfm_counts(n->core)->triggers >= s->trigger.events)
                return RUN_LIMIT_TRIGGERS;
        if (s->scenario.duration_ns > 0 &&
            dfm_age_ns(n->core, loop_now_ns(n->loop)) >= s->scenario.duration_ns)
                return RUN_LIMIT_DURATION;
        return RUN_LIMIT_NONE;
}

/* Logs why the DFM ended the run without a command. A failed output has a separate line. */
static void log_dfm_ends(const struct node *n)
{
        enum run_limit limit = run_limit_reached(n);
        const struct scenario *s = n->scenario;
        char time[QUANTITY_TEXT_MAX], run[SCENARIO_RUN_MAX];

        if (limit == RUN_LIMIT_TRIGGERS)
                log_id(LOG_LEVEL_INFO, LOG_ID_STOPPED,
                       "%s stops: it has all %" PRIu64 " triggers (trigger.events)", run_of(n, run),
                       s->trigger.events);
        else if (limit == RUN_LIMIT_DURATION)
                log_id(LOG_LEVEL_INFO, LOG_ID_STOPPED, "%s stops: %s have passed (scenario.duration)",
                       run_of(n, run), quantity_format_time(s->scenario.duration_ns, time));
        else
                log_id(LOG_LEVEL_INFO, LOG_ID_STOPPED, "%s stops", run_of(n, run));
}

void run_log_signal(const struct node *n, bool first)
{
        char text[LOOP_SIGNAL_TEXT_MAX];

        loop_describe_signal(n->loop, text);
        if (first)
                log_id(LOG_LEVEL_INFO, LOG_ID_STOPPED, "stopped by %s", text);
        else
                log_id(LOG_LEVEL_WARNING, LOG_ID_STOPPED, "stopped at once by %s", text);
}

void run_log_state(struct node *n, enum run_state was, enum run_state is)
{
        char run[SCENARIO_RUN_MAX];

        if (!n->has_begun && (is == RUN_RUNNING || (is > RUN_RUNNING && has_done_anything(n))))
                log_begin(n);
        if (was >= RUN_DRAINING || is < RUN_DRAINING || !n->has_begun || n->is_stopped)
                return;
        if (n->self->role == ROLE_DFM)
                log_dfm_ends(n);
        else
                log_id(LOG_LEVEL_INFO, LOG_ID_STOPPED, "the DFM %s stops %s",
                       scenario_node_of(n->scenario, ROLE_DFM, 0)->name, run_of(n, run));
}

/* A stall or a pause of the DFM itself has a line of its own. An error of the last run is repeated, because
 * lines about the next run have followed. */
static bool is_logged_elsewhere(const struct node *n)
{
        return strcmp(n->fault.node, n->self->name) == 0 &&
               (strcmp(n->fault.state, "stalled") == 0 || strcmp(n->fault.state, "paused") == 0);
}

void run_log_fault(struct node *n)
{
        const struct run_fault *f = &n->fault;
        bool was_logged = n->logged_fault.node[0];
        char run[SCENARIO_RUN_MAX];

        if (n->self->role != ROLE_DFM || n->stopped_ns > 0 || run_fault_is_same(f, &n->logged_fault))
                return;
        if (f->node[0] && is_logged_elsewhere(n))
                return;
        n->logged_fault = *f;
        if (f->node[0])
                log_limited(LOG_LEVEL_WARNING, LOG_FIELDS(.id = LOG_ID_FAULT, .peer = f->node), "%s: %s",
                            run_of(n, run), f->text);
        else if (was_logged && n->kind->state(n) <= RUN_RUNNING)
                log_limited(LOG_LEVEL_INFO, LOG_FIELDS(.id = LOG_ID_FAULT),
                            "%s: no node is at fault any more", run_of(n, run));
}

/* Logs "run 7 of beam partial: ros2 194, ros3 135": the number of missing fragments of each ROS, the largest
 * first. */
static void log_missing(const struct node *n)
{
        uint64_t missing[EVB_ROS_MAX];
        char text[512] = "", run[SCENARIO_RUN_MAX];
        struct strbuf b = strbuf_init(text, sizeof text);
        uint32_t left = 0;

        for (uint32_t i = 0; i < n->scenario->ros.count; i++) {
                missing[i] = sfi_source_counts(n->core, i).fragments_lost;
                left += missing[i] > 0;
        }
        for (unsigned named = 0; left > 0 && named < NAMES_MAX; named++, left--) {
                uint32_t most = 0;

                for (uint32_t i = 1; i < n->scenario->ros.count; i++)
                        most = missing[i] > missing[most] ? i : most;
                strbuf_add(&b, "%s%s %" PRIu64, named > 0 ? ", " : "",
                           scenario_node_of(n->scenario, ROLE_ROS, most)->name, missing[most]);
                missing[most] = 0;
        }
        if (left > 0)
                strbuf_add(&b, " and %u more", left);
        log_warning("%s partial: %s", run_of(n, run), text);
}

static void log_dfm_accounts(const struct node *n)
{
        const struct node_stats *s = n->stats;
        char run[SCENARIO_RUN_MAX];

        log_id(LOG_LEVEL_INFO, LOG_ID_RUN_ENDED,
               "%s ended: %" PRIu64 " triggers = %" PRIu64 " complete + %" PRIu64 " partial + %" PRIu64
               " lost + %" PRIu64 " rejected",
               run_of(n, run), stats_get(&s->triggers), stats_get(&s->events_complete),
               stats_get(&s->events_partial), stats_get(&s->events_lost), stats_get(&s->events_rejected));
}

void run_log_end(const struct node *n)
{
        const struct node_stats *s = n->stats;
        char bytes[QUANTITY_TEXT_MAX], run[SCENARIO_RUN_MAX];

        if (!n->has_begun && !has_done_anything(n)) {
                log_id(LOG_LEVEL_INFO, LOG_ID_RUN_ENDED, "no run took place");
                return;
        }
        switch (n->self->role) {
        case ROLE_DFM:
                log_dfm_accounts(n);
                break;
        case ROLE_ROS:
                log_id(LOG_LEVEL_INFO, LOG_ID_RUN_ENDED, "%s ended: %" PRIu64 " fragments sent, %s",
                       run_of(n, run), stats_get(&s->fragments_sent),
                       quantity_format_bytes(stats_get(&s->bytes_sent), bytes));
                break;
        case ROLE_SFI:
                log_id(LOG_LEVEL_INFO, LOG_ID_RUN_ENDED,
                       "%s ended: %" PRIu64 " events complete, %" PRIu64 " partial, %" PRIu64
                       " lost; %s of payload, %zu file%s",
                       run_of(n, run), stats_get(&s->events_complete), stats_get(&s->events_partial),
                       stats_get(&s->events_lost), quantity_format_bytes(stats_get(&s->payload_bytes), bytes),
                       n->files.n, n->files.n == 1 ? "" : "s");
                if (stats_get(&s->events_partial) > 0)
                        log_missing(n);
                break;
        case ROLE_LEVEL2:
                break; /* no node */
        }
}
