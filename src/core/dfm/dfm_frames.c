/* Frames that ROSs match to events by counting: the trigger of an event waits until the frame of the event
 * has arrived. So a slow front-end slows down the trigger, and its frames are never late. */
#include "dfm_internal.h"

/* A ROS that is missing frames of earlier events was left out at that time. It holds back triggers again only
 * once it has caught up, which may never happen. */
static bool bounds_triggers(const struct dfm *d, uint32_t ros)
{
        const struct dfm_node *n = dfm_node(d, ROLE_ROS, ros);

        return n->live && n->flags & ALIVE_COUNTS && !d->ross[ros].optional && !d->ross[ros].left_out &&
               n->frames >= d->table.next_event;
}

bool dfm_is_missing_frame(const struct dfm *d, uint32_t ros)
{
        return bounds_triggers(d, ros) && dfm_node(d, ROLE_ROS, ros)->frames == d->table.next_event;
}

bool dfm_has_frames(struct dfm *d)
{
        if (!d->frames_known) {
                d->frames = UINT64_MAX;
                for (uint32_t i = 0; i < d->config.n_ros; i++) {
                        if (bounds_triggers(d, i))
                                d->frames = MIN(d->frames, dfm_node(d, ROLE_ROS, i)->frames);
                }
                d->frames_known = true;
        }
        return d->table.next_event < d->frames;
}

/* Triggers that the DFM makes prove nothing, because the front-ends may not have received them. */
bool dfm_expects_frames(const struct dfm *d)
{
        bool expected = dfm_triggers_are_outside(d);

        for (uint32_t i = 0; i < d->config.n_ros && !expected; i++) {
                const struct dfm_node *n = dfm_node(d, ROLE_ROS, i);

                expected = n->live && (!(n->flags & ALIVE_COUNTS) || n->frames > d->table.next_event);
        }
        return d->awaits_frames && expected;
}
