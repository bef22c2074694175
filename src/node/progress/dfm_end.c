/* Decides when a run without progress ends, and accounts for its open events. */
#include "progress.h"

#include "base/log.h"
#include "base/util.h"
#include "../dfm_reasons.h"

/* A ROS that held back triggers until the end may not have received which events were cleared. */
static void record_end(const struct node *n, const struct dfm *core, struct dfm_end *e, uint64_t now_ns)
{
        uint64_t age_ns = stall_age_ns(&n->stall, now_ns);

        if (e->recorded || dfm_state(core) <= RUN_RUNNING)
                return;
        e->recorded = true;
        if (age_ns > 0)
                stall_describe_end(core, n->scenario, age_ns, e->held, sizeof e->held);
}

static void end_run(struct node *n, struct dfm *core, struct dfm_end *e, uint64_t now_ns)
{
        bool drains = dfm_state(core) == RUN_DRAINING;
        char text[OBSTACLE_TEXT_MAX + 32];

        obstacle_format(&n->stall.now, now_ns, text, sizeof text);
        snprintf(e->reason, sizeof e->reason, "the run made no progress for %.0f s: %s",
                 (double)stall_age_ns(&n->stall, now_ns) / NS_PER_S, text);
        log_error("%s; ending it (run.stall-timeout)", e->reason);
        n->ended_by_stall = true;
        e->abandon_ns = drains ? now_ns : now_ns + n->scenario->run.stop_timeout_ns;
        dfm_stop_stalled(core, now_ns);
}

/* Whether the run has been stalled for `limit_ns`. Uses the age at the last check for progress, which
 * accounts for pauses of this process; any progress since then means that the run is not stalled. For a
 * stopped run, run.stop-timeout applies instead. */
static bool is_stalled(const struct node *n, const struct dfm *core, uint64_t limit_ns, uint64_t now_ns)
{
        return dfm_state(core) < RUN_ENDED && !n->is_stopped &&
               stall_age_ns(&n->stall, n->stall.turn_ns) >= limit_ns &&
               n->kind->work(n, now_ns).progress == n->stall.work.progress;
}

void dfm_end_turn(struct node *n, struct dfm *core, struct dfm_end *e, uint64_t now_ns)
{
        uint64_t limit_ns = n->scenario->run.stall_timeout_ns;

        if (limit_ns > 0 && !e->reason[0] && is_stalled(n, core, limit_ns, now_ns))
                end_run(n, core, e, now_ns);
        record_end(n, core, e, now_ns);
        /* As long as events end, the open ones may end as well. */
        if (e->reason[0] && now_ns >= e->abandon_ns && stall_age_ns(&n->stall, now_ns) > 0)
                e->abandoned += dfm_abandon(core, now_ns);
}

void dfm_end_reasons(const struct dfm_end *e, struct reasons *to)
{
        if (e->reason[0])
                reasons_add(to, "%s", e->reason);
        if (e->abandoned > 0)
                reasons_add(to, "it gave up %u event%s that did not end: files may hold %s", e->abandoned,
                            e->abandoned == 1 ? "" : "s", e->abandoned == 1 ? "it" : "some of them");
        if (e->held[0])
                reasons_add(to, "%s", e->held);
}
