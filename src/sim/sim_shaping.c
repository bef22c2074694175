/* Models a ROS's shaping in the kernel, according to the daemon's own plan. A bucket limits the link (HTB),
 * which sends control messages first. Each SFI has a queue with its own bucket (TBF, or only HTB; for EDT, a
 * bucket of one frame). Classes whose packets may pass take turns packet by packet, whereas HTB lets each
 * class pass a quantum. CBQ is modelled as HTB, because the TBF below it determines the rate. Super-packets
 * of segmentation offload pass as their segments. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "node/shaping_request.h"
#include "sim_internal.h"

/* Size of a small control message, with all headers. */
#define CONTROL_FRAME_BYTES 128u

static enum tc_backend backend_of(const struct scenario *s)
{
        enum tc_backend b = shaping_backend_of_scenario(s);

        return b == TC_BACKEND_AUTO ? TC_BACKEND_HTB_TBF : b;
}

/* Follows node/shaping_tree.c: the burst is planned for all nodes, even if some are absent. */
static int make_plan(const struct sim *s, const struct sim_node *n, struct tc_plan *ret, struct error *e)
{
        _cleanup_free_ struct tc_destination *to = calloc(s->n_sfi, sizeof *to);
        struct tc_request q = {};
        int r;

        if (!to)
                return error_set(e, -ENOMEM, "%m");
        r = shaping_request_of_scenario(&q, s->scenario, n->self, NULL, to, NULL, e);
        if (r < 0)
                return r;
        q.backend = n->shaping.backend;
        q.offload = TC_OFFLOAD_NO; /* cards are not modelled */
        if (n->shaping.burst_bytes > 0) {
                q.burst_bytes = n->shaping.burst_bytes;
                q.sources = ros_sources(n->ros) ?: q.sources;
                for (uint32_t i = 0; i < s->n_sfi; i++)
                        to[i].permille = ros_sfi_permille(n->ros)[i];
        }
        return tc_plan_make(ret, &q, e);
}

/* A reduced rate becomes the ceiling of the class, as in layout.c; a changed TBF starts full. */
static void set_share(struct sim_path *p, const struct tc_plan *plan, const struct tc_share *share)
{
        bool htb = plan->backend == TC_BACKEND_HTB, edt = plan->backend == TC_BACKEND_EDT;
        uint64_t rate_bps = htb || edt ? share->rate_bps : share->planned_bps;
        uint64_t burst_bytes = edt ? plan->frame_bytes : share->burst_bytes;
        uint64_t ceiling_bps = !htb && !edt && share->rate_bps < share->planned_bps ? share->rate_bps : 0;

        p->limit_bytes = share->limit_bytes;
        if (p->rate.rate_bps != rate_bps)
                sim_bucket_init(&p->rate, rate_bps, burst_bytes, plan->overhead_bytes, htb);
        if (p->ceiling.rate_bps != ceiling_bps)
                sim_bucket_init(&p->ceiling, ceiling_bps,
                                MAX(share->burst_bytes / 4, (uint64_t)plan->frame_bytes),
                                plan->overhead_bytes, true);
}

static void apply(struct sim *s, struct sim_node *n, const struct tc_plan *plan)
{
        struct sim_shaping *h = &n->shaping;

        assert(plan->shares && plan->n == s->n_sfi);
        h->rate_bps = plan->shares[0].planned_bps;
        h->burst_bytes = plan->shares[0].burst_bytes;
        h->control_limit_bytes = plan->control.limit_bytes;
        for (uint32_t i = 0; i < s->n_sfi; i++)
                set_share(&n->paths[i], plan, &plan->shares[i]);
}

/* Whether, in pull, an SFI limits the bytes in flight to what its port can hold, minus a part for control
 * messages. That part must be large enough for the messages that all ROSs may send at once. */
static bool pull_is_limited(const struct sim *s)
{
        const struct scenario *sc = s->scenario;

        return sc->scenario.mode == MODE_PULL && sc->sfi.outstanding == SCENARIO_AUTO &&
               sc->network.link_rate_bps > 0 &&
               s->n_ros * CONTROL_FRAME_BYTES <= sc->network.switch_buffer_bytes / 16;
}

int sim_shaping_open(struct sim *s, struct sim_node *n, struct error *e)
{
        struct sim_shaping *h = &n->shaping;
        struct tc_plan plan = {};
        int r;

        h->backend = backend_of(s->scenario);
        h->on = h->backend != TC_BACKEND_NONE;
        s->plan_is_valid = pull_is_limited(s) && s->config.model.uplinks == 0;
        if (!h->on)
                return 0;
        r = heap_init(&h->due, s->n_sfi);
        if (r < 0)
                return error_set(e, r, "%m");
        r = make_plan(s, n, &plan, e);
        if (r < 0)
                return r;
        s->plan_is_valid = s->config.model.uplinks == 0 && s->scenario->qos.rate_bps == SCENARIO_AUTO &&
                           plan.n_warnings == 0 && s->scenario->network.link_rate_bps > 0;
        s->plan_fits = !plan.may_overrun && s->scenario->network.switch_buffer_bytes > 0;
        sim_bucket_init(&h->link, plan.link_rate_bps, plan.link_burst_bytes, plan.overhead_bytes, true);
        apply(s, n, &plan);
        tc_plan_fini(&plan);
        return 0;
}

