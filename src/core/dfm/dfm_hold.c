/* What an operator commands: holds the start of the run, pauses its triggers, and changes settings while it
 * runs. Counts the paused time separately from the time for which a lack of credits holds back triggers. */
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

bool dfm_is_ready(const struct dfm *d)
{
        return d->n_live[ROLE_ROS] > 0 && dfm_has_required(d);
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

void dfm_change(struct dfm *d, uint64_t now_ns, const struct dfm_settings *to)
{
        struct dfm_config *c = &d->config;
        bool other_triggers = c->trigger_kind != to->trigger_kind ||
                              c->trigger_rate_millihertz != to->trigger_rate_millihertz;

        dfm_count_pause(d, now_ns);
        c->trigger_kind = to->trigger_kind;
        c->trigger_rate_millihertz = to->trigger_rate_millihertz;
        if (d->state < RUN_DRAINING)
                c->leave_timeout_ns = to->leave_timeout_ns;
        /* The schedule begins with the run. A trigger that was held back may no longer be due. */
        if (d->begun && other_triggers) {
                dfm_release(d, now_ns);
                trigger_change(&d->trigger, now_ns, to->trigger_kind, to->trigger_rate_millihertz,
                               c->trigger_burst);
        }
}
