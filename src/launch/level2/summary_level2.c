/* Reports what level 2 decided, from the DFM's counters. */
#include "summary_level2.h"

#include <inttypes.h>
#include <stdio.h>

#include "evb/base/quantity.h"

static json_t *describe(const struct launch *l, json_t *latency)
{
        const struct node_stats *s = launch_dfm(l)->stats;

        if (l->scenario->level2.port == 0) {
                json_decref(latency);
                return json_null();
        }
        return json_pack(
                "{s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "accepted", (json_int_t)stats_get(&s->level2_accepted),
                "rejected", (json_int_t)stats_get(&s->level2_rejected), "timed_out",
                (json_int_t)stats_get(&s->level2_timed_out), "late", (json_int_t)stats_get(&s->level2_late),
                "repeated", (json_int_t)stats_get(&s->level2_repeated), "unknown",
                (json_int_t)stats_get(&s->level2_unknown), "latency_us", latency);
}

void summary_level2_add(json_t *report, const struct launch *l, json_t *latency)
{
        json_int_t rejected = (json_int_t)stats_get(&launch_dfm(l)->stats->events_rejected);

        json_object_set_new(report, "events_rejected", json_integer(rejected));
        json_object_set_new(report, "level2", describe(l, latency));
}

void summary_write_level2(const struct launch *l)
{
        const struct node_stats *s = launch_dfm(l)->stats;
        const struct histogram *h = &s->level2_latency_ns;
        char p50[QUANTITY_TEXT_MAX], p99[QUANTITY_TEXT_MAX];
        uint64_t useless =
                stats_get(&s->level2_late) + stats_get(&s->level2_repeated) + stats_get(&s->level2_unknown);

        if (l->scenario->level2.port == 0)
                return;
        printf("  level 2    %" PRIu64 " accepted, %" PRIu64 " rejected, %" PRIu64 " timed out; %" PRIu64
               " decisions without effect",
               stats_get(&s->level2_accepted), stats_get(&s->level2_rejected),
               stats_get(&s->level2_timed_out), useless);
        if (h->count > 0)
                printf("; median %s, 99th percentile %s",
                       quantity_format_time(histogram_quantile(h, 0.5), p50),
                       quantity_format_time(histogram_quantile(h, 0.99), p99));
        putchar('\n');
}
