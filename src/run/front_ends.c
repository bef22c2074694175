/* Sums the frames of all front-ends by class, for the report of the run. */
#include "summary.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/util.h"
#include "data/stats.h"

/* X(class): the counter front_end_CLASS of a ROS. */
#define CLASSES(X) X(used) X(late) X(duplicate) X(impossible) X(dropped) X(left_over)

enum class {
#define X(name) CLASS_##name,
        CLASSES(X)
#undef X
                CLASS_COUNT
};

static const char *const names[] = {
#define X(name) #name,
        CLASSES(X)
#undef X
};

struct frames {
        uint64_t frames, classes[CLASS_COUNT];
        uint64_t gaps, restarts, absent;
};

static void add(struct frames *f, const struct node_stats *s)
{
        f->frames += stats_get(&s->front_end_frames);
#define X(name) f->classes[CLASS_##name] += stats_get(&s->front_end_##name);
        CLASSES(X)
#undef X
        f->gaps += stats_get(&s->front_end_gaps);
        f->restarts += stats_get(&s->front_end_restarts);
        f->absent += stats_get(&s->fragments_absent);
}

static struct frames sum(const struct launch *l)
{
        struct frames f = {};

        for (size_t i = 0; i < l->n_children; i++)
                add(&f, l->children[i].stats);
        return f;
}

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

static bool has_front_ends(const struct launch *l)
{
        return scenario_has_front_ends(l->scenario);
}

bool front_ends_balance(const struct launch *l, char *difference, size_t size_bytes)
{
        for (size_t i = 0; i < l->n_children; i++) {
                const struct child *c = &l->children[i];
                struct frames f = {};
                uint64_t ended = 0;

                if (c->node->role != ROLE_ROS || !child_lived(c))
                        continue;
                add(&f, c->stats);
                for (size_t k = 0; k < CLASS_COUNT; k++)
                        ended += f.classes[k];
                if (!slices_balance(c, difference, size_bytes))
                        return false;
                if (ended == f.frames)
                        continue;
                snprintf(difference, size_bytes,
                         "%s read %" PRIu64 " frames of its front-end, and accounts for %" PRIu64,
                         c->node->name, f.frames, ended);
                return false;
        }
        return true;
}

json_t *front_ends_report(const struct launch *l)
{
        struct frames f = sum(l);
        json_t *o;

        if (!has_front_ends(l))
                return json_null();
        o = json_object();
        json_object_set_new(o, "frames", json_integer((json_int_t)f.frames));
        for (size_t i = 0; i < CLASS_COUNT; i++)
                json_object_set_new(o, names[i], json_integer((json_int_t)f.classes[i]));
        json_object_set_new(o, "gaps", json_integer((json_int_t)f.gaps));
        json_object_set_new(o, "restarts", json_integer((json_int_t)f.restarts));
        json_object_set_new(o, "absent", json_integer((json_int_t)f.absent));
        return o;
}

void front_ends_print(const struct launch *l)
{
        struct frames f = sum(l);

        if (!has_front_ends(l))
                return;
        printf("  frames     %" PRIu64 " read, %" PRIu64 " used, %" PRIu64 " late, %" PRIu64
               " duplicate, %" PRIu64 " impossible, %" PRIu64 " dropped, %" PRIu64 " left over; %" PRIu64
               " absent\n",
               f.frames, f.classes[CLASS_used], f.classes[CLASS_late], f.classes[CLASS_duplicate],
               f.classes[CLASS_impossible], f.classes[CLASS_dropped], f.classes[CLASS_left_over], f.absent);
}
