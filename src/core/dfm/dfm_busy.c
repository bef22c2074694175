/* Counts the time for which triggers are held back, and decides whether a trigger from outside should pause.
 * The signal comes before the DFM must refuse triggers, and ends at a lower threshold, so that it does not
 * flap. data/busy_output.c sends it. */
#include "dfm_internal.h"

/* Busy depends on the share of this many waiting triggers, so that a box that obeys it leaves most of a large
 * queue to triggers that come nevertheless. */
#define QUEUE_BUSY 4096u

/* Share of the SFIs' credits in use; the full share if there are no credits. */
static uint64_t credits_permille(const struct dfm *d)
{
        uint64_t free = 0, held = 0;

        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                free += dfm_sfi_free(d, &d->sfis[i]);
                if (dfm_sfi_is_live(d, &d->sfis[i]))
                        held += d->sfis[i].held;
        }
        return free == 0 ? 1000 : 1000 * held / (free + held);
}

static bool output_is_slow(const struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_sfi; i++) {
                const struct dfm_node *n = dfm_node(d, ROLE_SFI, i);

                if (n->live && (n->reason == REASON_SLOW_OUTPUT || n->reason == REASON_DISK_FULL))
                        return true;
        }
        return false;
}

static uint64_t undecided_permille(const struct dfm *d)
{
        return d->config.level2.on ? UINT64_C(1000) * d->table.n_undecided / dfm_level2_limit(d) : 0;
}

static uint64_t queue_permille(const struct dfm_triggers *q)
{
        uint32_t size = MIN(q->size, QUEUE_BUSY);

        return size > 0 ? UINT64_C(1000) * MIN(dfm_triggers_waiting(q), size) / size : 0;
}

bool dfm_waits_for_reset(const struct dfm *d)
{
        const struct dfm_triggers *q = &d->triggers;

        return q->size > 0 && dfm_makes_events(d) && (dfm_reset_is_pending(q) || !q->known);
}

static enum busy_reason judge(const struct dfm *d)
{
        const struct dfm_config *c = &d->config;
        uint64_t threshold = d->busy.busy ? c->busy_below_permille : c->busy_above_permille;
        uint64_t queued = queue_permille(&d->triggers), undecided = undecided_permille(d);
        uint64_t used = MAX(MAX(credits_permille(d), queued), undecided);

        if (d->state != RUN_RUNNING)
                return BUSY_STOPPED;
        if (d->hold.paused)
                return BUSY_PAUSED;
        if (d->n_xoff > 0)
                return BUSY_XOFF;
        if (d->n_live[ROLE_ROS] == 0)
                return BUSY_FRAMES;
        if (dfm_waits_for_reset(d))
                return BUSY_RESET;
        /* Busy ends below the lower threshold and begins at the upper one. */
        if (d->busy.busy ? used <= threshold : used < threshold)
                return BUSY_NOT;
        if (undecided == used)
                return BUSY_LEVEL2;
        if (d->awaits_frames && queued == used)
                return BUSY_FRAMES;
        return output_is_slow(d) ? BUSY_OUTPUT : BUSY_CREDITS;
}

/* Frames arrive after their trigger from outside. Waiting for them counts as busy only once the DFM has
 * reported busy. */
static bool waits_as_usual(const struct dfm *d)
{
        return d->awaits_frames && dfm_triggers_are_outside(d) && !d->busy.busy;
}

static void count_busy(struct dfm *d, uint64_t now_ns)
{
        if (!d->frames_usual)
                d->counts.busy_ns += now_ns - d->busy_since_ns;
}

void dfm_hold_back(struct dfm *d, uint64_t now_ns)
{
        /* This time counts as part of the pause. */
        if (d->hold.paused)
                return;
        if (d->busy_since_ns != NEVER_NS)
                count_busy(d, now_ns);
        d->busy_since_ns = now_ns;
        d->frames_usual = waits_as_usual(d);
}

void dfm_release(struct dfm *d, uint64_t now_ns)
{
        if (d->busy_since_ns == NEVER_NS)
                return;
        count_busy(d, now_ns);
        d->busy_since_ns = NEVER_NS;
        trigger_hold(&d->trigger, now_ns);
}

void dfm_count_pause(struct dfm *d, uint64_t now_ns)
{
        if (!d->hold.paused)
                return;
        d->counts.paused_ns += now_ns - d->hold.since_ns;
        trigger_shift(&d->trigger, now_ns - d->hold.since_ns);
        d->hold.since_ns = now_ns;
}

void dfm_judge_busy(struct dfm *d, uint64_t now_ns)
{
        if (d->config.busy_above_permille == 0)
                return;
        d->busy.reason = judge(d);
        d->busy.busy = d->busy.reason != BUSY_NOT;
        d->busy.last = d->triggers.last;
        /* If a trigger source obeys the busy signal, the queue is empty, but the time still counts. */
        if (d->triggers.size == 0 || d->state != RUN_RUNNING)
                return;
        if (d->busy.busy)
                dfm_hold_back(d, now_ns);
        else if (dfm_triggers_waiting(&d->triggers) == 0)
                dfm_release(d, now_ns);
}

struct busy_packet dfm_busy(const struct dfm *d)
{
        return d->busy;
}
