/* Derives the state of run control from the core, and writes it as JSON. */
#include "state_json.h"

#include <jansson.h>
#include <string.h>

#include "base/json.h"
#include "base/util.h"
#include "conf/scenario.h"
#include "core/dfm.h"
#include "../progress/progress.h"

static bool is_resuming(const struct dfm *core)
{
        return dfm_is_in_run(core) || dfm_awaits_run(core);
}

bool run_state_has_next(const struct node *n)
{
        bool is_first = n->runs == 0 && !dfm_is_in_run(n->core) && !dfm_awaits_run(n->core);

        return is_first || (node_stays(n) && !n->number_is_fixed);
}

enum run_control_state run_state_of(const struct dfm *core, const struct run_state_view *v)
{
        switch (dfm_state(core)) {
        case RUN_STARTING:
                return is_resuming(core)    ? RUN_CONTROL_RESUMING
                       : v->has_failed      ? RUN_CONTROL_ERROR
                       : dfm_is_ready(core) ? RUN_CONTROL_CONFIGURED
                                            : RUN_CONTROL_IDLE;
        case RUN_RUNNING:
                return dfm_run_view(core).is_paused ? RUN_CONTROL_PAUSED : RUN_CONTROL_RUNNING;
        case RUN_DRAINING:
        case RUN_ENDED:
                break;
        }
        return RUN_CONTROL_DRAINING;
}

static bool output_failed(const struct node *n)
{
        for (unsigned i = 0; i < n->scenario->sfi.count; i++) {
                if (dfm_view(n->core, ROLE_SFI, (uint16_t)i).failed)
                        return true;
        }
        return false;
}

void run_state_record_last(struct run_state_view *v, uint32_t run, const char *why, const char *cause)
{
        v->run = run;
        v->reasons = (struct reasons){};
        reasons_add(&v->reasons, "it %s", why);
        if (cause[0])
                reasons_add(&v->reasons, "%s", cause);
        v->outcome = cause[0] ? RUN_OUTCOME_ERROR : RUN_OUTCOME_FELL_SHORT;
        v->has_failed = cause[0];
        v->is_held |= v->has_failed;
        v->is_counted = false;
}

enum run_outcome run_outcome_of(const struct node *n)
{
        if (n->ended_by_stall || n->ended_by_previous || output_failed(n))
                return RUN_OUTCOME_ERROR;
        return n->reasons.n > 0 ? RUN_OUTCOME_FELL_SHORT : RUN_OUTCOME_OK;
}

const char *run_outcome_name(enum run_outcome outcome)
{
        static const char *const names[] = {
                [RUN_OUTCOME_NONE] = NULL,
                [RUN_OUTCOME_OK] = "ok",
                [RUN_OUTCOME_FELL_SHORT] = "fell short",
                [RUN_OUTCOME_ERROR] = "error",
        };

        return names[outcome];
}

void run_state_restore_last(struct run_state_view *v, const struct run_list_outcome *last, bool fault_remains)
{
        for (enum run_outcome o = RUN_OUTCOME_OK; o <= RUN_OUTCOME_ERROR; o++) {
                if (strcmp(last->status, run_outcome_name(o)) == 0)
                        v->outcome = o;
        }
        v->run = last->run;
        v->reasons = last->reasons;
        v->has_failed = fault_remains && v->outcome == RUN_OUTCOME_ERROR;
        v->is_held |= v->has_failed;
}

void run_state_record_end(const struct node *n, struct run_state_view *v)
{
        v->run = n->run;
        v->reasons = n->reasons;
        v->outcome = run_outcome_of(n);
        v->has_failed = v->outcome == RUN_OUTCOME_ERROR;
        v->counts = *dfm_counts(n->core);
        v->ended_utc_ns = clock_utc_ns();
        v->is_counted = true;
}

static json_t *seconds_json(uint64_t ns)
{
        const uint64_t ms = ns / NS_PER_MS;

        return json_real((double)ms / 1e3);
}

static json_t *nodes_json(const struct node *n)
{
        const struct scenario *s = n->scenario;
        json_t *missing = json_array();

        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *o = &s->nodes[i];

                if (o->role != ROLE_DFM && !dfm_view(n->core, o->role, (uint16_t)o->index).live)
                        json_array_append_new(missing, json_string(o->name));
        }
        return json_pack("{s:I, s:I, s:o}", "expected", (json_int_t)(s->n_nodes - 1), "present",
                         (json_int_t)(dfm_live(n->core, ROLE_ROS) + dfm_live(n->core, ROLE_SFI)), "missing",
                         missing);
}

