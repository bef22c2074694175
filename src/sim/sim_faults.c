/* The faults of nodes and of the network, as configured or drawn from the seed. */
#include <string.h>

#include "sim_internal.h"

/* Limits for chaos: faults of nodes, and fraction of packets for each fault of the network (2 %). */
#define CHAOS_FAULTS_MAX 6u
#define CHAOS_BILLIONTHS UINT64_C(20000000)
#define CHAOS_SALT UINT64_C(0x6368616F73)
/* Minimum period in which faults are drawn, also with trigger.rate = max. */
#define CHAOS_LEAST_NS (100 * NS_PER_MS)

static uint64_t horizon_ns(const struct scenario *s)
{
        uint64_t ns = s->scenario.duration_ns;

        if (ns == 0 && s->trigger.rate_millihertz != SCENARIO_MAX)
                ns = (uint64_t)((double)s->trigger.events / (double)s->trigger.rate_millihertz * 1e12);
        return MAX(ns, CHAOS_LEAST_NS);
}

static void add(struct sim *s, enum sim_fault_kind kind, uint32_t node, uint64_t at_ns, uint64_t for_ns)
{
        if (s->n_faults < SIM_FAULTS_MAX)
                s->faults[s->n_faults++] = (struct sim_fault){kind, node, at_ns, for_ns};
}

/* Draws both short absences, which no node notices, and long absences, after which the DFM continues without
 * the node. */
static uint64_t draw_absence(const struct sim *s, struct random *r)
{
        return 1 + random_below(r, 2 * s->scenario->dfm.node_timeout_ns);
}

static void draw_faults(struct sim *s, struct random *r)
{
        uint64_t within_ns = horizon_ns(s->scenario), n = random_below(r, CHAOS_FAULTS_MAX + 1);

        for (uint64_t i = 0; i < n; i++) {
                uint32_t node = (uint32_t)random_below(r, s->n_nodes);
                uint64_t at_ns = random_below(r, within_ns), for_ns = draw_absence(s, r);

                if (random_below(r, 2) == 0) {
                        add(s, SIM_PAUSE, node, at_ns, for_ns);
                        continue;
                }
                add(s, SIM_CRASH, node, at_ns, 0);
                add(s, SIM_RESTART, node, at_ns + for_ns, 0);
        }
}

/* The share is a multiple of the step of its key in the scenario. */
static double draw_share(struct random *r, double configured)
{
        double share = random_below(r, 2) ? (double)random_below(r, CHAOS_BILLIONTHS) / 1e9 : 0;

        return configured > 0 ? configured : share;
}

/* Faults at the same time stay in their order. */
static void sort(struct sim_fault *faults, size_t n)
{
        for (size_t i = 1; i < n; i++) {
                struct sim_fault f = faults[i];
                size_t k = i;

                for (; k > 0 && faults[k - 1].at_ns > f.at_ns; k--)
                        faults[k] = faults[k - 1];
                faults[k] = f;
        }
}

/* Uses a separate random generator, so that a history with the same faults from the command line is
 * identical. */
static void draw_chaos(struct sim *s)
{
        struct random r;

        random_init(&r, random_mix(s->config.seed ^ CHAOS_SALT));
        draw_faults(s, &r);
        s->network.loss = draw_share(&r, s->network.loss);
        s->network.reorder = draw_share(&r, s->network.reorder);
        s->network.duplicate = draw_share(&r, s->network.duplicate);
}

void sim_faults_prepare(struct sim *s)
{
        const struct scenario *sc = s->scenario;

        s->n_faults = s->config.n_faults;
        if (s->n_faults > 0)
                memcpy(s->faults, s->config.faults, s->n_faults * sizeof *s->faults);
        s->network = (struct fault_config){
                .loss = sc->network.loss, .reorder = sc->network.reorder, .duplicate = sc->network.duplicate};
        if (s->config.chaos)
                draw_chaos(s);
        s->network.seed = random_mix(sc->run.seed) ^ random_next(&s->random);
        fault_init(&s->fault, &s->network);
        sort(s->faults, s->n_faults);
        for (size_t i = 0; i < s->n_faults; i++)
                s->calm_ns = MAX(s->calm_ns, s->faults[i].at_ns + s->faults[i].for_ns);
}

uint64_t sim_faults_next_ns(const struct sim *s)
{
        return s->next_fault < s->n_faults ? s->faults[s->next_fault].at_ns : NEVER_NS;
}

static void stand_still(struct sim *s, struct sim_node *n, uint64_t for_ns)
{
        if (!n->is_live)
                return;
        n->paused_until_ps = MAX(n->paused_until_ps, s->now_ps + for_ns * PS_PER_NS);
        if (n->turn_ps == NEVER_NS || n->turn_ps >= n->paused_until_ps)
                return;
        n->turn_ps = n->paused_until_ps;
        sim_schedule(s, n, ITEM_TURN, n->turn_ps);
}

void sim_faults_apply(struct sim *s)
{
        const struct sim_fault *f = &s->faults[s->next_fault++];
        struct sim_node *n = &s->nodes[f->node];

        /* The run has ended, so faults have no effect. A DFM that starts now would wait for the next run. */
        if (s->has_ended)
                return;
        switch (f->kind) {
        case SIM_CRASH:
                sim_trace(s, n, f->kind, "crashes");
                sim_process_end(s, n);
                break;
        case SIM_PAUSE:
                sim_trace(s, n, f->kind, "pauses");
                stand_still(s, n, f->for_ns);
                break;
        case SIM_RESTART:
                sim_trace(s, n, f->kind, "restarts");
                n->restarts++;
                sim_process_end(s, n);
                if (sim_process_start(s, n) < 0)
                        sim_violate(s, n, SIM_NOTHING_WAITS, "no memory for another process");
                break;
        }
}

size_t sim_faults(const struct sim *s, const struct sim_fault **ret, struct fault_config *ret_network)
{
        *ret = s->faults;
        *ret_network = s->network;
        return s->n_faults;
}
