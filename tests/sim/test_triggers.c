/* Triggers from outside under virtual time: a board that obeys the busy signal, resets its counters now and
 * then, and continues while the DFM restarts. Every trigger ends once, whatever the network loses. */
#include "base/random.h"
#include "scenes.h"

/* Resets take a round trip and the end of all open events. */
#define RESET_ONE_IN 150

struct board {
        struct random random;
        uint64_t number, offered, resets;
        bool reset_due, restarted;
};

/* Sends some triggers if the DFM is ready. */
static void board_sends(struct board *b, struct sim *s, bool dfm_lives)
{
        struct dfm *dfm = sim_dfm(s);
        uint64_t n = random_below(&b->random, 6);

        for (uint64_t k = 0; k < n; k++) {
                bool reset = random_below(&b->random, RESET_ONE_IN) == 0;
                struct trigger_entry e = {.flags = reset ? TRIGGER_RESET : 0, .type = 3};

                b->number = reset ? random_below(&b->random, 1000) : b->number + 1;
                e.number = b->number;
                if (!dfm_lives || dfm_busy(dfm).busy) {
                        /* It keeps a reset that was not received by any DFM. */
                        b->reset_due |= reset;
                        continue;
                }
                e.flags |= b->reset_due ? TRIGGER_RESET : 0;
                b->reset_due = false;
                b->resets += (e.flags & TRIGGER_RESET) != 0;
                b->offered++;
                check(dfm_offer(dfm, sim_now_ns(s), &e) == OFFER_QUEUED);
        }
        if (dfm_lives)
                sim_inject(s, ROLE_DFM, 0, "wake", 4);
}

static bool play(struct board *b, struct sim *s, uint64_t until_ns, bool dfm_lives)
{
        while (sim_now_ns(s) < until_ns) {
                board_sends(b, s, dfm_lives);
                if (sim_run(s, sim_now_ns(s) + NS_PER_MS / 4))
                        return true;
        }
        return false;
}

static void check_offered(struct sim *s, const struct board *b)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        const struct dfm_offered *o = &d->offered;

        check(o->refused == 0 && o->repeated == 0 && o->implausible == 0);
        check(b->restarted || (o->missed == 0 && o->unclear == 0));
        check(dfm_waiting(sim_dfm(s)) == 0);
}

static void whole_run(bool push, double loss, uint64_t seeds)
{
        FOR_SEEDS(seed, seeds)
        {
                struct sim_config c = sim_standard();
                struct board b = {.number = seed * 1000000};
                const struct dfm_counts *d;
                struct sim *s;

                random_init(&b.random, seed);
                c.outside = true;
                c.push = push;
                c.events = 400;
                c.faults.loss = loss;
                c.faults.seed = seed;
                s = sim_now = sim_new(&c);
                check(play(&b, s, FOREVER_NS, true));
                check_accounts(s, &c);
                check_offered(s, &b);
                d = dfm_counts(sim_dfm(s));
                check(d->triggers == c.events && d->lost == 0);
                check(d->offered.triggers == d->triggers + d->offered.not_taken);
                check(d->offered.triggers == b.offered && d->offered.resets == b.resets);
                for (uint64_t e = 0; e < c.events; e++)
                        check(sim_event(s, e)->complete == 1 || loss > 0);
                sim_free(s);
        }
}

TEST(push)
{
        whole_run(true, 0, 10);
        whole_run(true, 0.05, 40);
}

TEST(pull)
{
        whole_run(false, 0, 10);
        whole_run(false, 0.05, 40);
}

static struct sim_config restart_config(uint64_t seed)
{
        struct sim_config c = sim_standard();

        c.outside = true;
        c.push = seed % 2;
        c.events = 500;
        c.faults.loss = seed % 3 ? 0.02 : 0;
        c.faults.seed = seed;
        return c;
}

