/* Maps the verdict on a received message to the counters of struct node_stats. */
#include "evb/data/stats.h"

void stats_begin_run(struct node_stats *s)
{
        const struct obstacle none = {};

#define X(name, help) stats_set(&s->name, 0);
        STATS_COUNTERS(X)
#undef X
        stats_set(&s->first_complete_ns, 0);
        stats_set(&s->last_complete_ns, 0);
        stats_set(&s->first_trigger_ns, 0);
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
