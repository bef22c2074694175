/* Makes metrics and objects from the table of counters. The name of a metric follows from the name of its
 * counter by a rule; counters of discarded items form one metric with a label. */
#include "counters.h"

#include <string.h>

#include "base/json.h"
#include "base/util.h"

/* A metric made of several counters, which a label distinguishes. */
struct group {
        const char *name, *label, *help;
        const char *discarded; /* name in the status; NULL: absent */
        enum node_role role;   /* role that has the group; 0: any */
};

static const struct group groups[COUNTER_GROUPS] = {
        [GROUP_PACKETS] = {"evb_packets_discarded", "reason", "datagrams received and discarded", "packets",
                           0},
        [GROUP_FRAGMENTS] = {"evb_fragments_discarded", "reason", "fragments received and discarded",
                             "fragments", ROLE_SFI},
        [GROUP_FRAMES] = {"evb_front_end_frames_discarded", "reason",
                          "frames of a front-end that fit no event", "front_end_frames", ROLE_ROS},
        [GROUP_SLICE_FRAMES] = {"evb_slice_frames_discarded", "reason",
                                "frames that no slice or joined fragment got", "slice_frames", ROLE_ROS},
        [GROUP_TRIGGERS] = {"evb_triggers_discarded", "reason", "triggers offered that became no event",
                            "triggers", ROLE_DFM},
        [GROUP_DATAGRAMS] = {"evb_trigger_datagrams_discarded", "reason",
                             "datagrams with triggers received and discarded", "trigger_datagrams", ROLE_DFM},
        [GROUP_REGIONS] = {"evb_regions_failed", "reason",
                           "fragments that level-2 clients requested and did not get", "regions", ROLE_ROS},
        [GROUP_DECISIONS] = {"evb_level2_decisions", "decision",
                             "events by decision of level 2 (timed_out: none)", NULL, 0},
        [GROUP_DECISIONS_DISCARDED] = {"evb_level2_decisions_discarded", "reason",
                                       "decisions of level 2 without an effect", "level2_decisions",
                                       ROLE_DFM},
};

static bool ends_with(const char *text, const char *end)
{
        size_t n = strlen(text), k = strlen(end);

        return n > k && strcmp(text + n - k, end) == 0;
}

/* Derives the names: busy_ns becomes evb_busy_seconds, payload_bytes evb_payload_bytes, events_lost
 * evb_events_lost. */
static void write_single(struct metrics_writer *w, const struct counter *c, uint64_t value)
{
        const char *name = c->metric ?: c->name;
        bool is_time = ends_with(name, "_ns");
        char text[96];

        snprintf(text, sizeof text, "evb_%.*s%s", (int)(strlen(name) - (is_time ? strlen("_ns") : 0)), name,
                 is_time ? "_seconds" : "");
        metrics_family(w, METRICS_COUNTER, text,
                       is_time                     ? "seconds"
                       : ends_with(name, "_bytes") ? "bytes"
                                                   : NULL,
                       c->help);
        if (is_time)
                metrics_time(w, NULL, value);
        else
                metrics_count(w, NULL, value);
}

static void write_group(struct metrics_writer *w, enum counter_group group, const uint64_t *values)
{
        const struct group *g = &groups[group];

        metrics_family(w, METRICS_COUNTER, g->name, NULL, g->help);
        for (size_t i = 0; i < COUNTERS; i++) {
                const struct metrics_label label = {g->label, stats_table[i].label};

                if (stats_table[i].group == group)
                        metrics_count(w, &label, values[i]);
        }
}

/* Whether this count includes what the node holds, until the run ends. */
static bool includes_held(size_t counter)
{
        return counter == COUNTER_front_end_left_over || counter == COUNTER_slice_frames_left_over ||
               counter == COUNTER_regions_dropped;
}

void counters_read(const struct node_stats *s, bool ended, const uint64_t before[static COUNTERS],
                   uint64_t run[static COUNTERS], uint64_t process[static COUNTERS])
{
        for (size_t i = 0; i < COUNTERS; i++) {
                run[i] = !ended && includes_held(i) ? 0 : stats_value(s, i);
                process[i] = MAX(process[i], before[i] + run[i]);
        }
}

