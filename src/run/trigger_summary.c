/* Reports what became of the triggers from outside, or of the slices of the clock: the DFM's counters. */
#include "trigger_summary.h"

#include <inttypes.h>
#include <string.h>

#include "base/util.h"
#include "node/metrics/counters.h"

static bool is_outside(const struct launch *l)
{
        return l->scenario->trigger.source_kind != TRIGGER_INTERNAL;
}

void trigger_summary_add(json_t *report, const struct launch *l, const uint64_t *sums)
{
        const struct node_stats *s = launch_dfm(l)->stats;
        unsigned known = is_outside(l) ? COUNTER_ROLE(ROLE_DFM) : 0;
        json_t *spills = known ? json_object() : json_null();

        counters_set(report, OBJECT_OUTSIDE, known, sums);
        if (known)
                counters_set(spills, OBJECT_SPILLS, known, sums);
        json_object_set_new(report, "spills", spills);
        json_object_set_new(report, "busy_seconds", json_real((double)stats_get(&s->busy_ns) / 1e9));
        json_object_set_new(report, "paused_seconds", json_real((double)stats_get(&s->paused_ns) / 1e9));
        json_object_set_new(report, "busy_datagrams",
                            strcmp(l->scenario->trigger.busy_to, "none") == 0
                                    ? json_null()
                                    : json_integer((json_int_t)stats_get(&s->busy_datagrams)));
}

void trigger_summary_write(const struct launch *l)
{
        const struct node_stats *s = launch_dfm(l)->stats;

        if (!is_outside(l))
                return;
        printf("  triggers   %" PRIu64 " offered: %" PRIu64 " refused, %" PRIu64 " repeated, %" PRIu64
               " implausible, %" PRIu64 " not taken; %" PRIu64 " datagrams lost\n",
               stats_get(&s->triggers_offered), stats_get(&s->triggers_refused),
               stats_get(&s->triggers_repeated), stats_get(&s->triggers_implausible),
               stats_get(&s->triggers_not_taken), stats_get(&s->trigger_datagrams_lost));
        if (stats_get(&s->spills_begun) > 0)
                printf("  spills     %" PRIu64 " begun, %" PRIu64 " ended, %" PRIu64 " triggers within\n",
                       stats_get(&s->spills_begun), stats_get(&s->spills_ended),
                       stats_get(&s->triggers_in_spills));
}

void trigger_summary_write_times(const struct launch *l)
{
        const struct node_stats *s = launch_dfm(l)->stats;

        printf("  busy       triggers held back for %.2f s\n", (double)stats_get(&s->busy_ns) / 1e9);
        if (stats_get(&s->paused_ns) > 0)
                printf("  paused     triggers paused for %.2f s\n", (double)stats_get(&s->paused_ns) / 1e9);
}

bool trigger_summary_balances(const struct launch *l, struct accounts *a)
{
        const struct node_stats *s = launch_dfm(l)->stats;
        uint64_t not_taken = stats_get(&s->triggers_refused) + stats_get(&s->triggers_repeated) +
                             stats_get(&s->triggers_implausible) + stats_get(&s->triggers_not_taken);
        uint64_t offered = stats_get(&s->triggers_offered), announced = stats_get(&s->numbers_announced),
                 others = stats_get(&s->numbers_confirmed) + stats_get(&s->numbers_late);

        if (!is_outside(l) || child_state(launch_dfm(l)) != NODE_ENDED)
                return true;
        if ((l->scenario->trigger.source_kind == TRIGGER_FRAMES || scenario_has_slices(l->scenario)) &&
            announced != offered + others) {
                snprintf(a->difference, sizeof a->difference,
                         "%" PRIu64 " numbers were announced, but %" PRIu64
                         " offered as triggers, and %" PRIu64 " confirmed or late",
                         announced, offered, others);
                return false;
        }
        if (offered == a->triggers + not_taken)
                return true;
        snprintf(a->difference, sizeof a->difference,
                 "%" PRIu64 " triggers were offered, but %" PRIu64 " taken and %" PRIu64 " not taken",
                 offered, a->triggers, not_taken);
        return false;
}
