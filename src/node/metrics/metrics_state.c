/* Allocation, copying and arithmetic of the shared part of a node's metrics. */
#include "metrics_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

int metrics_state_init(struct metrics_state *s, size_t n_peers)
{
        *s = (struct metrics_state){.n_peers = n_peers};
        s->peers = calloc(n_peers, sizeof *s->peers);
        s->shapings = calloc(n_peers, sizeof *s->shapings);
        return s->peers && s->shapings ? 0 : -ENOMEM;
}

void metrics_state_fini(struct metrics_state *s)
{
        free(s->peers);
        free(s->shapings);
        *s = (struct metrics_state){};
}

void metrics_state_copy(struct metrics_state *to, const struct metrics_state *from)
{
        struct metrics_peer *peers = to->peers;
        struct metrics_shaped *shapings = to->shapings;

        *to = *from;
        to->peers = peers;
        to->shapings = shapings;
        memcpy(peers, from->peers, from->n_peers * sizeof *peers);
        memcpy(shapings, from->shapings, from->n_peers * sizeof *shapings);
}

void metrics_fold(struct metrics_histogram *to, const struct histogram *from)
{
        uint64_t seen = 0;
        unsigned i = 0;

        for (size_t k = 0; k < METRICS_BOUNDS; k++) {
                while (i < HISTOGRAM_BUCKETS && histogram_upper_edge(i) <= metrics_bounds_ns[k])
                        seen += from->buckets[i++];
                to->below[k] = seen;
        }
        to->count = from->count;
        to->sum_ns = from->sum;
}

static double rate(uint64_t last, uint64_t now, double seconds)
{
        return now > last ? (double)(now - last) / seconds : 0;
}

void metrics_update_rates(struct metrics_rates *to, struct metrics_sample *last,
                          const struct metrics_sample *now)
{
        double seconds = (double)(now->now_ns - last->now_ns) / NS_PER_S;

        if (last->now_ns > 0 && seconds < 1)
                return;
        if (last->now_ns > 0)
                *to = (struct metrics_rates){
                        .triggers_hz = rate(last->triggers, now->triggers, seconds),
                        .events_hz = rate(last->events, now->events, seconds),
                        .fragments_hz = rate(last->fragments, now->fragments, seconds),
                        .bytes_per_second = rate(last->bytes, now->bytes, seconds),
                        .busy_share = MIN(rate(last->busy_ns, now->busy_ns, seconds) / NS_PER_S, 1.0),
                        .at_ns = now->now_ns,
                };
        *last = *now;
}

/* A count lower than before belongs to a new class. */
static void count(uint64_t *total, uint64_t *last, uint64_t now)
{
        *total += now < *last ? now : now - *last;
        *last = now;
}

static void copy_row(struct metrics_shaped *to, const struct tc_row *row)
{
        to->rate_bps = row->rate_bps;
        to->limit_bytes = row->limit_bytes;
        if (!row->counters.known)
                return;
        to->known = true;
        to->backlog_bytes = row->counters.backlog_bytes;
        count(&to->bytes, &to->last_bytes, row->counters.bytes);
        count(&to->packets, &to->last_packets, row->counters.packets);
        count(&to->drops, &to->last_drops, row->counters.drops);
        count(&to->overlimits, &to->last_overlimits, row->counters.overlimits);
}

void metrics_set_shaping(struct metrics_state *to, const struct scenario *s, const struct tc_status *status)
{
        for (size_t i = 0; i < s->n_nodes; i++) {
                struct tc_address address = {};
                bool found = false;

                if (s->nodes[i].role != ROLE_SFI || !tc_address_parse(&address, s->nodes[i].address))
                        continue;
                for (size_t k = 0; k < status->n && !found; k++) {
                        found = tc_address_equal(&status->rows[k].address, &address);
                        if (found)
                                copy_row(&to->shapings[i], &status->rows[k]);
                }
                if (!found) {
                        to->shapings[i].rate_bps = to->shapings[i].backlog_bytes = 0;
                        to->shapings[i].limit_bytes = 0;
                }
        }
}

static void add_histogram(struct metrics_histogram *to, const struct metrics_histogram *h)
{
        to->count += h->count;
        to->sum_ns += h->sum_ns;
        for (size_t k = 0; k < METRICS_BOUNDS; k++)
                to->below[k] += h->below[k];
}

static void add_peer(struct metrics_peer *to, const struct metrics_peer *p)
{
        to->fragments += p->fragments;
        to->fragments_lost += p->fragments_lost;
        to->fragments_absent += p->fragments_absent;
        to->packets += p->packets;
        to->packets_lost += p->packets_lost;
        to->bytes += p->bytes;
}

void metrics_add_run(struct metrics_state *to, const struct metrics_state *run)
{
        add_histogram(&to->event_latency, &run->event_latency);
        add_histogram(&to->level2_latency, &run->level2_latency);
        for (size_t i = 0; i < to->n_peers; i++)
                add_peer(&to->peers[i], &run->peers[i]);
}

void metrics_record_lost(struct metrics_peer *p, uint64_t fragments_lost, bool moved)
{
        if (moved) {
                p->lost_older = p->lost_newer;
                p->lost_newer = fragments_lost;
        }
        p->fragments_lost = fragments_lost;
        p->lost_recently = fragments_lost - MIN(p->lost_older, fragments_lost);
}

void metrics_state_begin_run(struct metrics_state *s)
{
        s->event_latency = s->level2_latency = (struct metrics_histogram){};
        s->losses = (struct losses){};
        s->rates = (struct metrics_rates){};
        memset(s->peers, 0, s->n_peers * sizeof *s->peers);
}
