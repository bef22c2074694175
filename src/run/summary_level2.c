/* Reports what level 2 decided, from the DFM's counters. */
#include "summary_level2.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/quantity.h"
#include "node/metrics/counters.h"

#define SUM(l, name) launch_sum(l, ROLE_ROS, COUNTER_##name)

bool summary_level2_balances(const struct launch *l, struct accounts *a)
{
        uint64_t ends = SUM(l, regions_sent) + SUM(l, regions_gone) + SUM(l, regions_absent) +
                        SUM(l, regions_refused) + SUM(l, regions_dropped);

        if (!a->all_lived || SUM(l, regions_requested) == ends)
                return true;
        snprintf(a->difference, sizeof a->difference,
                 "level 2 requested %" PRIu64 " fragments, but the ROSs account for %" PRIu64,
                 SUM(l, regions_requested), ends);
        return false;
}

static json_t *describe(const struct launch *l, const uint64_t *sums, json_t *latency)
{
        json_t *o = json_object(), *regions = json_object();

        counters_set(o, OBJECT_LEVEL2, COUNTER_ROLE(ROLE_DFM), sums);
        counters_set(regions, OBJECT_REGIONS, COUNTER_ROLE(ROLE_ROS), sums);
        json_object_set_new(o, "latency_us", latency);
        json_object_set(o, "regions", l->scenario->level2.regions_port > 0 ? regions : json_null());
        json_decref(regions);
        return o;
}

void summary_level2_add(json_t *report, const struct launch *l, const uint64_t *sums, json_t *latency)
{
        json_int_t rejected = (json_int_t)sums[COUNTER_events_rejected];
        json_t *o = describe(l, sums, latency);

        json_object_set_new(report, "events_rejected", json_integer(rejected));
        json_object_set(report, "level2", l->scenario->level2.port > 0 ? o : json_null());
        json_decref(o);
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
        if (l->scenario->level2.regions_port > 0)
                printf("  regions    %" PRIu64 " fragments requested by level 2, %" PRIu64
                       " sent (%s), %" PRIu64 " of events decided before, %" PRIu64 " absent, %" PRIu64
                       " refused, %" PRIu64 " dropped\n",
                       SUM(l, regions_requested), SUM(l, regions_sent),
                       quantity_format_bytes(SUM(l, regions_bytes), p50), SUM(l, regions_gone),
                       SUM(l, regions_absent), SUM(l, regions_refused), SUM(l, regions_dropped));
}
