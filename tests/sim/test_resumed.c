/* The accounts of a run that another DFM resumes: what was lost, rejected or built twice before counts as
 * that afterwards, event by event. */
#include "scenes.h"

/* All that level 2 did not accept was rejected, and nothing else. */
static void check_ends(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));
        uint64_t rejected = 0;

        check_accounts(s, c);
        check_written(s, c);
        for (uint64_t e = 0; e < d->triggers; e++)
                rejected += c->level2.on && !sim_accepts(s, e);
        check(d->rejected == rejected);
}

/* Data are lost for so long that events end as lost, about a fifth of all. */
static void lose_events(struct sim_config *c)
{
        c->events = 1500;
        c->timeout_ns = 20 * NS_PER_MS;
        c->away_from_ns = 60 * NS_PER_MS;
        c->away_until_ns = 110 * NS_PER_MS;
        c->rate_millihertz = 10000000;
}

static void accept_some(struct sim_config *c)
{
        c->level2 = (struct dfm_level2_config){.on = true, .timeout_ns = 60 * NS_PER_S, .window = 500};
        c->accept_percent = 40;
        c->farm_ns = 2 * NS_PER_MS;
}

static struct sim *begin(struct sim_config *c, uint64_t seed, bool push, void (*prepare)(struct sim_config *))
{
        *c = sim_standard();
        c->faults.seed = seed;
        c->push = push;
        lose_events(c);
        if (prepare)
                prepare(c);
        return sim_now = sim_new(c);
}

static void restart_dfm(struct sim *s, uint64_t away_ns)
{
        sim_kill(s, ROLE_DFM, 0);
        (void)sim_run(s, sim_now_ns(s) + away_ns);
        sim_restart_dfm(s);
}

/* Before, among and after the losses; `times` DFMs end. */
static void with_losses(void (*prepare)(struct sim_config *), unsigned times)
{
        uint64_t lost = 0;

        FOR_SEEDS(seed, 20)
        {
                for (int push = 0; push < 2; push++) {
                        struct sim_config c;
                        struct sim *s = begin(&c, seed, push, prepare);

                        for (unsigned k = 0; k < times; k++) {
                                check(!sim_run(s, sim_now_ns(s) + 20 * NS_PER_MS +
                                                          seed % 10 * 11 * NS_PER_MS / times));
                                restart_dfm(s, 2 * NS_PER_MS);
                        }
                        check(sim_run(s, FOREVER_NS));
                        check_ends(s, &c);
                        check(dfm_counts(sim_dfm(s))->triggers == c.events);
                        lost += dfm_counts(sim_dfm(s))->lost;
                        sim_free(s);
                }
        }
        assert_true(lost > 0);
}

TEST(lost_events_stay_lost)
{
        with_losses(NULL, 1);
        with_losses(NULL, 2);
}

TEST(lost_events_are_not_rejected)
{
        with_losses(accept_some, 1);
        with_losses(accept_some, 2);
}

static void write_late(struct sim_config *c)
{
        c->events = 2500;
        c->stall_from_ns = 130 * NS_PER_MS;
        c->stall_until_ns = 230 * NS_PER_MS;
}

static void write_late_and_accept_some(struct sim_config *c)
{
        write_late(c);
        accept_some(c);
}

/* The output stands still for longer than the DFM waits for an event, so both SFIs build it. Such builds do
 * not stand for lost events. */
TEST(events_that_two_sfis_built_count_once)
{
        uint64_t again = 0, lost = 0;

        FOR_SEEDS(seed, 10)
        {
                for (int k = 0; k < 4; k++) {
                        struct sim_config c;
                        struct sim *s =
                                begin(&c, seed, k % 2, k / 2 ? write_late_and_accept_some : write_late);

                        check(!sim_run(s, 231 * NS_PER_MS + seed % 10 * NS_PER_MS));
                        restart_dfm(s, 2 * NS_PER_MS);
                        check(sim_run(s, FOREVER_NS));
                        check_ends(s, &c);
                        again += dfm_counts(sim_dfm(s))->ended_again;
                        lost += dfm_counts(sim_dfm(s))->lost;
                        sim_free(s);
                }
        }
        assert_true(again > 0 && lost > 0);
}

static void write_slowly(struct sim_config *c)
{
        c->write_ns = 2 * NS_PER_MS;
        c->rate_millihertz = 800000;
}

/* Beyond the time-out of an event. */
static void stall(struct sim_config *c)
{
        c->stall_from_ns = 25 * NS_PER_MS;
        c->stall_until_ns = 9 * NS_PER_S;
}

/* They are neither finished nor built again. */
TEST(built_events_that_are_not_written_stay_with_their_sfi)
{
        FOR_SEEDS(seed, 20)
        {
                for (int k = 0; k < 4; k++) {
                        struct sim_config c = sim_standard();
                        uint64_t at_ns = k / 2 ? 2 * NS_PER_S + seed * 41 * NS_PER_MS
                                               : 20 * NS_PER_MS + seed * 377 * NS_PER_US;
                        struct sim *s;

                        c.events = 600;
                        c.push = k % 2;
                        c.faults.seed = seed;
                        (k / 2 ? stall : write_slowly)(&c);
                        s = sim_now = sim_new(&c);
                        check(!sim_run(s, at_ns));
                        restart_dfm(s, 5 * NS_PER_MS);
                        check(sim_run(s, FOREVER_NS));
                        check_all_complete(s, &c);
                        sim_free(s);
                }
        }
}
