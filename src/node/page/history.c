/* Keeps the DFM's rates of the last ten minutes in a ring. */
#include "history.h"

#include <jansson.h>

#include "base/util.h"

void history_init(struct history *h)
{
        *h = (struct history){};
        pthread_mutex_init(&h->lock, NULL);
}

void history_fini(struct history *h)
{
        pthread_mutex_destroy(&h->lock);
}

/* If a count is lower than before, another run of the process has begun, because the counters restart with
 * each run. */
static double rate_of(uint64_t *last, uint64_t now, double seconds)
{
        double rate = (double)(now < *last ? now : now - *last) / seconds;

        *last = now;
        return rate;
}

void history_add(struct history *h, const struct node_stats *stats, uint64_t now_ns, uint64_t utc_ns)
{
        double seconds = (double)(now_ns - h->last_ns) / NS_PER_S, busy;
        uint64_t events = stats_get(&stats->events_complete) + stats_get(&stats->events_partial);
        struct history_sample s = {.utc_seconds = (double)utc_ns / NS_PER_S};

        s.triggers_hz = rate_of(&h->triggers, stats_get(&stats->triggers), seconds);
        s.events_hz = rate_of(&h->events, events, seconds);
        s.bytes_per_second = rate_of(&h->bytes, stats_get(&stats->payload_bytes), seconds);
        busy = rate_of(&h->busy_ns, stats_get(&stats->busy_ns), seconds) / NS_PER_S;
        s.busy_share = MIN(busy, 1.0);
        if (h->last_ns > 0) {
                pthread_mutex_lock(&h->lock);
                h->samples[h->next] = s;
                h->next = (h->next + 1) % HISTORY_MAX;
                h->n = MIN(h->n + 1, (size_t)HISTORY_MAX);
                pthread_mutex_unlock(&h->lock);
        }
        h->last_ns = now_ns;
}

static json_t *sample_to_json(const struct history_sample *s)
{
        const double values[] = {s->utc_seconds, s->triggers_hz, s->events_hz, s->bytes_per_second,
                                 s->busy_share};
        json_t *row = json_array();

        for (size_t i = 0; i < ARRAY_SIZE(values); i++)
                json_array_append_new(row, json_real(values[i]));
        return row;
}

char *history_text(struct history *h)
{
        json_t *o = json_object(), *rows = json_array();
        char *text;

        pthread_mutex_lock(&h->lock);
        for (size_t i = 0; i < h->n; i++)
                json_array_append_new(
                        rows, sample_to_json(&h->samples[(h->next + HISTORY_MAX - h->n + i) % HISTORY_MAX]));
        pthread_mutex_unlock(&h->lock);
        json_object_set_new(o, "samples", rows);
        text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12));
        json_decref(o);
        return text;
}
