/* Holds the start of the run, and pauses its triggers, when an operator commands this. Counts the paused time
 * separately from the time for which a lack of credits holds back triggers. */
#include "core/dfm.h"

#include "dfm_internal.h"

void dfm_hold_start(struct dfm *d)
{
        d->hold.held = !d->begun;
}

void dfm_release_start(struct dfm *d, uint64_t now_ns)
{
        if (d->hold.held)
                d->quorum_ns = now_ns;
        d->hold.held = false;
        d->keep_alive_due_ns = now_ns;
}

bool dfm_is_held(const struct dfm *d)
{
        return d->hold.held;
}

bool dfm_is_ready(const struct dfm *d)
{
        return d->n_live[ROLE_ROS] > 0 && dfm_has_required(d);
}

bool dfm_is_paused(const struct dfm *d)
{
        return d->hold.paused;
}

void dfm_pause(struct dfm *d, uint64_t now_ns, bool on)
{
        if (on == d->hold.paused || (on && d->state != RUN_RUNNING))
                return;
        if (on) {
                dfm_release(d, now_ns);
                d->hold.paused = true;
                d->hold.since_ns = now_ns;
        } else {
                /* The slices that have passed since then belong to the pause. */
                dfm_triggers_tick(d, now_ns);
                dfm_count_pause(d, now_ns);
                d->hold.paused = false;
        }
        dfm_ledger_changed(d);
        dfm_judge_busy(d, now_ns);
}
