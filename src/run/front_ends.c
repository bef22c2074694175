/* Sums the frames of all front-ends by class, for the report of the run. */
#include "summary.h"

#include <inttypes.h>
#include <math.h>
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

/* ---- The clocks of boards whose frames have times. ---- */

static bool has_clock(const struct child *c)
{
        return c->node->role == ROLE_ROS && stats_get(&c->stats->board_clock_known);
}

static double drift_ppm(const struct child *c)
{
        return (double)(int64_t)stats_get(&c->stats->board_drift_ppb) / 1e3;
}

static double drift_error_ppm(const struct child *c)
{
        return (double)stats_get(&c->stats->board_drift_error_ppb) / 1e3;
}

/* Returns the first ROS whose board has a known clock, against which the others are compared; NULL: none. */
static const struct child *first_clock(const struct launch *l)
{
        for (size_t i = 0; i < l->n_children; i++) {
                if (has_clock(&l->children[i]))
                        return &l->children[i];
        }
        return NULL;
}

static double ahead_s(const struct child *c, const struct child *of)
{
        return (double)(int64_t)(stats_get(&c->stats->board_ahead_ns) -
                                 stats_get(&of->stats->board_ahead_ns)) /
               NS_PER_S;
}

static json_t *clocks_report(const struct launch *l)
{
        const struct child *first = first_clock(l);
        json_t *all = json_array();

        for (size_t i = 0; first && i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                json_t *o;

                if (!has_clock(c))
                        continue;
                o = json_object();
                json_object_set_new(o, "name", json_string(c->node->name));
                json_object_set_new(o, "ahead_seconds", json_real(ahead_s(c, first)));
                json_object_set_new(o, "drift_ppm", json_real(drift_ppm(c)));
                json_object_set_new(o, "drift_error_ppm", json_real(drift_error_ppm(c)));
                json_array_append_new(all, o);
        }
        return all;
}

static void clocks_print(const struct launch *l)
{
        const struct child *first = first_clock(l);

        for (size_t i = 0; first && i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                double ahead = has_clock(c) ? ahead_s(c, first) : 0;

                if (!has_clock(c))
                        continue;
                printf("%s%s %+.1f ppm (within %.1f)", c == first ? "  clocks     " : "; ", c->node->name,
                       drift_ppm(c), drift_error_ppm(c));
                if (c != first)
                        printf(" and %.6f s %s %s", fabs(ahead), ahead < 0 ? "behind" : "ahead of",
                               first->node->name);
        }
        if (first)
                putchar('\n');
}

json_t *front_ends_report(const struct launch *l, const uint64_t sums[static COUNTERS])
{
        json_t *o;

        if (!scenario_has_front_ends(l->scenario))
                return json_null();
        o = json_object();
        counters_set(o, OBJECT_FRONT_ENDS, COUNTER_ROLE(ROLE_ROS), sums);
        json_object_set_new(o, "clocks", clocks_report(l));
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
        clocks_print(l);
}
