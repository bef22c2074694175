/* Sums the frames of all front-ends by class, for the report of the run. */
#include "summary.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/util.h"
#include "data/stats.h"
#include "node/metrics/counters.h"

/* Checks that each frame with a time is in a slice, each joined one in a fragment, or counts in another
 * class. */
static bool slices_balance(const struct child *c, char *difference, size_t size_bytes)
{
        const struct node_stats *s = c->stats;
        uint64_t ended = stats_get(&s->slice_frames_used) + stats_get(&s->slice_frames_late) +
                         stats_get(&s->slice_frames_dropped) + stats_get(&s->slice_frames_left_over);

        if (ended == stats_get(&s->slice_frames))
                return true;
        snprintf(difference, size_bytes,
                 "%s read %" PRIu64 " frames for slices or joined fragments, and accounts for %" PRIu64,
                 c->node->name, stats_get(&s->slice_frames), ended);
        return false;
}

bool front_ends_balance(const struct launch *l, char *difference, size_t size_bytes)
{
        for (size_t i = 0; i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                const struct node_stats *s = c->stats;
                uint64_t ended = stats_get(&s->front_end_used) + stats_get(&s->front_end_late) +
                                 stats_get(&s->front_end_duplicate) + stats_get(&s->front_end_impossible) +
                                 stats_get(&s->front_end_dropped) + stats_get(&s->front_end_left_over);

                if (c->node->role != ROLE_ROS || !child_lived(c))
                        continue;
                if (!slices_balance(c, difference, size_bytes))
                        return false;
                if (ended == stats_get(&s->front_end_frames))
                        continue;
                snprintf(difference, size_bytes,
                         "%s read %" PRIu64 " frames of its front-end, and accounts for %" PRIu64,
                         c->node->name, stats_get(&s->front_end_frames), ended);
                return false;
        }
        return true;
}

json_t *front_ends_report(const struct launch *l, const uint64_t sums[static COUNTERS])
{
        json_t *o;

        if (!scenario_has_front_ends(l->scenario))
                return json_null();
        o = json_object();
        counters_set(o, OBJECT_FRONT_ENDS, COUNTER_ROLE(ROLE_ROS), sums);
        return o;
}

#define SUM(l, name) launch_sum(l, ROLE_ROS, COUNTER_##name)

void front_ends_print(const struct launch *l)
{
        if (!scenario_has_front_ends(l->scenario))
                return;
        printf("  frames     %" PRIu64 " read, %" PRIu64 " used, %" PRIu64 " late, %" PRIu64
               " duplicate, %" PRIu64 " impossible, %" PRIu64 " dropped, %" PRIu64 " left over; %" PRIu64
               " absent\n",
               SUM(l, front_end_frames), SUM(l, front_end_used), SUM(l, front_end_late),
               SUM(l, front_end_duplicate), SUM(l, front_end_impossible), SUM(l, front_end_dropped),
               SUM(l, front_end_left_over), SUM(l, fragments_absent));
}
