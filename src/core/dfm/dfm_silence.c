/* Records when the DFM last received messages from its nodes, and how long it could not receive any. */
#include "dfm_internal.h"

/* After this number of keep-alives without any message, the DFM counts as cut off. */
#define SILENCE_KEEP_ALIVES 3

bool dfm_receives_nothing(const struct dfm *d, uint64_t now_ns)
{
        return now_ns - d->received_ns >= SILENCE_KEEP_ALIVES * d->config.keep_alive_ns;
}

static void extend(struct dfm *d, uint64_t now_ns, uint64_t away_ns)
{
        d->extended_ns = now_ns;
        for (uint32_t i = 0; i < d->config.n_ros + d->config.n_sfi; i++)
                d->nodes[i].received_ns = MIN(d->nodes[i].received_ns + away_ns, now_ns);
        d->finish.since_ns = MIN(d->finish.since_ns + away_ns, now_ns);
        d->quorum_ns = MIN(d->quorum_ns + away_ns, now_ns);
        d->level2.served_ns = MIN(d->level2.served_ns + away_ns, now_ns);
        dfm_table_postpone(&d->table, now_ns, away_ns);
        d->draining_ns = MIN(d->draining_ns + away_ns, now_ns);
        d->ended_ns = MIN(d->ended_ns + away_ns, now_ns);
}

void dfm_record_contact(struct dfm *d, uint64_t now_ns, struct dfm_node *n)
{
        /* The other nodes' messages are only beginning to arrive. */
        if ((d->state == RUN_RUNNING || (d->cut_off && !d->end_answered)) && d->received_ns > 0 &&
            dfm_receives_nothing(d, now_ns)) {
                extend(d, now_ns, now_ns - d->received_ns);
                if (d->cut_off && now_ns >= d->gather_ns)
                        d->gather_ns = now_ns + d->config.node_timeout_ns;
        }
        d->received_ns = n->received_ns = now_ns;
        d->end_answered |= d->state == RUN_ENDED;
}

void dfm_was_paused(struct dfm *d, uint64_t now_ns, uint64_t away_ns)
{
        /* A process that stood still finds that it did, and that no message came: that time counts once. */
        away_ns = MIN(away_ns, now_ns - d->extended_ns);
        if (d->received_ns > 0)
                d->received_ns = MIN(d->received_ns + away_ns, now_ns);
        extend(d, now_ns, away_ns);
}
