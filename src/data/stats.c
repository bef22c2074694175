/* The table of counters, and the functions that fill them from the counts of the cores. */
#include "data/stats.h"

#include <string.h>

#include "core/dfm.h"
#include "core/dfm_level2.h"
#include "core/ros.h"
#include "core/ros_regions.h"
#include "core/sfi.h"

#define DFM COUNTER_ROLE(ROLE_DFM)
#define ROS COUNTER_ROLE(ROLE_ROS)
#define SFI COUNTER_ROLE(ROLE_SFI)
#define ANY 0
#define METRIC(name_) .metric = name_
#define GROUPED(group_, label_) .group = GROUP_##group_, .label = label_
#define IN(object_, roles_) .object = OBJECT_##object_, .roles = roles_
#define IN_AS(object_, key_, roles_) .object = OBJECT_##object_, .key = key_, .roles = roles_
#define LOST_AT(place_) .place = LOSS_##place_
#define FROM(source, counts, member) .from[source] = 1 + offsetof(counts, member)
#define DFM_COUNTS(member) FROM(FROM_DFM, struct dfm_counts, member)
#define ROS_COUNTS(member) FROM(FROM_ROS, struct ros_counts, member)
#define SFI_COUNTS(member) FROM(FROM_SFI, struct sfi_counts, member)
#define LEVEL2_COUNTS(member) FROM(FROM_LEVEL2, struct dfm_level2_counts, member)
#define REGION_COUNTS(member) FROM(FROM_REGIONS, struct ros_region_counts, member)

const struct counter stats_table[COUNTERS] = {
#define X(name_, help_, ...)                                                                                 \
        [COUNTER_##name_] = {                                                                                \
                .name = #name_, .help = help_, .offset = offsetof(struct node_stats, name_), __VA_ARGS__},
        STATS_COUNTERS(X)
#undef X
};

const char *stats_key(const struct counter *c)
{
        static const char *const prefixes[COUNTER_OBJECTS] = {
                [OBJECT_FRAGMENTS] = "fragments_",  [OBJECT_SPILLS] = "spills_",
                [OBJECT_LEVEL2] = "level2_",        [OBJECT_REGIONS] = "regions_",
                [OBJECT_FRONT_ENDS] = "front_end_",
        };
        const char *prefix = prefixes[c->object];

        if (c->key)
                return c->key;
        return c->name + (prefix ? strlen(prefix) : 0);
}

void stats_read(const struct node_stats *s, uint64_t ret[static COUNTERS])
{
        for (size_t i = 0; i < COUNTERS; i++)
                ret[i] = stats_value(s, i);
}

void stats_add_all(struct node_stats *to, const struct node_stats *from)
{
        for (size_t i = 0; i < COUNTERS; i++)
                stats_add(stats_counter(to, i), stats_value(from, i));
}

void stats_begin_run(struct node_stats *s)
{
        const struct obstacle none = {};

        /* Readers must not take a later count for that of a run that has ended. */
        atomic_store(&s->state, NODE_STARTING);
        for (size_t i = 0; i < COUNTERS; i++)
                stats_set(stats_counter(s, i), 0);
        stats_set(&s->first_complete_ns, 0);
        stats_set(&s->last_complete_ns, 0);
        stats_set(&s->first_trigger_ns, 0);
        stats_set(&s->output_left_s, 0);
        stats_set(&s->board_clock_known, 0);
        histogram_init(&s->latency_ns);
        histogram_init(&s->level2_latency_ns);
        obstacle_publish(&s->obstacle, &none);
        obstacle_publish(&s->last_stall, &none);
}

void stats_count_refusal(struct node_stats *s, enum message_verdict verdict)
{
        switch (verdict) {
        case MESSAGE_OK:
                break;
        case MESSAGE_FOREIGN:
        case MESSAGE_OTHER_VERSION:
        case MESSAGE_OTHER_RUN:
                stats_add(&s->packets_foreign, 1);
                break;
        case MESSAGE_SHORT:
        case MESSAGE_MALFORMED:
                stats_add(&s->packets_malformed, 1);
                break;
        }
}

static void stats_take(struct node_stats *s, enum counter_source source, const void *counts)
{
        for (size_t i = 0; i < COUNTERS; i++) {
                size_t from = stats_table[i].from[source];
                uint64_t value;

                if (from == 0)
                        continue;
                memcpy(&value, (const char *)counts + from - 1, sizeof value);
                stats_set(stats_counter(s, i), value);
        }
}

void stats_copy_dfm(struct node_stats *s, const struct dfm *d)
{
        const struct dfm_counts *c = dfm_counts(d);

        stats_take(s, FROM_DFM, c);
        atomic_store(&s->first_trigger_ns, c->first_trigger_ns);
        atomic_store(&s->first_complete_ns, c->first_complete_ns);
        atomic_store(&s->last_complete_ns, c->last_complete_ns);
}

void stats_copy_ros(struct node_stats *s, const struct ros *r)
{
        stats_take(s, FROM_ROS, ros_counts(r));
}

void stats_copy_regions(struct node_stats *s, const struct ros *r)
{
        const struct ros_region_counts *c = ros_region_counts(r);

        stats_take(s, FROM_REGIONS, c);
        stats_set(&s->regions_dropped, c->dropped + c->open);
}

void stats_copy_level2(struct node_stats *s, const struct dfm *d)
{
        stats_take(s, FROM_LEVEL2, dfm_level2_counts(d));
        s->level2_latency_ns = *dfm_level2_latency_ns(d);
}

void stats_copy_sfi(struct node_stats *s, const struct sfi *core)
{
        stats_take(s, FROM_SFI, sfi_event_counts(core));
        stats_set(&s->rate_reductions, sfi_port_rate(core)->decreases);
        stats_set(&s->packets_port_lost, sfi_port_rate(core)->lost);
}

void stats_take_datagrams(struct node_stats *s, const struct sfi *core)
{
        const struct sfi_counts c = sfi_counts(core);

        stats_set(&s->packets_received, c.datagrams_received);
        stats_set(&s->packets_lost, c.datagrams_lost);
        stats_set(&s->sequence_suspects, c.datagrams_suspect);
}
