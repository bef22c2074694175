/* Level 2 under virtual time: whatever the network, the farm and the nodes do, every trigger ends once, and
 * no rejected event is built. */
#include "core/ros_regions.h"
#include "scenes.h"

static void level2(struct sim_config *c, bool push)
{
        (void)push;
        c->level2 = (struct dfm_level2_config){.on = true, .timeout_ns = 60 * NS_PER_S, .window = 500};
        c->accept_percent = 30;
        c->farm_ns = 5 * NS_PER_MS;
        c->events = 600;
}

/* Every event is built once if the farm accepts it, and never otherwise. */
static void verify_decisions(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        const struct dfm_level2_counts *l = dfm_level2_counts(sim_dfm(s));
        uint64_t accepted = 0;

        check_accounts(s, c);
        for (uint64_t e = 0; e < c->events; e++) {
                bool is_accepted = sim_accepts(s, e);

                accepted += is_accepted;
                check(sim_event(s, e)->complete == is_accepted && sim_event(s, e)->partial == 0);
        }
        check(d->triggers == c->events && d->complete == accepted && d->rejected == c->events - accepted);
        check(l->accepted == accepted && l->rejected == d->rejected);
        check(l->timed_out == 0 && l->late == 0 && l->repeated == 0 && l->unknown == 0);
}

static void verify_room(struct sim *s, const struct sim_config *c)
{
        verify_decisions(s, c);
        for (uint32_t i = 0; i < c->n_ros; i++) {
                const struct ros_counts *r = ros_counts(sim_ros(s, i));

                check(r->used == c->events && r->full == 0 && r->dropped == 0 && r->left_over == 0);
        }
        check(dfm_counts(sim_dfm(s))->busy_ns > 0);
}

/* The buffers of the ROSs hold fewer undecided events than the window, and a frame without room is lost. The
 * farm is slow, so triggers wait for it. */
SCENE(with_large_frames, 6, verify_room)
{
        level2(c, push);
        c->boards = (struct sim_boards){.bits = 32};
        c->fragment_bytes = 30000;
        c->ros_buffer_bytes = 8 << 20;
        c->level2.window = 2000;
        c->events = 1500;
        c->rate_millihertz = 5000000;
        c->timeout_ns = 20 * NS_PER_S;
        c->farm_ns = 100 * NS_PER_MS;
}

static void verify_time_outs(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        const struct dfm_level2_counts *l = dfm_level2_counts(sim_dfm(s));

        check_accounts(s, c);
        check(d->triggers == c->events && d->triggers == d->complete + d->rejected);
        check(d->triggers == l->accepted + l->rejected + l->timed_out && l->timed_out > 0 && l->late > 0);
        for (uint64_t e = 0; e < c->events; e++) {
                uint16_t complete = sim_event(s, e)->complete;

                /* A time-out can only change the decision in one direction. */
                check(c->level2.accept_undecided ? complete >= sim_accepts(s, e)
                                                 : complete <= sim_accepts(s, e));
        }
        check_empty(s, c);
}

SCENE(while_the_farm_is_away, 20, verify_time_outs)
{
        level2(c, push);
        c->level2.timeout_ns = 10 * NS_PER_MS;
        c->level2.accept_undecided = c->faults.seed % 2;
        c->farm_away_from_ns = 20 * NS_PER_MS + c->faults.seed % 20 * NS_PER_MS;
        c->farm_away_until_ns = c->farm_away_from_ns + 40 * NS_PER_MS;
        c->farm_ns = 7 * NS_PER_MS; /* some decisions come too late */
}

static void check_regions(struct sim *s, const struct sim_config *c)
{
        for (uint32_t i = 0; i < c->n_ros; i++) {
                const struct ros_region_counts *g = ros_region_counts(sim_ros(s, i));

                check(g->open == 0);
                check(g->requests == g->sent + g->gone + g->absent + g->refused + g->dropped);
                check(g->refused == 0);
        }
}

static void verify_decided_events(struct sim *s, const struct sim_config *c)
{
        const struct sim_regions *g = sim_regions(s);

        check_accounts(s, c);
        check_regions(s, c);
        check(dfm_counts(sim_dfm(s))->triggers == c->events && dfm_counts(sim_dfm(s))->lost == 0);
        check(dfm_level2_counts(sim_dfm(s))->timed_out > 0 && g->answers[FRAGMENT_DISCARDED] > 0);
        check(g->answers[FRAGMENT_OK] > 0);
}

/* Some events time out while the farm waits for their fragments: the ROSs answer that they are gone. */
SCENE(regions_of_decided_events, 8, verify_decided_events)
{
        level2(c, push);
        c->boards = (struct sim_boards){.bits = 32, .missed = 0.02, .late = 0.2, .late_ns = 30 * NS_PER_MS};
        c->timeout_ns = 200 * NS_PER_MS;
        c->level2.timeout_ns = 10 * NS_PER_MS;
        c->level2.accept_undecided = c->faults.seed % 3;
        c->farm_regions = c->n_ros;
}

static void verify_boards(struct sim *s, const struct sim_config *c)
{
        const struct sim_regions *g = sim_regions(s);
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        check_regions(s, c);
        check(d->triggers == c->events && d->lost == 0);
        check(g->answers[FRAGMENT_OK] > c->events / 2 && g->answers[FRAGMENT_PENDING] > 0);
}

/* Boards miss triggers, deliver late, and count to 65536: the farm never gets a fragment of another event. */
SCENE(regions_of_boards, 10, verify_boards)
{
        level2(c, push);
        c->boards = (struct sim_boards){
                .bits = 16, .from = 65500, .missed = 0.02, .late = 0.05, .late_ns = 30 * NS_PER_MS};
        c->timeout_ns = 200 * NS_PER_MS;
        c->farm_regions = 1 + c->faults.seed % c->n_ros;
}
