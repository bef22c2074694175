/* Front-ends whose frames are matched by count, slower than the trigger or uneven: each trigger waits for its
 * frames, and no event misses one. A front-end that dies delays nothing. */
#include "scenes.h"

static void counted(struct sim_config *c)
{
        c->arriving = c->arrive_stream = true;
        c->events = 200;
        /* In half of the runs, packets are lost too. */
        if (c->faults.seed % 2 == 0) {
                c->faults.loss = 0.02;
                c->timeout_ns = 20 * NS_PER_S;
        }
        c->arrive_skew_ns = c->faults.seed % 3 * 7 * NS_PER_MS;
}

static void verify_waited(struct sim *s, const struct sim_config *c)
{
        check_all_complete(s, c);
        check(dfm_counts(sim_dfm(s))->busy_ns > 0);
        for (uint32_t i = 0; i < c->n_ros; i++)
                check(ros_counts(sim_ros(s, i))->late == 0 && ros_counts(sim_ros(s, i))->xoff == 0);
}

/* The trigger would be ahead by far more than an event waits. */
SCENE(at_a_tenth, 8, verify_waited)
{
        counted(c);
        c->rate_millihertz = 500000;
        c->arrive_percent = 10;
}

SCENE(with_triggers_at_any_time, 8, verify_waited)
{
        counted(c);
        c->rate_millihertz = TRIGGER_RATE_MAX;
        c->arrive_rate_millihertz = c->faults.seed % 4 < 2 ? 100000 : 20000000;
        c->events = c->faults.seed % 4 < 2 ? 200 : 2000;
}

/* Between two bursts, an event would wait for too long, and all front-ends are silent. */
SCENE(in_bursts, 8, verify_waited)
{
        counted(c);
        c->rate_millihertz = c->faults.seed % 4 < 2 ? TRIGGER_RATE_MAX : 1000000;
        c->arrive_rate_millihertz = 10000;
        c->arrive_burst = 40;
}

static void verify_death(struct sim *s, const struct sim_config *c)
{
        const struct dfm_counts *d = dfm_counts(sim_dfm(s));

        check_accounts(s, c);
        check(d->triggers == c->events && d->complete == c->arrive_dead_from);
        check(d->partial == c->events - c->arrive_dead_from && d->reassigned == 0);
        check(d->fragments_lost == d->partial);
}

SCENE(one_that_dies_holds_nothing_up, 8, verify_death)
{
        counted(c);
        c->rate_millihertz = c->faults.seed % 4 < 2 ? TRIGGER_RATE_MAX : 1000000;
        c->arrive_rate_millihertz = 100000;
        c->arrive_dead_from = 80;
}
