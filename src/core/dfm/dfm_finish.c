/* After a stop, the triggers that came before it still become events: the triggers in the queue, and the
 * triggers of frames that the ROSs had received. If nothing progresses for a while, the run ends without
 * them. */
#include "dfm_internal.h"

/* Whether nothing prevents further events. */
static bool may_finish(const struct dfm *d)
{
        const struct dfm_config *c = &d->config;
        bool any = false;

        for (uint32_t i = 0; i < c->n_sfi; i++)
                any |= dfm_node(d, ROLE_SFI, i)->live && !d->sfis[i].leaving;
        return any && d->n_live[ROLE_ROS] > 0 && !d->failed && !d->stalled &&
               (c->events == 0 || d->counts.triggers < c->events);
}

bool dfm_finish(struct dfm *d, uint64_t now_ns)
{
        d->finish = (struct dfm_finish){
                .on = dfm_triggers_are_outside(d) && d->state == RUN_RUNNING && !dfm_pause_holds(d),
                .since_ns = now_ns,
        };
        return d->finish.on;
}

/* Frames that are counted come in order, so a trigger whose frame has not come was read out by no board. */
static bool is_read_out(const struct dfm *d)
{
        return !d->awaits_frames || !d->stopped || !dfm_has_required_ross(d);
}

/* If the run has had all its triggers, further triggers were not meant to become events. */
void dfm_abandon_triggers(struct dfm *d)
{
        uint64_t not_taken = d->counts.offered.not_taken;

        if (!d->finish.on)
                return;
        d->finish.on = false;
        dfm_order_drop(d);
        dfm_triggers_drop(d);
        if (!d->failed && is_read_out(d) && (d->config.events == 0 || d->counts.triggers < d->config.events))
                d->counts.abandoned += d->counts.offered.not_taken - not_taken;
}

static uint64_t limit_ns(const struct dfm *d)
{
        return d->finish.since_ns + (d->awaits_frames ? d->config.frame_wait_ns : d->config.node_timeout_ns);
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
        if (!f->on)
                dfm_triggers_drop(d);
        return f->on;
}

uint64_t dfm_finish_deadline_ns(const struct dfm *d)
{
        return d->table.used == 0 ? limit_ns(d) : NEVER_NS;
}
