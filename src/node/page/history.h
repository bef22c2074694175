/* Stores the rates of the last ten minutes, so that a page can show more than the time since it was opened.
 * One thread adds, and any thread reads. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "data/stats.h"

#define HISTORY_MAX 600

struct history_sample {
        double utc_seconds, triggers_hz, events_hz, bytes_per_second, busy_share;
};

struct history {
        pthread_mutex_t lock; /* protects `samples`, `n` and `next` */
        struct history_sample samples[HISTORY_MAX];
        size_t n, next;
        /* Time and counts at the last sample; 0: none. */
        uint64_t last_ns, triggers, events, bytes, busy_ns;
};

void history_init(struct history *h);
void history_fini(struct history *h);
/* Adds the rates since the previous call; the first call adds none. */
void history_add(struct history *h, const struct node_stats *stats, uint64_t now_ns, uint64_t utc_ns);
/* Returns {"samples": [[time, triggers, events, bytes, busy share], ...]}, the oldest first. From malloc();
 * NULL: out of memory. */
char *history_text(struct history *h);
