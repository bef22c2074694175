/* Triggers from outside under virtual time: resets, pauses, and a DFM that restarts. Each trigger counts
 * once.
 */
#include "base/random.h"
#include "scenes.h"

/* A trigger box that does not obey busy. */
struct box {
        uint64_t number, sent;
};

static void box_sends(struct box *b, struct sim *s, uint64_t until_ns, bool dfm_lives)
{
        while (sim_now_ns(s) < until_ns && !dfm_is_done(sim_dfm(s))) {
                for (int k = 0; k < 4; k++, b->number++) {
                        struct trigger_entry e = {.number = b->number};

                        b->sent++;
                        if (dfm_lives)
                                (void)dfm_offer(sim_dfm(s), sim_now_ns(s), &e);
                }
                if (dfm_lives)
                        sim_inject(s, ROLE_DFM, 0, "wake", 4);
                (void)sim_run(s, sim_now_ns(s) + NS_PER_MS / 4);
        }
}

static struct sim *begin_box(struct sim_config *c, uint64_t seed)
{
        *c = sim_standard();
        c->outside = true;
        c->push = seed % 2;
        c->events = 3000;
        c->write_ns = 200 * NS_PER_MS / 1000;
        c->faults.seed = seed;
        return sim_now = sim_new(c);
}

static void restart_dfm(struct box *b, struct sim *s, uint64_t away_ns)
{
        sim_kill(s, ROLE_DFM, 0);
        box_sends(b, s, sim_now_ns(s) + away_ns, false);
        sim_restart_dfm(s);
}

/* A reset while no DFM runs, or no further trigger: it is unknown how many were missed. */
TEST(missed_triggers_are_unclear_after_a_reset)
{
        for (uint64_t seed = 1; (seed_now = seed) <= 8; seed++) {
                struct sim_config c;
                struct sim *s = begin_box(&c, seed);
                struct trigger_entry reset = {.number = 3, .flags = TRIGGER_RESET};
                struct box b = {.number = 1000000};

                box_sends(&b, s, 50 * NS_PER_MS, true);
                restart_dfm(&b, s, 2 * NS_PER_MS);
                (void)sim_run(s, sim_now_ns(s) + 100 * NS_PER_MS);
                check(dfm_state(sim_dfm(s)) == RUN_RUNNING && dfm_counts(sim_dfm(s))->offered.unclear == 0);
                if (seed % 3 == 0)
                        reset.flags = 0;
                if (seed % 3 < 2)
                        (void)dfm_offer(sim_dfm(s), sim_now_ns(s), &reset);
                dfm_stop(sim_dfm(s), sim_now_ns(s));
                check(sim_run(s, FOREVER_NS));
                check(dfm_counts(sim_dfm(s))->offered.unclear == 1);
                check(dfm_counts(sim_dfm(s))->offered.repeated == 0);
                sim_free(s);
        }
}

/* The DFM ends in a pause, at any time after its beginning. The account is exact, although no trigger comes
 * until the run is stopped: what waited is missed. */
TEST(the_triggers_before_a_pause_are_known)
{
        uint64_t missed = 0;

        FOR_SEEDS(seed, 40)
        {
                struct sim_config c;
                struct sim *s = begin_box(&c, seed);
                struct box b = {.number = 7};
                const struct dfm_counts *d;

                box_sends(&b, s, (20 + seed * 4 % 100) * NS_PER_MS, true);
                dfm_pause(sim_dfm(s), sim_now_ns(s), true);
                (void)sim_run(s, sim_now_ns(s) + seed % 8 * 2 * NS_PER_MS + 1);
                sim_kill(s, ROLE_DFM, 0);
                (void)sim_run(s, sim_now_ns(s) + seed % 7 * NS_PER_MS);
                sim_restart_dfm(s);
                (void)sim_run(s, sim_now_ns(s) + 100 * NS_PER_MS);
                check(dfm_state(sim_dfm(s)) == RUN_RUNNING);
                dfm_stop(sim_dfm(s), sim_now_ns(s));
                check(sim_run(s, FOREVER_NS));
                d = dfm_counts(sim_dfm(s));
                check_accounts(s, &c);
                check(d->offered.unclear == 0 && d->lost == 0);
                check(b.sent == d->offered.triggers + d->offered.missed);
                missed += d->offered.missed;
                sim_free(s);
        }
        assert_true(missed > 0);
}

/* A trigger box that obeys busy, and resets all counters once, with a marker. */
static void play_reset(struct sim *s, const struct sim_config *c)
{
        struct dfm *dfm = sim_dfm(s);
        bool asked = false;

        for (uint64_t n = 0; !sim_run(s, sim_now_ns(s) + NS_PER_MS / 4);) {
                bool resets = n == c->boards.reset_at && !asked;
                struct trigger_entry e = {
                        .number = n < c->boards.reset_at ? n : n - c->boards.reset_at,
                        .flags = resets ? TRIGGER_RESET | TRIGGER_MARKER : 0,
                };

                check(sim_now_ns(s) < FOREVER_NS);
                if (dfm_busy(dfm).busy && !resets)
                        continue;
                check(dfm_offer(dfm, sim_now_ns(s), &e) <= OFFER_MARKER || n >= c->events);
                asked |= resets;
                n += !resets;
                sim_inject(s, ROLE_DFM, 0, "wake", 4);
        }
}

/* The frames carry the numbers of the triggers: each belongs to the trigger on its side of the reset, also if
 * level 2 rejected the events before it. */
TEST(frames_of_a_reset_do_not_mix)
{
        FOR_SEEDS(seed, 40)
        {
                struct sim_config c = sim_standard();
                uint64_t accepted = 0;
                struct sim *s;

                c.outside = true;
                c.push = seed % 2;
                c.events = 400;
                c.boards = (struct sim_boards){.bits = seed % 3 ? 16 : 32, .reset_at = 100 + seed * 3};
                if (seed % 4 < 3)
                        c.level2 = (struct dfm_level2_config){
                                .on = true, .timeout_ns = 60 * NS_PER_S, .window = 500};
                c.accept_percent = 40;
                /* A slow farm rejects events whose frames came long before. */
                c.farm_ns = seed % 5 < 2 ? c.timeout_ns : 2 * NS_PER_MS;
                c.faults.seed = seed;
                s = sim_now = sim_new(&c);
                play_reset(s, &c);
                check_accounts(s, &c);
                check(dfm_counts(sim_dfm(s))->offered.resets == 1);
                check(dfm_counts(sim_dfm(s))->lost == 0 && dfm_counts(sim_dfm(s))->partial == 0);
                for (uint64_t e = 0; e < c.events; e++)
                        accepted += !c.level2.on || sim_accepts(s, e);
                check(dfm_counts(sim_dfm(s))->complete == accepted && sim_wrong_bytes(s) == 0);
                for (uint32_t i = 0; i < c.n_ros; i++) {
                        const struct ros_counts *r = ros_counts(sim_ros(s, i));

                        check(r->used == c.events && r->absent == 0 && r->late == 0 && r->left_over == 0);
                }
                sim_free(s);
        }
}
