/* Makes the object that a node serves at /status. Figures that its role does not have are null. */
#include "status.h"

#include <jansson.h>

#include "evb/base/util.h"

/* Of the present run. */
static uint64_t counted(const struct metrics_view *v, enum metrics_counter counter)
{
        return v->counters[counter] - MIN(v->counters[counter], v->counters_before[counter]);
}

static json_t *count_of(const struct metrics_view *v, enum metrics_counter counter)
{
        return json_integer((json_int_t)counted(v, counter));
}

static json_t *integer_if(bool known, uint64_t value)
{
        return known ? json_integer((json_int_t)value) : json_null();
}

static json_t *boolean_if(bool known, bool value)
{
        return known ? json_boolean(value) : json_null();
}

static double buffer_used(const struct metrics_view *v)
{
        uint64_t size = v->self->role == ROLE_ROS ? v->scenario->ros.buffer_size_bytes
                                                  : v->scenario->sfi.buffer_size_bytes;

        return size > 0 ? (double)v->shared->buffer_used_bytes / (double)size : 0;
}

static json_t *make_rates(const struct metrics_view *v)
{
        const struct metrics_rates *r = &v->shared->rates;
        bool ros = v->self->role == ROLE_ROS, dfm = v->self->role == ROLE_DFM;

        return json_pack("{s:o, s:o, s:f}", "events_hz", ros ? json_null() : json_real(r->events_hz),
                         "fragments_hz", dfm ? json_null() : json_real(r->fragments_hz), "bytes_per_second",
                         r->bytes_per_second);
}

static json_t *make_counts(const struct metrics_view *v)
{
        bool dfm = v->self->role == ROLE_DFM, events = v->self->role != ROLE_ROS;

        return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "triggers",
                         integer_if(dfm, counted(v, METRICS_COUNTER_triggers)), "events_complete",
                         integer_if(events, counted(v, METRICS_COUNTER_events_complete)), "events_partial",
                         integer_if(events, counted(v, METRICS_COUNTER_events_partial)), "events_lost",
                         integer_if(events, counted(v, METRICS_COUNTER_events_lost)), "fragments_sent",
                         integer_if(!events, counted(v, METRICS_COUNTER_fragments_sent)), "packets_lost",
                         count_of(v, METRICS_COUNTER_packets_lost));
}

/* What the node waits for, and for how long if work waits. */
static void add_obstacle(json_t *o, const struct obstacle *b, uint64_t now_ns)
{
        char text[OBSTACLE_TEXT_MAX + 40];

        obstacle_format(b, now_ns, text, sizeof text);
        json_object_set_new(o, "reason", text[0] ? json_string(text) : json_null());
        json_object_set_new(o, "stalled_seconds",
                            b->kind == OBSTACLE_STALL
                                    ? json_real((double)(now_ns - MIN(b->since_ns, now_ns)) / NS_PER_S)
                                    : json_null());
}

char *metrics_status_text(const struct metrics_view *v, uint64_t now_ns)
{
        const struct metrics_state *s = v->shared;
        bool dfm = v->self->role == ROLE_DFM, ros = v->self->role == ROLE_ROS;
        json_t *o =
                json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "node", v->self->name, "role",
                          scenario_role_name(v->self->role), "state", metrics_state_name(v->state), "run",
                          integer_if(s->run > 0, s->run), "counts", make_counts(v), "rates", make_rates(v));
        char *text;

        if (!o)
                return NULL;
        add_obstacle(o, &v->obstacle, now_ns);
        json_object_set_new(o, "control_state",
                            v->control_state ? json_string(v->control_state) : json_null());
        json_object_set_new(o, "open_events", integer_if(!ros, s->open_events));
        json_object_set_new(o, "busy", boolean_if(dfm, s->busy));
        json_object_set_new(o, "buffer_used", dfm ? json_null() : json_real(buffer_used(v)));
        json_object_set_new(o, "shaped", boolean_if(ros && v->scenario->qos.backend != QOS_NONE, s->shaped));
        json_object_set_new(o, "output_free_bytes", integer_if(v->disk.known, v->disk.free_bytes));
        text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
        json_decref(o);
        return text;
}
