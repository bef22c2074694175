/* Maps the verdict on a received message to the counters of struct node_stats. */
#include "data/stats.h"

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

void stats_take_dfm(struct node_stats *s, const struct dfm *d)
{
        const struct dfm_counts *c = dfm_counts(d);

        stats_set(&s->triggers, c->triggers);
        stats_set(&s->events_assigned, c->assigned);
        stats_set(&s->events_reassigned, c->reassigned);
        stats_set(&s->events_complete, c->complete);
        stats_set(&s->events_partial, c->partial);
        stats_set(&s->events_lost, c->lost);
        stats_set(&s->events_rejected, c->rejected);
        stats_set(&s->busy_ns, c->busy_ns);
        stats_set(&s->paused_ns, c->paused_ns);
        stats_set(&s->events_ended_again, c->ended_again);
        stats_set(&s->payload_bytes, c->payload_bytes);
        stats_set(&s->fragments_expected, c->fragments_expected);
        stats_set(&s->fragments_received, c->fragments_received);
        stats_set(&s->fragments_lost, c->fragments_lost);
        stats_set(&s->fragments_optional, c->fragments_absent);
        atomic_store(&s->first_trigger_ns, c->first_trigger_ns);
        atomic_store(&s->first_complete_ns, c->first_complete_ns);
        atomic_store(&s->last_complete_ns, c->last_complete_ns);
}

void stats_take_ros(struct node_stats *s, const struct ros *r)
{
        const struct ros_counts *c = ros_counts(r);

        stats_set(&s->fragments_sent, c->fragments_sent);
        stats_set(&s->fragments_unknown, c->unknown);
        stats_set(&s->fragments_source_lost, c->source_lost);
        stats_set(&s->clear_gaps, c->clear_gaps);
        stats_set(&s->events_implausible, c->implausible);
        stats_set(&s->sequence_suspects, c->clear_suspects);
        stats_set(&s->buffer_full, c->full);
        stats_set(&s->xoff, c->xoff);
        stats_set(&s->front_end_used, c->used);
        stats_set(&s->front_end_late, c->late);
        stats_set(&s->front_end_duplicate, c->duplicate);
        stats_set(&s->front_end_impossible, c->impossible);
        stats_set(&s->front_end_dropped, c->dropped);
        stats_set(&s->front_end_left_over, c->left_over);
        stats_set(&s->front_end_restarts, c->restarts);
        stats_set(&s->fragments_absent, c->absent);
}

void stats_take_sfi(struct node_stats *s, const struct sfi *core)
{
        const struct sfi_counts *c = sfi_counts(core);

        stats_set(&s->events_assigned, c->assigned);
        stats_set(&s->events_complete, c->complete);
        stats_set(&s->events_partial, c->partial);
        stats_set(&s->events_lost, c->lost);
        stats_set(&s->payload_bytes, c->payload_bytes);
        stats_set(&s->fragments_received, c->fragments_received);
        stats_set(&s->fragments_lost, c->fragments_lost);
        stats_set(&s->fragments_optional, c->fragments_absent);
        stats_set(&s->fragments_late, c->late);
        stats_set(&s->events_implausible, c->implausible);
        stats_set(&s->fragments_duplicate, c->duplicate);
        stats_set(&s->fragments_mismatched, c->mismatched);
        stats_set(&s->fragments_no_room, c->no_room);
        stats_set(&s->fragments_re_asked, c->retried);
        stats_set(&s->fragments_recovered, c->recovered);
        stats_set(&s->limit_decreases, c->limit_decreases);
        stats_set(&s->rate_reductions, sfi_port_rate(core)->decreases);
        stats_set(&s->packets_port_lost, sfi_port_rate(core)->lost);
}
