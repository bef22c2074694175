/* A DFM restarts under a bad network and further restarts: late, repeated and lost messages, absent nodes,
 * and a second restart before the first one is complete. */
#include "scenes.h"

struct scene {
        struct sim_config config;
        uint64_t seed;
        struct sim *sim;
};

static void begin(struct scene *t, uint64_t seed, bool push, void (*prepare)(struct sim_config *))
{
        t->seed = seed;
        t->config = sim_standard();
        t->config.push = push;
        t->config.events = 600;
        t->config.faults = (struct fault_config){.seed = seed};
        if (prepare)
                prepare(&t->config);
        t->sim = sim_now = sim_new(&t->config);
}

static void pass(struct scene *t, uint64_t ns)
{
        (void)sim_run(t->sim, sim_now_ns(t->sim) + ns);
}

static void kill_dfm_in_the_run(struct scene *t)
{
        check(!sim_run(t->sim, 20 * NS_PER_MS + t->seed % 200 * 377 * NS_PER_MS / 1000));
        sim_kill(t->sim, ROLE_DFM, 0);
}

/* No event is forgotten or lost, and each that was built twice is counted. */
static void end(struct scene *t, bool once)
{
        const struct dfm_counts *d;

        check(sim_run(t->sim, FOREVER_NS));
        d = dfm_counts(sim_dfm(t->sim));
        check_accounts(t->sim, &t->config);
        check(d->triggers == t->config.events && d->lost == 0 && d->partial == 0);
        for (uint64_t e = 0; e < t->config.events; e++) {
                check(sim_event(t->sim, e)->complete >= 1 && sim_event(t->sim, e)->partial == 0);
                check(!once || sim_event(t->sim, e)->complete == 1);
        }
        check(!once || d->ended_again == 0);
        sim_free(t->sim);
}

static void each(unsigned seeds, void (*scene)(struct scene *, uint64_t, bool))
{
        struct scene t;

        FOR_SEEDS(seed, seeds)
        {
                scene(&t, seed, false);
                scene(&t, seed, true);
        }
}

#define TAKEOVER(name) SCENE_OF(each, name, (struct scene * t, uint64_t seed, bool push), 20, name##_scene)

static void mix_up(struct sim_config *c)
{
        c->faults.reorder = 0.2;
        c->faults.duplicate = 0.2;
}

TAKEOVER(with_late_and_repeated_messages)
{
        begin(t, seed, push, mix_up);
        kill_dfm_in_the_run(t);
        sim_restart_dfm(t->sim);
        end(t, false);
}

TAKEOVER(twice_in_a_row)
{
        begin(t, seed, push, NULL);
        kill_dfm_in_the_run(t);
        sim_restart_dfm(t->sim);
        pass(t, seed % 97 * 10000); /* at any moment of the first takeover */
        sim_restart_dfm(t->sim);
        end(t, true);
}

static void lose(struct sim_config *c)
{
        c->faults.loss = 0.05;
        mix_up(c);
}

TAKEOVER(twice_on_a_bad_network)
{
        begin(t, seed, push, lose);
        kill_dfm_in_the_run(t);
        sim_restart_dfm(t->sim);
        pass(t, seed % 97 * NS_PER_MS);
        sim_restart_dfm(t->sim);
        end(t, false);
}

/* The run resumes without it, and it returns with all that it built. */
TAKEOVER(while_an_sfi_is_away)
{
        const struct dfm_counts *d;

        begin(t, seed, push, NULL);
        check(!sim_run(t->sim, 20 * NS_PER_MS + seed % 50 * 377 * NS_PER_MS / 1000));
        sim_kill(t->sim, ROLE_DFM, 0);
        sim_kill(t->sim, ROLE_SFI, 1);
        sim_restart_dfm(t->sim);
        for (int i = 0; i < 100 && dfm_state(sim_dfm(t->sim)) != RUN_RUNNING; i++)
                pass(t, 10 * NS_PER_MS);
        pass(t, seed % 7 * NS_PER_MS);
        sim_revive(t->sim, ROLE_SFI, 1);
        check(sim_run(t->sim, FOREVER_NS));
        d = dfm_counts(sim_dfm(t->sim));
        check_accounts(t->sim, &t->config);
        check(d->triggers == t->config.events && d->lost == 0);
        sim_free(t->sim);
}

TAKEOVER(while_an_sfi_restarts_too)
{
        begin(t, seed, push, NULL);
        kill_dfm_in_the_run(t);
        sim_restart_sfi(t->sim, 1);
        pass(t, seed % 3 * NS_PER_MS);
        sim_restart_dfm(t->sim);
        check(sim_run(t->sim, FOREVER_NS));
        check_accounts(t->sim, &t->config);
        check(dfm_counts(sim_dfm(t->sim))->triggers == t->config.events);
        sim_free(t->sim);
}

static void count_frames(struct sim_config *c)
{
        c->arriving = true;
        c->arrive_stream = true;
}

TAKEOVER(with_front_ends)
{
        begin(t, seed, push, count_frames);
        kill_dfm_in_the_run(t);
        pass(t, 5 * NS_PER_MS);
        sim_restart_dfm(t->sim);
        end(t, true);
}

static void write_late(struct sim_config *c)
{
        c->stall_from_ns = 25 * NS_PER_MS;
        c->stall_until_ns = 9 * NS_PER_S; /* beyond the time-out of an event */
}

/* Events that wait for the disk beyond the time-out stay with the SFI before and after. */
TAKEOVER(while_the_disk_stalls)
{
        begin(t, seed, push, write_late);
        check(!sim_run(t->sim, 2 * NS_PER_S + seed % 50 * 41 * NS_PER_MS));
        sim_kill(t->sim, ROLE_DFM, 0);
        pass(t, 5 * NS_PER_MS);
        sim_restart_dfm(t->sim);
        end(t, true);
}

/* The DFM is killed after the last trigger. No trigger is taken twice. */
TAKEOVER(at_the_end)
{
        begin(t, seed, push, NULL);
        check(!sim_run(t->sim, 100 * NS_PER_MS));
        while (dfm_counts(sim_dfm(t->sim))->triggers < t->config.events)
                pass(t, NS_PER_MS / 10);
        pass(t, seed % 40 * 20000);
        if (dfm_state(sim_dfm(t->sim)) < RUN_ENDED)
                sim_restart_dfm(t->sim);
        end(t, true);
}

/* It does not die but stalls, beyond the time-outs of nodes and events. */
TAKEOVER(by_one_that_only_stalled)
{
        uint64_t away_ns = NS_PER_S + seed % 10 * NS_PER_S;

        begin(t, seed, push, NULL);
        kill_dfm_in_the_run(t);
        pass(t, away_ns);
        dfm_was_paused(sim_dfm(t->sim), sim_now_ns(t->sim), away_ns);
        sim_revive(t->sim, ROLE_DFM, 0);
        end(t, true);
}