void sim_shaping_fini(struct sim_node *n)
{
        heap_fini(&n->shaping.due);
        sim_queue_fini(&n->shaping.control);
}

void sim_shaping_follow(struct sim *s, struct sim_node *n)
{
        struct sim_shaping *h = &n->shaping;
        struct tc_plan plan = {};
        struct error e = {};

        if (!h->on || h->demand == ros_demand_number(n->ros))
                return;
        h->demand = ros_demand_number(n->ros);
        if (make_plan(s, n, &plan, &e) < 0)
                return; /* the daemon also keeps the previous plan */
        apply(s, n, &plan);
        tc_plan_fini(&plan);
}

/* Returns when the first packet of an SFI's queue may pass. The queue must not be empty. */
static uint64_t due_ps(const struct sim_path *p)
{
        uint32_t bytes = p->queue.entries[p->queue.first].packet->frame_bytes;

        return MAX(sim_bucket_next_ps(&p->rate, bytes), sim_bucket_next_ps(&p->ceiling, bytes));
}

static void put_due(struct sim_node *n, uint32_t sfi)
{
        struct sim_path *p = &n->paths[sfi];

        if (p->queue.n > 0)
                heap_put(&n->shaping.due, sfi, due_ps(p), n->shaping.turn++);
        else
                heap_remove(&n->shaping.due, sfi);
}

static void pass(struct sim *s, struct sim_node *n, struct sim_packet *p)
{
        sim_bucket_charge(&n->shaping.link, s->now_ps, p->frame_bytes);
        sim_wire_send(s, n, p);
}

static void pass_data(struct sim *s, struct sim_node *n, uint32_t sfi)
{
        struct sim_path *path = &n->paths[sfi];
        struct sim_packet *p = sim_queue_pop(&path->queue).packet;

        sim_bucket_charge(&path->rate, s->now_ps, p->frame_bytes);
        sim_bucket_charge(&path->ceiling, s->now_ps, p->frame_bytes);
        pass(s, n, p);
        put_due(n, sfi);
}

/* The timer that the kernel starts for the next packet may be late. If a packet arrives before the timer
 * expires, it is examined at once, and the timer is not restarted. */
static void arm(struct sim *s, struct sim_node *n, uint64_t next_ps)
{
        uint64_t timer_ps = s->config.model.timer_ns * PS_PER_NS;

        if (timer_ps > 0 && next_ps != NEVER_NS && next_ps > s->now_ps) {
                if (next_ps == n->shaping.armed_ps)
                        return;
                n->shaping.armed_ps = next_ps;
                next_ps +=
                        (uint64_t)(((unsigned __int128)random_next(&s->random) * (2 * timer_ps + 1)) >> 64);
        } else
                n->shaping.armed_ps = NEVER_NS;
        sim_schedule(s, n, ITEM_SHAPING, next_ps);
}

void sim_shaping_turn(struct sim *s, struct sim_node *n)
{
        struct sim_shaping *h = &n->shaping;
        uint64_t next_ps;

        while (sim_bucket_next_ps(&h->link, 0) <= s->now_ps) {
                if (h->control.n > 0)
                        pass(s, n, sim_queue_pop(&h->control).packet);
                else if (heap_first_key(&h->due) <= s->now_ps)
                        pass_data(s, n, heap_first(&h->due));
                else
                        break;
        }
        next_ps = h->control.n > 0 ? s->now_ps : heap_first_key(&h->due);
        if (next_ps != NEVER_NS)
                next_ps = MAX(MAX(next_ps, sim_bucket_next_ps(&h->link, 0)), s->now_ps);
        arm(s, n, next_ps);
}

static void drop(struct sim *s, struct sim_node *n, struct sim_packet *p)
{
        n->dropped_at_source++;
        if (p->is_data)
                n->paths[s->nodes[p->to].self->index].dropped++;
        sim_trace_drop(s, n, p, "source queue");
        sim_path_release(s, p);
        sim_packet_release(p);
}

void sim_shaping_send(struct sim *s, struct sim_node *n, struct sim_packet *p)
{
        struct sim_shaping *h = &n->shaping;
        uint32_t sfi = p->is_data ? s->nodes[p->to].self->index : 0;
        struct sim_queue *q = p->is_data ? &n->paths[sfi].queue : &h->control;
        uint64_t limit_bytes = p->is_data ? n->paths[sfi].limit_bytes : h->control_limit_bytes;

        /* TBF drops packets that could never pass. */
        if (q->bytes + p->frame_bytes > limit_bytes ||
            (p->is_data && sim_bucket_next_ps(&n->paths[sfi].rate, p->frame_bytes) == NEVER_NS)) {
                drop(s, n, p);
                return;
        }
        sim_queue_put(q, s->now_ps, p);
        if (p->is_data && q->n == 1)
                put_due(n, sfi);
        sim_shaping_turn(s, n);
}
