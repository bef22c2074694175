/* Detects whether the run makes progress, and ends it otherwise. The caller decides for how long there may be
 * no progress. */
#include "dfm_internal.h"

bool dfm_has_work(const struct dfm *d)
{
        bool held_back = d->busy_since_ns != NEVER_NS;

        if (d->state != RUN_RUNNING)
                return d->state == RUN_DRAINING;
        return d->table.used > 0 || dfm_waits_for_reset(d) ||
               (held_back && (!d->awaits_frames || dfm_expects_frames(d)));
}

/* Accepted triggers are not progress: with many credits, they could hide for a long time that no event ends.
 * Lost events are not progress either: they time out because nothing progresses. */
uint64_t dfm_progress(const struct dfm *d)
{
        const struct dfm_counts *c = &d->counts;

        return c->complete + c->partial + c->rejected + d->level2.counts.accepted;
}

void dfm_stop_stalled(struct dfm *d, uint64_t now_ns)
{
        d->stalled = true;
        d->keep_alive_due_ns = now_ns;
        dfm_stop(d, now_ns);
}

static uint32_t lose_all(struct dfm *d, uint64_t now_ns, enum dfm_loss why)
{
        const struct dfm_list *lists[] = {&d->table.assigned, &d->table.writing, &d->table.orphans,
                                          &d->table.undecided, &d->table.accepted};
        uint32_t n = 0;

        dfm_abandon_triggers(d);
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
                for (; lists[i]->first != SLOT_NONE; n++)
                        dfm_lose_event(d, now_ns, lists[i]->first, why);
        }
        return n;
}

uint32_t dfm_abandon(struct dfm *d, uint64_t now_ns)
{
        return d->state == RUN_DRAINING ? lose_all(d, now_ns, DFM_LOSS_STALLED) : 0;
}

void dfm_close_accounts(struct dfm *d, uint64_t now_ns)
{
        if (!d->begun)
                return;
        /* A fault, or two signals at once, end the DFM before it drains: triggers that wait are abandoned. */
        if (d->state == RUN_RUNNING)
                (void)dfm_finish(d, now_ns);
        (void)lose_all(d, now_ns, DFM_LOSS_OPEN);
}