void counters_write_metrics(struct metrics_writer *w, const uint64_t values[static COUNTERS])
{
        bool written[COUNTER_GROUPS] = {};

        for (size_t i = 0; i < COUNTERS; i++) {
                enum counter_group group = stats_table[i].group;

                if (group == GROUP_NONE)
                        write_single(w, &stats_table[i], values[i]);
                else if (!written[group])
                        write_group(w, group, values);
                written[group] = true;
        }
}

void counters_set_all(json_t *o, const struct node_stats *s)
{
        for (size_t i = 0; i < COUNTERS; i++)
                json_put_count(o, stats_table[i].name, stats_value(s, i));
}

void counters_set(json_t *o, enum counter_object object, unsigned roles,
                  const uint64_t values[static COUNTERS])
{
        for (size_t i = 0; i < COUNTERS; i++) {
                const struct counter *c = &stats_table[i];

                if (c->object != object)
                        continue;
                json_object_set_new(o, stats_key(c),
                                    json_count_if(c->roles == 0 || c->roles & roles, values[i]));
        }
}

static json_t *make_reasons(enum counter_group group, const uint64_t *values)
{
        json_t *o = json_object();

        for (size_t i = 0; i < COUNTERS; i++) {
                if (stats_table[i].group == group)
                        json_put_count(o, stats_table[i].label, values[i]);
        }
        return o;
}

const json_t *counters_find(const json_t *status, size_t counter)
{
        static const char *const objects[COUNTER_OBJECTS] = {
                [OBJECT_COUNTS] = "counts", [OBJECT_FRAGMENTS] = "fragments", [OBJECT_DROPS] = "drops"};
        const struct counter *c = &stats_table[counter];
        const char *discarded = groups[c->group].discarded, *object = objects[c->object];

        if (discarded)
                return json_object_get(json_object_get(json_object_get(status, "discarded"), discarded),
                                       c->label);
        return object ? json_object_get(json_object_get(status, object), stats_key(c)) : NULL;
}

json_t *counters_make_discarded(const uint64_t values[static COUNTERS], enum node_role role)
{
        json_t *o = json_object();

        for (enum counter_group i = GROUP_NONE + 1; i < COUNTER_GROUPS; i++) {
                const struct group *g = &groups[i];

                if (g->discarded)
                        json_object_set_new(o, g->discarded,
                                            g->role && g->role != role ? json_null()
                                                                       : make_reasons(i, values));
        }
        return o;
}

static double between(uint64_t begin_ns, uint64_t end_ns)
{
        return end_ns > begin_ns ? (double)(end_ns - begin_ns) / 1e9 : 0;
}

double event_rates_span_seconds(const struct node_stats *dfm)
{
        return between(stats_get(&dfm->first_complete_ns), stats_get(&dfm->last_complete_ns));
}

double event_rates_hz(const struct node_stats *dfm)
{
        double span = event_rates_span_seconds(dfm);

        return span > 0 ? (double)(stats_get(&dfm->events_complete) - 1) / span : 0;
}

double event_rates_bytes_per_second(const struct node_stats *dfm)
{
        double complete = (double)stats_get(&dfm->events_complete);

        return complete > 0 ? (double)stats_get(&dfm->payload_bytes) / complete * event_rates_hz(dfm) : 0;
}

json_t *event_rates_latency(const struct histogram *latency_ns)
{
        static const struct {
                const char *name;
                double q;
        } quantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};
        json_t *o = json_object();

        for (size_t i = 0; i < ARRAY_SIZE(quantiles); i++)
                json_object_set_new(
                        o, quantiles[i].name,
                        json_figure(latency_ns->count == 0
                                            ? NAN
                                            : (double)histogram_quantile(latency_ns, quantiles[i].q) / 1e3));
        return o;
}

void event_rates_add(json_t *report, const struct node_stats *dfm)
{
        bool known = event_rates_span_seconds(dfm) > 0;
        uint64_t last_ns = stats_get(&dfm->last_complete_ns);
        double building = between(stats_get(&dfm->first_trigger_ns), last_ns);

        json_object_set_new(report, "event_rate_hz", json_figure(known ? event_rates_hz(dfm) : NAN));
        json_object_set_new(report, "throughput_bytes_per_second",
                            json_figure(known ? event_rates_bytes_per_second(dfm) : NAN));
        json_object_set_new(report, "building_seconds", json_figure(last_ns > 0 ? building : NAN));
        json_object_set_new(report, "latency_us", event_rates_latency(&dfm->latency_ns));
}