/* Triggers continue while the DFM is away. Free with sim_free(). */
static struct sim *play_restart(const struct sim_config *c, uint64_t seed)
{
        struct board b = {.restarted = true};
        struct sim *s;

        random_init(&b.random, seed);
        s = sim_now = sim_new(c);
        check(!play(&b, s, 20 * NS_PER_MS + seed * NS_PER_MS, true));
        sim_kill(s, ROLE_DFM, 0);
        play(&b, s, sim_now_ns(s) + 3 * NS_PER_MS, false);
        sim_restart_dfm(s);
        check(play(&b, s, FOREVER_NS, true));
        check_accounts(s, c);
        check_offered(s, &b);
        check(dfm_counts(sim_dfm(s))->triggers == c->events);
        return s;
}

/* A new DFM has no record of waiting triggers, nor of events that no SFI has: these are lost, but counted,
 * and the run continues. */
TEST(the_dfm_restarts)
{
        FOR_SEEDS(seed, 60)
        {
                struct sim_config c = restart_config(seed);
                struct sim *s = play_restart(&c, seed);

                check(dfm_counts(sim_dfm(s))->lost < 100);
                sim_free(s);
        }
}

/* Level 2 decides about triggers from outside, and the DFM restarts: no client can decide about events
 * without a record, so they are lost. */
TEST(the_dfm_restarts_with_level_2)
{
        FOR_SEEDS(seed, 40)
        {
                struct sim_config c = restart_config(seed);
                struct sim *s;

                c.level2 = (struct dfm_level2_config){.on = true, .timeout_ns = 60 * NS_PER_S, .window = 500};
                c.accept_percent = 40;
                c.farm_ns = 2 * NS_PER_MS;
                s = play_restart(&c, seed);
                check_written(s, &c);
                check(dfm_counts(sim_dfm(s))->lost < 200);
                for (uint64_t e = 0; e < c.events; e++)
                        check(sim_event(s, e)->complete <= sim_accepts(s, e));
                check_empty(s, &c);
                sim_free(s);
        }
}

/* A trigger box that does not obey busy: numbers follow each other, apart from gaps of its own. */
struct box {
        uint64_t number, sent, skipped, away;
};

static void box_sends(struct box *b, struct sim *s, uint64_t until_ns, bool dfm_lives)
{
        while (sim_now_ns(s) < until_ns && !dfm_is_done(sim_dfm(s))) {
                for (int k = 0; k < 4; k++, b->number++) {
                        struct trigger_entry e = {.number = b->number};

                        if (dfm_lives && b->number % 1000 == 999) {
                                b->skipped++;
                                continue;
                        }
                        b->sent++;
                        b->away += !dfm_lives;
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

/* A trigger is an event, or was refused by either DFM, or came when none could take it. */
TEST(triggers_count_that_no_dfm_could_take)
{
        uint64_t refused = 0;

        FOR_SEEDS(seed, 40)
        {
                struct sim_config c;
                struct sim *s = begin_box(&c, seed);
                const struct dfm_counts *d;
                struct box b = {.number = 7};

                box_sends(&b, s, (20 + seed * 4 % 160) * NS_PER_MS, true);
                for (uint64_t k = 0; k <= seed % 3; k++) {
                        restart_dfm(&b, s, (1 + seed % 7) * NS_PER_MS);
                        box_sends(&b, s, sim_now_ns(s) + 30 * NS_PER_MS, true);
                }
                box_sends(&b, s, FOREVER_NS, true);
                d = dfm_counts(sim_dfm(s));
                check_accounts(s, &c);
                check(d->triggers == c.events && d->offered.unclear == 0);
                check(d->offered.triggers == d->triggers + d->offered.refused + d->offered.not_taken);
                check(d->offered.missed >= b.away);
                check(b.sent + b.skipped == d->offered.triggers + d->offered.missing + d->offered.missed);
                refused += d->offered.refused;
                sim_free(s);
        }
        assert_true(refused > 0);
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
