/* Plays a history: does to the nodes what was drawn, sends the triggers of the box, and lets the run drain.
 */
#include "base/util.h"
#include "history.h"

#define STEP_NS (250 * NS_PER_US)
/* All time-outs pass several times. */
#define END_NS (120 * NS_PER_S)
/* A ROS reads on after the end, until the longest wait for frames of a fragment has passed. */
#define SETTLE_NS (150 * NS_PER_MS)
/* Longer than any frame of a board is late. */
#define RESET_NS (700 * NS_PER_MS)
#define RESET_AGAIN_NS NS_PER_S
/* Own triggers of boards: from the last one to the stop. */
#define REST_NS (4 * NS_PER_S)

static bool dfm_lives(const struct history *h)
{
        return site_lives(h->site, ROLE_DFM, 0);
}

/* The box resets all counters as docs/detectors.md says. False: it still waits. */
static bool resets(struct history *h)
{
        const struct trigger_entry e = {.flags = TRIGGER_RESET | TRIGGER_MARKER};
        uint64_t at = h->config.boards.reset_at, now_ns = site_now_ns(h->site);
        struct history_box *box = &h->box;
        struct busy_packet busy;

        if (at == 0 || box->sent != at)
                return true;
        busy = dfm_lives(h) ? dfm_busy(site_dfm(h->site))
                            : (struct busy_packet){.busy = true, .reason = BUSY_STOPPED};
        /* The DFM has discarded the reset. */
        box->asked &= !(busy.busy && busy.reason == BUSY_STOPPED);
        if (box->asked) {
                box->confirmed |= busy.busy && busy.reason == BUSY_RESET;
                box->asked = box->confirmed || now_ns - box->last_ns < RESET_AGAIN_NS;
                return box->confirmed && !busy.busy;
        }
        if (now_ns - box->last_ns < h->config.timeout_ns + RESET_NS || busy.reason == BUSY_STOPPED)
                return false;
        box->asked = true;
        box->last_ns = now_ns;
        (void)dfm_offer(site_dfm(h->site), now_ns, &e);
        box->confirmed = dfm_busy(site_dfm(h->site)).reason == BUSY_RESET;
        return false;
}

static void send_trigger(struct history *h)
{
        uint64_t trigger = h->box.sent++, reset_at = h->config.boards.reset_at;
        bool is_after = reset_at > 0 && trigger >= reset_at;
        struct trigger_entry e = {.number = is_after ? trigger - reset_at : trigger,
                                  .type = is_after ? SITE_AFTER_RESET : 3};

        h->box.last_ns = site_now_ns(h->site);
        if (h->config.boards.boxed)
                site_boards_trigger_now(h->site, trigger);
        if (dfm_lives(h))
                (void)dfm_offer(site_dfm(h->site), site_now_ns(h->site), &e);
}

static void stop_now(struct history *h)
{
        if (h->stops_all)
                site_stop_nodes(h->site);
        dfm_stop(site_dfm(h->site), site_now_ns(h->site));
}

/* The box receives no busy signal while no DFM runs, and continues for a while. */
static void box_sends(struct history *h)
{
        uint64_t n;

        /* No board is read out before the run begins. */
        if (!h->box.on || (h->box.sent == 0 && dfm_state(site_dfm(h->site)) != RUN_RUNNING))
                return;
        /* In thousandths of a trigger. */
        h->box.due += random_below(&h->random, 2 * h->config.rate_millihertz * STEP_NS / NS_PER_S + 1);
        n = h->box.due / 1000;
        h->box.due %= 1000;
        for (; n > 0 && h->box.sent < h->config.events; n--) {
                if (!resets(h) || (h->box.obeys && dfm_lives(h) && dfm_busy(site_dfm(h->site)).busy))
                        break;
                send_trigger(h);
        }
        if (!dfm_lives(h))
                return;
        if (h->box.stops && h->box.sent == h->config.events && dfm_state(site_dfm(h->site)) == RUN_RUNNING)
                stop_now(h);
        site_wake_dfm(h->site);
}

/* True: the run is over. */
static bool pass_until(struct history *h, uint64_t until_ns)
{
        while (site_now_ns(h->site) < until_ns) {
                bool sends = h->box.on && h->box.sent < h->config.events;
                uint64_t next_ns = sends ? MIN(until_ns, site_now_ns(h->site) + STEP_NS) : until_ns;

                if (sends)
                        box_sends(h);
                if (site_run(h->site, next_ns) && dfm_lives(h))
                        return true;
                if (site_now_ns(h->site) < next_ns)
                        return false;
        }
        return false;
}

static void record_death(struct history *h, const struct history_action *a)
{
        enum run_state state = ros_run_state(site_ros(h->site, a->index));

        if (a->act == ACT_REPLACE_ROS)
                history_record_frames(h, a->index);
        h->has_lost_ros |= state == RUN_RUNNING || state == RUN_DRAINING;
}

/* A DFM that took over the run meanwhile is not paused. */
static void pause_dfm(struct history *h, bool on)
{
        if (!dfm_lives(h))
                return;
        dfm_pause(site_dfm(h->site), site_now_ns(h->site), on);
        site_wake_dfm(h->site);
}

