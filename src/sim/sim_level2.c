/* Connects the level-2 farm of the scenario (test.stand-in) to the nodes. */
#include <errno.h>
#include <stdlib.h>

#include "base/quantity.h"
#include "sim_internal.h"

/* Defaults of evb level2. */
#define ACCEPT_PERCENT 10
#define DECIDE_NS (5 * NS_PER_MS)

static struct ros *ros_of(void *ctx, uint32_t ros)
{
        const struct sim *s = ctx;
        const struct sim_node *n = &s->nodes[s->node_of_ros[ros]];

        return n->is_live && !n->has_left ? n->ros : NULL;
}

static void wake(void *ctx, enum node_role role, uint32_t index, uint64_t at_ns)
{
        struct sim *s = ctx;

        sim_wake(s, &s->nodes[role == ROLE_DFM ? s->dfm : s->node_of_ros[index]], at_ns * PS_PER_NS);
}

/* The scenario reader has already checked the texts. */
static void read_stand_in(struct sim_farm_config *c, const struct scenario *s)
{
        struct scenario_stand_in text;
        double accept;

        if (!scenario_split_stand_in(s->level2.stand_in, &text))
                return;
        if (quantity_parse_fraction(text.accept, &accept) >= 0)
                c->accept_percent = (uint32_t)(100 * accept + 0.5);
        (void)quantity_parse_time(text.latency, &c->decide_ns);
        c->regions = MIN((uint32_t)strtoul(text.regions, NULL, 10), MIN(SIM_FARM_REGIONS_MAX, c->n_ros));
}

int sim_level2_open(struct sim *s, struct error *e)
{
        struct sim_farm_config c = {
                .accept_percent = ACCEPT_PERCENT,
                .decide_ns = DECIDE_NS,
                .n_ros = s->n_ros,
                .latency_ns = s->config.model.propagation_ns,
                .seed = s->config.seed,
                .random = &s->random,
                .ros = ros_of,
                .wake = wake,
                .ctx = s,
        };

        if (s->scenario->level2.port == 0)
                return 0;
        read_stand_in(&c, s->scenario);
        return sim_farm_init(&s->farm, &c) < 0 ? error_set(e, -ENOMEM, "%m") : 0;
}

void sim_level2_start(struct sim *s, const struct sim_node *n)
{
        if (!s->farm.waiting)
                return;
        if (n->self->role == ROLE_DFM)
                sim_farm_begin(&s->farm);
        else if (n->self->role == ROLE_ROS)
                sim_farm_reconnect(&s->farm, n->self->index, sim_now_ns(s));
}

bool sim_level2_decide(struct sim *s, struct sim_node *dfm)
{
        s->farm_ns = NEVER_NS;
        return s->farm.waiting && sim_farm_turn(&s->farm, dfm->dfm, sim_now_ns(s), &s->farm_ns);
}

void sim_level2_answer(struct sim *s, struct sim_node *ros)
{
        struct ros_job job;

        while (s->farm.waiting && sim_farm_answer(&s->farm, ros->self->index, &job)) {
                sim_check_answer(s, ros, &job.job.chunk);
                sim_farm_answered(&s->farm, ros->self->index, job.job.chunk.event, sim_now_ns(s));
        }
}
