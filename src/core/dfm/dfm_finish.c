/* After a stop, the triggers that came before it still become events: the triggers in the queue, and the
 * triggers of frames that the ROSs had received. If nothing progresses for a while, the run ends without
 * them. */
#include "dfm_internal.h"

/* Whether nothing prevents further events. */
static bool may_finish(const struct dfm *d)
{
        const struct dfm_config *c = &d->config;

        return (d->cut_off || (d->n_live[ROLE_SFI] > 0 && d->n_live[ROLE_ROS] > 0)) && !d->failed &&
               !d->stalled && (c->events == 0 || d->counts.triggers < c->events);
}

void dfm_check_leaving(struct dfm *d)
{
        bool stays = false;

        for (uint32_t i = 0; i < d->config.n_sfi; i++)
                stays |= dfm_node(d, ROLE_SFI, i)->live && !d->sfis[i].leaving;
        d->only_leaving = !stays && d->state == RUN_DRAINING;
}

bool dfm_finish(struct dfm *d, uint64_t now_ns)
{
        d->finish = (struct dfm_finish){
                .on = dfm_triggers_are_outside(d) && d->state == RUN_RUNNING,
                .since_ns = now_ns,
        };
        return d->finish.on;
}

/* How many of the triggers that wait may have been read out by a board. Counted frames come in order. Whether
 * frames that are matched by number have come is unknown. */
static uint64_t n_read_out(const struct dfm *d)
{
        uint64_t next = d->table.next_event, n = 0;

        if (!d->awaits_frames || !d->stopped || !dfm_has_required_ross(d))
                return UINT64_MAX;
        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                const struct dfm_node *ros = dfm_node(d, ROLE_ROS, i);

                if (!ros->live)
                        continue;
                if (ros->flags & ALIVE_COUNTS)
                        n = MAX(n, ros->frames - MIN(ros->frames, next));
                else if (d->ross[i].frames)
                        return UINT64_MAX;
        }
        return n;
}

/* If the run has had all its triggers, further triggers were not meant to become events. */
void dfm_abandon_triggers(struct dfm *d)
{
        uint64_t not_taken = d->counts.offered.not_taken;
        const bool ends_early =
                !d->failed && (d->config.events == 0 || d->counts.triggers < d->config.events);

        if (!d->finish.on)
                return;
        d->finish.on = false;
        dfm_order_drop(d);
        dfm_triggers_drop(d);
        if (!ends_early)
                return;
        d->counts.abandoned += MIN(d->counts.offered.not_taken - not_taken, n_read_out(d));
        /* A run that stalled is over before the ROSs can answer. */
        if (!d->stalled)
                dfm_order_cut_short(d);
        dfm_order_record_absent(d);
}

/* A ROS announces the fragments that have begun, once they are whole or have waited for their frames. */
static uint64_t limit_ns(const struct dfm *d)
{
        uint64_t wait_ns = d->awaits_frames ? d->config.frame_wait_ns : d->config.node_timeout_ns;

        return d->finish.since_ns + wait_ns + (dfm_frames_trigger(d) ? d->config.frame_wait_ns : 0);
}

bool dfm_is_finishing(struct dfm *d, uint64_t now_ns)
{
        struct dfm_finish *f = &d->finish;

        if (!f->on)
                return false;
        /* Open events have time-outs of their own. */
        if (d->table.used > 0)
                f->since_ns = now_ns;
        if (!may_finish(d) || (now_ns >= limit_ns(d) && !dfm_order_end_streams(d, now_ns))) {
                dfm_abandon_triggers(d);
                return false;
        }
        f->on = dfm_triggers_waiting(&d->triggers) > 0 || (dfm_frames_trigger(d) && !dfm_order_is_over(d));
        if (!f->on) {
                dfm_triggers_drop(d);
                dfm_order_record_absent(d);
        }
        return f->on;
}

uint64_t dfm_finish_deadline_ns(const struct dfm *d)
{
        return d->table.used == 0 ? limit_ns(d) : NEVER_NS;
}
