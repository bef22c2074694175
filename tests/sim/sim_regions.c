/* The farm requests fragments of some ROSs for each event before it decides. Its connections are reliable, as
 * TCP is, but break now and then: then it requests again what was not answered. */
#include <assert.h>

#include "base/arena.h"
#include "base/pattern.h"
#include "base/util.h"
#include "core/ros_regions.h"
#include "sim_internal.h"

#define CLIENT 3
/* One answer in this many ends the connection. */
#define BREAKS 100

static bool wants(const struct sim *s, uint64_t event, uint32_t ros)
{
        uint32_t first = (uint32_t)(random_mix(event) % s->config.n_ros);

        return (ros + s->config.n_ros - first) % s->config.n_ros < s->config.farm_regions;
}

static void request(struct sim *s, struct sim_node *ros, uint64_t event)
{
        assert(ros_region_has_room(ros->ros, CLIENT));
        ros_region_request(
                ros->ros, s->now_ns, CLIENT,
                &(struct request_entry){.event = event, .l1_id = (uint32_t)event, .to_bytes = UINT32_MAX});
}

void sim_regions_request(struct sim *s, struct sim_waiting *w)
{
        for (uint32_t i = 0; s->config.farm_regions > 0 && i < s->config.n_ros; i++) {
                if (!wants(s, w->event, i))
                        continue;
                w->left |= 1u << i;
                request(s, &s->nodes[1 + i], w->event);
                sim_set_timer(s, 1 + i, s->now_ns + s->config.latency_ns);
        }
}

static bool is_undecided(struct sim *s, uint64_t event)
{
        struct undecided_entry e;
        uint64_t from = event;

        return dfm_list_undecided(s->nodes[0].dfm, &from, &e, 1) == 1 && e.event == event;
}

/* Checks the answer independently of the ROS. */
static void look_at_answer(struct sim *s, struct sim_node *n, const struct ros_job *job)
{
        const struct chunk *c = &job->job.chunk;

        s->regions.answers[c->status]++;
        if (c->status == FRAGMENT_DISCARDED)
                assert(!is_undecided(s, c->event));
        if (c->status != FRAGMENT_OK)
                return;
        assert(c->l1_id == (uint32_t)c->event && c->offset == 0 && job->job.to_bytes == c->fragment_bytes);
        assert(c->fragment_bytes == sim_size_of(&s->config, n->index, c->event));
        if (!job->fill && c->fragment_bytes > 0 &&
            pattern_check(pattern_key(SIM_SEED, n->index, c->event), n->buffer + job->at, 0,
                          c->fragment_bytes) != c->fragment_bytes)
                s->wrong_bytes++;
}

static void record_answer(struct sim *s, uint32_t ros, uint64_t event)
{
        for (size_t k = 0; k < s->farm.n; k++) {
                struct sim_waiting *w = &s->farm.waiting[k];

                if (w->event != event || !(w->left >> ros & 1))
                        continue;
                w->left &= ~(1u << ros);
                w->due_ns = MAX(w->due_ns, s->now_ns + s->config.latency_ns);
                if (w->left == 0)
                        sim_set_timer(s, 0, w->due_ns);
        }
}

static void reconnect(struct sim *s, struct sim_node *n)
{
        ros_region_forget(n->ros, CLIENT);
        for (size_t k = 0; k < s->farm.n; k++) {
                if (s->farm.waiting[k].left >> n->index & 1)
                        request(s, n, s->farm.waiting[k].event);
        }
}

void sim_regions_turn(struct sim *s, struct sim_node *n)
{
        struct ros_job job;

        while (s->config.farm_regions > 0 && ros_region_answer(n->ros, CLIENT, &job)) {
                look_at_answer(s, n, &job);
                if (random_below(&s->random, BREAKS) == 0)
                        reconnect(s, n);
                else
                        record_answer(s, n->index, job.job.chunk.event);
        }
}