static json_t *events_json(const struct dfm_counts *c)
{
        return json_pack("{s:I, s:I, s:I, s:I, s:I}", "triggers", (json_int_t)c->triggers, "complete",
                         (json_int_t)c->complete, "partial", (json_int_t)c->partial, "lost",
                         (json_int_t)c->lost, "rejected", (json_int_t)c->rejected);
}

/* A run that is or will be resumed is the current run, not the last one. */
static json_t *last_run_json(const struct dfm *core, const struct run_state_view *v)
{
        char end[CLOCK_UTC_TEXT_MAX];

        if (v->outcome == RUN_OUTCOME_NONE ||
            (!v->is_over && (dfm_awaits_run(core) || (dfm_is_in_run(core) && dfm_run(core) == v->run))))
                return json_null();
        return json_pack("{s:I, s:s, s:o, s:o, s:o}", "run", (json_int_t)v->run, "status",
                         run_outcome_name(v->outcome), "reasons", reasons_to_json(&v->reasons), "events",
                         v->is_counted ? events_json(&v->counts) : json_null(), "end",
                         v->is_counted ? json_string(clock_format_utc(v->ended_utc_ns, end)) : json_null());
}

/* Returns what run control waits for, or its error; null: neither. */
static json_t *reason_json(const struct node *n, const struct run_state_view *v, enum run_control_state state,
                           uint64_t now_ns)
{
        char text[OBSTACLE_TEXT_MAX + 64];

        if (v->is_over)
                return json_string("this DFM is about to end");
        if (state == RUN_CONTROL_ERROR && v->reasons.n > 0)
                return json_string(v->reasons.text[0]);
        if (state == RUN_CONTROL_CONFIGURED && dfm_run_view(n->core).is_held)
                return json_string("waiting for the command start");
        progress_text(n, now_ns, text, OBSTACLE_TEXT_MAX);
        if (text[0] && dfm_awaits_run(n->core) && v->ends_previous)
                strcat(text, "; then this run ends");
        return json_text(text);
}

static json_t *permits_json(const struct node *n, const struct run_state_view *v,
                            enum run_control_state state)
{
        json_t *all = json_array();

        for (enum run_command c = 0; c < RUN_COMMANDS && !v->is_over; c++) {
                bool begins = c == RUN_COMMAND_START || c == RUN_COMMAND_NEXT_RUN;

                if (run_state_permits(state, c) && (!begins || run_state_has_next(n)))
                        json_array_append_new(all, json_string(run_command_name(c)));
        }
        return all;
}

char *run_state_json(const struct node *n, const struct run_state_view *v, uint64_t now_ns)
{
        const struct dfm *core = n->core;
        enum run_control_state state = run_state_of(core, v);
        bool is_in_run = is_resuming(core) && !v->is_over;
        uint32_t run = dfm_awaits_run(core) ? v->run : dfm_run(core);
        json_t *o = json_object();
        char *text;

        json_object_set_new(o, "state", json_string(run_state_name(state)));
        json_object_set_new(o, "scenario", json_string(n->scenario->scenario.name));
        json_object_set_new(o, "run", json_count_if(is_in_run, run));
        json_object_set_new(o, "next_run", json_count_if(!is_in_run && !v->is_over, run));
        json_object_set_new(o, "held", json_boolean(is_in_run ? v->is_held : dfm_run_view(core).is_held));
        json_object_set_new(o, "reason", reason_json(n, v, state, now_ns));
        json_object_set_new(o, "permits", permits_json(n, v, state));
        json_object_set_new(o, "nodes", nodes_json(n));
        json_object_set_new(o, "events", events_json(dfm_counts(core)));
        json_object_set_new(o, "seconds",
                            dfm_has_begun(core) ? seconds_json(dfm_age_ns(core, now_ns)) : json_null());
        json_object_set_new(o, "paused_seconds", seconds_json(dfm_counts(core)->paused_ns));
        json_object_set_new(o, "metadata", scenario_metadata_to_json(n->metadata, n->n_metadata));
        json_object_set_new(o, "last_run", last_run_json(core, v));
        text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
        json_decref(o);
        return text;
}

char *run_error_json(const char *text)
{
        json_t *o = json_pack("{s:s}", "error", text);
        char *json = o ? json_dumps(o, JSON_COMPACT) : NULL;

        json_decref(o);
        return json;
}
