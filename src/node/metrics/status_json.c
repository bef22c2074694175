/* Makes the object that a node serves at /status. Figures that do not exist for its role are null. */
#include "openmetrics.h"

#include <jansson.h>
#include <math.h>

#include "base/json.h"
#include "base/util.h"
#include "conf/digest.h"
#include "counters.h"

static bool is_dfm(const struct metrics_view *v)
{
        return v->self->role == ROLE_DFM;
}

static bool is_ros(const struct metrics_view *v)
{
        return v->self->role == ROLE_ROS;
}

static bool is_sfi(const struct metrics_view *v)
{
        return v->self->role == ROLE_SFI;
}

static void set_real(json_t *o, const char *name, bool known, double value)
{
        json_object_set_new(o, name, known ? json_real(value) : json_null());
}

static void set_flag(json_t *o, const char *name, bool known, bool value)
{
        json_object_set_new(o, name, known ? json_boolean(value) : json_null());
}

/* Even an idle event loop computes rates every 2 s. Older ones mean that it hangs, and then nothing moves. */
#define RATES_AGE_NS (3 * NS_PER_S)

static json_t *make_rates(const struct metrics_view *v, uint64_t now_ns)
{
        static const struct metrics_rates none;
        const struct metrics_rates *r = &v->shared->rates;
        json_t *o = json_object();

        if (now_ns > r->at_ns + RATES_AGE_NS)
                r = &none;

        set_real(o, "triggers_hz", is_dfm(v), r->triggers_hz);
        set_real(o, "events_hz", !is_ros(v), r->events_hz);
        set_real(o, "fragments_hz", !is_dfm(v), r->fragments_hz);
        set_real(o, "bytes_per_second", true, r->bytes_per_second);
        set_real(o, "busy_share", is_dfm(v), r->busy_share);
        return o;
}

static json_t *make_object(const struct metrics_view *v, enum counter_object object, const uint64_t *counts)
{
        json_t *o = json_object();

        counters_set(o, object, COUNTER_ROLE(v->self->role), counts);
        return o;
}

static void set_place(json_t *o, enum loss_place place, const double *lost)
{
        bool known = !isnan(lost[place]);

        json_object_set_new(o, loss_places[place].key,
                            json_count_if(known, known ? (uint64_t)lost[place] : 0));
}

static json_t *make_drops(const struct metrics_view *v, const uint64_t *counts)
{
        json_t *o = make_object(v, OBJECT_DROPS, counts);
        double lost[LOSS_PLACES];

        losses_of_node(v->scenario, v->self->role, counts, lost);
        set_place(o, LOSS_SOURCE_QDISC, lost);
        set_place(o, LOSS_NETWORK, lost);
        return o;
}

/* Lists the missing fragments of an SFI by the ROS that should have sent them. */
static json_t *make_missing(const struct metrics_view *v)
{
        json_t *o = is_sfi(v) ? json_object() : json_null();

        for (size_t i = 0; is_sfi(v) && i < v->shared->n_peers; i++) {
                uint64_t lost = v->shared->peers[i].lost_recently;

                if (lost > 0)
                        json_put_count(o, v->scenario->nodes[i].name, lost);
        }
        return o;
}

static json_t *make_losses(const struct metrics_view *v, uint64_t now_ns)
{
        const struct losses_sample r = losses_recent(&v->shared->losses);
        json_t *o = json_object();
        double lost[LOSS_PLACES];

        losses_of_node(v->scenario, v->self->role, r.counts, lost);
        set_real(o, "seconds", r.now_ns > 0, (double)(now_ns - MIN(r.now_ns, now_ns)) / NS_PER_S);
        for (size_t i = 0; i < COUNTERS; i++) {
                const struct counter *c = &stats_table[i];

                if (losses_are_events(c))
                        json_object_set_new(
                                o, c->name,
                                json_count_if(c->roles & COUNTER_ROLE(v->self->role), r.counts[i]));
        }
        json_object_set_new(o, "events_starved", json_count_if(is_sfi(v), r.counts[COUNTER_events_starved]));
        json_object_set_new(o, "missing_fragments", make_missing(v));
        for (enum loss_place i = LOSS_NOWHERE + 1; i < LOSS_PLACES; i++) {
                if (loss_places[i].key)
                        set_place(o, i, lost);
        }
        return o;
}

static json_t *make_latency(const struct metrics_view *v)
{
        const struct metrics_state *s = v->shared;
        /* The histogram includes earlier runs. */
        bool known = is_dfm(v) && s->latency_p99_ns > 0;
        json_t *o = json_object();

        set_real(o, "p50", known, (double)s->latency_p50_ns / NS_PER_US);
        set_real(o, "p99", known, (double)s->latency_p99_ns / NS_PER_US);
        return o;
}

/* Figures that this pair of roles does not have are null. */
static void set_figures(json_t *o, const struct metrics_view *v, size_t node, bool is_shaped)
{
        enum node_role self = v->self->role, peer = v->scenario->nodes[node].role;

        for (size_t i = 0; i < PEER_FIGURES; i++) {
                const struct peer_figure *f = &peer_figures[i];
                bool known = f->self == self && (f->peer == 0 || f->peer == peer);

                if (!f->key || f->is_shaped != is_shaped || (!known && json_object_get(o, f->key)))
                        continue;
                if (f->is_flag)
                        set_flag(o, f->key, known, peer_figure_read(f, v, node));
                else
                        json_object_set_new(o, f->key, json_count_if(known, peer_figure_read(f, v, node)));
        }
}

