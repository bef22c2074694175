/* Changes the settings of a running DFM. */
#include "dfm_internal.h"

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