static void begin_action(struct history *h, const struct history_action *a)
{
        enum node_role role = a->act == ACT_DFM ? ROLE_DFM : a->act >= ACT_CUT_ROS ? ROLE_ROS : ROLE_SFI;

        if (a->act == ACT_PAUSE) {
                pause_dfm(h, true);
                return;
        }
        if (a->act == ACT_CUT_SFI || a->act == ACT_CUT_ROS) {
                site_cut(h->site, role, a->index, true);
                return;
        }
        /* A DFM that ended its run is not in anyone's way: no other one takes it over. */
        if (a->act == ACT_DFM && dfm_state(site_dfm(h->site)) == RUN_ENDED)
                return;
        if (a->act >= ACT_REPLACE_ROS && site_lives(h->site, role, a->index))
                record_death(h, a);
        h->dead_ross |= a->act >= ACT_REPLACE_ROS ? 1u << a->index : 0;
        site_kill(h->site, role, a->index);
        h->has_deaths = true;
}

static void end_action(struct history *h, const struct history_action *a)
{
        switch (a->act) {
        case ACT_DFM:
                if (!dfm_lives(h))
                        site_restart(h->site, ROLE_DFM, 0);
                break;
        case ACT_CUT_SFI:
                site_cut(h->site, ROLE_SFI, a->index, false);
                break;
        case ACT_REPLACE_SFI:
                site_restart(h->site, ROLE_SFI, a->index);
                break;
        case ACT_KILL_SFI:
        case ACT_KILL_ROS:
                break;
        case ACT_CUT_ROS:
                site_cut(h->site, ROLE_ROS, a->index, false);
                break;
        case ACT_REPLACE_ROS:
                site_restart(h->site, ROLE_ROS, a->index);
                break;
        case ACT_PAUSE:
                if (a->for_ns > 0)
                        pause_dfm(h, false);
                break;
        }
}

/* The next begin or end of an action; its time, or NEVER_NS. */
static uint64_t next_step(const struct history *h, uint64_t after, size_t *ret)
{
        uint64_t best = NEVER_NS;

        for (size_t k = 0; k < 2 * h->n_actions; k++) {
                const struct history_action *a = &h->actions[k / 2];
                /* Times are made different, so that none is passed over. */
                uint64_t at_ns = (a->at_ns + (k % 2 ? a->for_ns + 1 : 0)) * 16 + k;

                if (at_ns > after && at_ns < best) {
                        best = at_ns;
                        *ret = k;
                }
        }
        return best;
}

/* False: the run ended before all were done. */
static bool play_actions(struct history *h)
{
        uint64_t at = 0;
        size_t k = 0;

        while ((at = next_step(h, at, &k)) != NEVER_NS) {
                if (pass_until(h, at / 16))
                        return false;
                (k % 2 ? end_action : begin_action)(h, &h->actions[k / 2]);
        }
        return true;
}

static void stop(struct history *h)
{
        for (int i = 0; i < 100 && dfm_state(site_dfm(h->site)) == RUN_STARTING; i++) {
                if (pass_until(h, site_now_ns(h->site) + 100 * NS_PER_MS))
                        return;
        }
        stop_now(h);
        site_wake_dfm(h->site);
}

/* If frames make the triggers, announced numbers may wait at the stop for frames that no board has: as many
 * at a time as one SFI has credits, each for at most the time-out of an event. */
static uint64_t drains_ns(const struct history *h)
{
        const struct site_config *c = &h->config;
        bool by_frames = c->boards.free > 0 || c->slices.slice_ns > 0;
        uint64_t numbers = by_frames ? c->events : 0;

        return END_NS + numbers * SITE_EVENT_TIMEOUTS * c->timeout_ns / (c->sfi_credits ?: 64);
}

static bool play_to_the_end(struct history *h)
{
        const struct site_config *c = &h->config;

        if (!play_actions(h))
                return true;
        while (h->box.on && h->box.sent < c->events && site_now_ns(h->site) < END_NS) {
                if (pass_until(h, site_now_ns(h->site) + 10 * NS_PER_MS))
                        return true;
        }
        if (h->box.on || c->boards.free > 0 || c->slices.slice_ns > 0) {
                if (pass_until(h, MAX(site_now_ns(h->site), history_run_ns(h)) + REST_NS))
                        return true;
                stop(h);
        }
        return site_run(h->site, site_now_ns(h->site) + drains_ns(h));
}

void history_play(struct history *h)
{
        const struct dfm_counts *d;

        h->site = site_new(&h->config);
        h->cookie = dfm_cookie(site_dfm(h->site));
        if (play_to_the_end(h)) {
                site_settle(h->site, SETTLE_NS);
                h->live = site_live_finish(h->site);
                return;
        }
        d = dfm_counts(site_dfm(h->site));
        history_violate(h, "the run does not end: state %u, %llu triggers, %u events open",
                        (unsigned)dfm_state(site_dfm(h->site)), (unsigned long long)d->triggers,
                        dfm_open_events(site_dfm(h->site)));
}