static json_t *make_peer(const struct metrics_view *v, size_t i)
{
        const struct scenario_node *n = &v->scenario->nodes[i];
        json_t *o = json_object();

        json_object_set_new(o, "node", json_string(n->name));
        json_object_set_new(o, "role", json_string(scenario_role_name(n->role)));
        set_figures(o, v, i, false);
        return o;
}

/* Lists the nodes with which this node exchanges events: for the DFM all, otherwise the nodes of the other
 * role. */
static json_t *make_peers(const struct metrics_view *v)
{
        json_t *all = json_array();

        for (size_t i = 0; i < v->shared->n_peers; i++) {
                enum node_role role = v->scenario->nodes[i].role;

                if (role != ROLE_DFM && role != v->self->role)
                        json_array_append_new(all, make_peer(v, i));
        }
        return all;
}

static json_t *make_shaping(const struct metrics_view *v)
{
        json_t *all = json_array();

        if (!gauges_is_shaped_by_plan(v)) {
                json_decref(all);
                return json_null();
        }
        for (size_t i = 0; i < v->shared->n_peers; i++) {
                json_t *o;

                if (!v->shared->shapings[i].known)
                        continue;
                o = json_object();
                json_object_set_new(o, "node", json_string(v->scenario->nodes[i].name));
                json_object_set_new(o, "address", json_string(v->scenario->nodes[i].address));
                set_figures(o, v, i, true);
                json_array_append_new(all, o);
        }
        return all;
}

/* Adds what the node waits for, and for how long if it is stalled. */
static void add_obstacle(json_t *o, const struct obstacle *b, uint64_t now_ns)
{
        char text[OBSTACLE_TEXT_MAX + 40];

        obstacle_format(b, now_ns, text, sizeof text);
        json_object_set_new(o, "reason", json_text(text));
        set_real(o, "stalled_seconds", b->kind == OBSTACLE_STALL,
                 (double)(now_ns - MIN(b->since_ns, now_ns)) / NS_PER_S);
}

static void add_gauges(json_t *o, const struct metrics_view *v)
{
        for (size_t i = 0; i < GAUGES; i++) {
                const struct gauge *g = &gauges[i];
                bool known = g->roles & COUNTER_ROLE(v->self->role) && (!g->is_known || g->is_known(v));

                if (g->key && g->is_flag)
                        set_flag(o, g->key, known, g->read(v));
                else if (g->key)
                        json_object_set_new(o, g->key, json_count_if(known, g->read(v)));
        }
}

/* Adds the used share of the memory for fragments. */
static void add_buffer_used(json_t *o, const struct metrics_view *v)
{
        double used = json_number_value(json_object_get(o, "buffer_used_bytes")),
               size = json_number_value(json_object_get(o, "buffer_size_bytes"));

        set_real(o, "buffer_used", !is_dfm(v), size > 0 ? used / size : 0);
}

json_t *status_make_digest(const struct member_keys *keys)
{
        json_t *all = json_array();

        json_array_append_new(all, json_integer(keys->table));
        for (uint32_t i = 0; i < keys->n; i++)
                json_array_append_new(all, json_integer(keys->values[i]));
        return all;
}

json_t *status_make_settings(const struct scenario *s)
{
        json_t *all = json_array();

        for (size_t i = 0; i < n_scenario_keys; i++)
                json_array_append_new(all, json_integer(scenario_digest_other(s, i)));
        return all;
}

char *metrics_status_text(const struct metrics_view *v, uint64_t now_ns)
{
        const uint64_t *counts = v->run_counters;
        json_t *o = json_object();
        char *text;

        json_object_set_new(o, "node", json_string(v->self->name));
        json_object_set_new(o, "role", json_string(scenario_role_name(v->self->role)));
        json_object_set_new(o, "version", json_string(v->version));
        json_object_set_new(o, "digest", status_make_digest(&v->digest));
        json_object_set_new(o, "settings", status_make_settings(v->scenario));
        set_real(o, "time", true, v->now_seconds);
        set_real(o, "start_time", v->process.start_seconds >= 0, v->process.start_seconds);
        json_object_set_new(o, "state", json_string(metrics_state_name(v->state)));
        json_object_set_new(o, "control_state",
                            v->control_state ? json_string(v->control_state) : json_null());
        json_object_set_new(o, "control_error", json_text(v->control_error));
        json_object_set_new(o, "run", json_count_if(v->shared->run > 0, v->shared->run));
        json_object_set_new(o, "counts", make_object(v, OBJECT_COUNTS, counts));
        json_object_set_new(o, "rates", make_rates(v, now_ns));
        add_obstacle(o, &v->obstacle, now_ns);
        json_object_set_new(o, "losses", make_losses(v, now_ns));
        add_gauges(o, v);
        add_buffer_used(o, v);
        json_object_set_new(o, "latency_us", make_latency(v));
        json_object_set_new(o, "fragments", make_object(v, OBJECT_FRAGMENTS, counts));
        json_object_set_new(o, "drops", make_drops(v, counts));
        json_object_set_new(o, "discarded", counters_make_discarded(counts, v->self->role));
        json_object_set_new(o, "peers", make_peers(v));
        json_object_set_new(o, "shaping", make_shaping(v));
        /* 12 digits represent a time since 1970 with a resolution of 10 ms. */
        text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12));
        json_decref(o);
        return text;
}
