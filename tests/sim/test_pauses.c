/* An operator pauses the triggers of a whole system, and resumes them, at any time and under losses: each
 * trigger still ends once, and none is accepted in a pause. */
#include "scenes.h"

#include "base/random.h"

#define PAUSES 12

/* Every other seed has triggers as fast as credits allow. */
static void prepare(struct sim_config *c)
{
        c->events = 400;
        c->rate_millihertz = c->faults.seed % 2 ? TRIGGER_RATE_MAX : 2000000;
        if (c->faults.seed % 3 == 0)
                c->faults = (struct fault_config){
                        .loss = 0.02, .reorder = 0.05, .duplicate = 0.02, .seed = c->faults.seed};
}

/* Passes some time with the triggers paused: their number stands still. */
static void pass_a_pause(struct sim *s, uint64_t ns)
{
        struct dfm *d = sim_dfm(s);
        uint64_t triggers = dfm_counts(d)->triggers, paused_ns = dfm_counts(d)->paused_ns;
        uint64_t began_ns = sim_now_ns(s);

        dfm_pause(d, began_ns, true);
        check(dfm_is_paused(d));
        check(!sim_run(s, began_ns + ns));
        check(dfm_counts(d)->triggers == triggers);
        dfm_pause(d, sim_now_ns(s), false);
        check(dfm_counts(d)->paused_ns == paused_ns + sim_now_ns(s) - began_ns);
}

static void run_with_pauses(struct sim *s, struct random *random)
{
        uint64_t until_ns;

        for (int i = 0; i < PAUSES; i++) {
                until_ns = sim_now_ns(s) + random_below(random, 30 * NS_PER_MS);
                if (sim_run(s, until_ns))
                        return;
                if (dfm_state(sim_dfm(s)) == RUN_RUNNING)
                        pass_a_pause(s, 1 + random_below(random, 400 * NS_PER_MS));
        }
        check(sim_run(s, FOREVER_NS));
}

TEST(each_trigger_ends_once_whatever_is_paused)
{
        uint64_t paused_ns = 0;

        FOR_SEEDS(seed, 60)
        {
                for (int push = 0; push < 2; push++) {
                        struct sim_config c = sim_standard();
                        struct random random;
                        struct sim *s;

                        c.push = push;
                        c.faults.seed = seed;
                        prepare(&c);
                        random_init(&random, seed);
                        s = sim_now = sim_new(&c);
                        run_with_pauses(s, &random);
                        check_all_complete(s, &c);
                        check_empty(s, &c);
                        paused_ns += dfm_counts(sim_dfm(s))->paused_ns;
                        sim_free(s);
                }
        }
        assert_true(paused_ns > 0);
}
