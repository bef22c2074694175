/* Runs flows as processes in the testbed's namespaces. flow_process.c holds what each endpoint does. */
#include "traffic/flows.h"

#include <errno.h>

#include "base/log.h"
#include "base/util.h"
#include "sys/loop.h"
#include "traffic/flow_group.h"
#include "traffic/flow_phases.h"
#include "traffic/flow_shaping.h"

static void set_here(void *ctx, enum flow_state state)
{
        flow_group_set(ctx, state);
}

static int wait_here(void *ctx, enum flow_state state, uint64_t deadline_ns)
{
        struct flow_group *g = ctx;

        while (!(state == FLOW_WAIT  ? flow_group_is_ready(g)
                 : state == FLOW_END ? flow_group_reap(g)
                                     : flow_group_is_quiet(g))) {
                if (flow_group_error(g) < 0 && state != FLOW_END)
                        break;
                if (clock_now_ns() > deadline_ns)
                        return -ETIMEDOUT;
                if (signals_are_waiting())
                        return -EINTR;
                flow_sleep_ns(NS_PER_MS);
        }
        return flow_group_error(g);
}

static void pass_here(void *ctx, uint64_t duration_ns)
{
        uint64_t now_ns = clock_now_ns(), until_ns = now_ns + duration_ns;

        flow_group_turn(ctx, now_ns);
        while (now_ns < until_ns && !signals_are_waiting()) {
                flow_sleep_ns(MIN(CPU_METER_INTERVAL_NS, until_ns - now_ns));
                now_ns = clock_now_ns();
                flow_group_turn(ctx, now_ns);
        }
}

/* All flows of a sender share one shaping. */
static bool is_first_of_sender(const struct flow *flows, unsigned i)
{
        return i == 0 || flows[i].from != flows[i - 1].from;
}

static int start_all(struct flow_group *g, struct testbed *testbed, const struct flow *flows, unsigned n,
                     const struct flow_shape *shape)
{
        struct flow_endpoint endpoints[FLOW_RECEIVERS_MAX + 2];
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < n; i++) {
                const struct flow *f = &flows[i];
                unsigned n_endpoints = flow_endpoints(f, i, endpoints);

                if (shape->rate_bps > 0 && is_first_of_sender(flows, i))
                        r = flow_shaping_install(testbed_node_namespace(testbed, f->from->name), shape);
                for (unsigned k = 0; r >= 0 && k < n_endpoints; k++)
                        r = flow_group_start(
                                g, &endpoints[k],
                                testbed_node_namespace(testbed, (endpoints[k].role == FLOW_SENDER
                                                                         ? f->from
                                                                         : f->to[endpoints[k].which])
                                                                        ->name));
        }
        return r;
}

/* A busy machine may end the measurement late, and the counters then cover a longer time. */
static void set_seconds(struct flow_result *results, unsigned n, const struct flow_group *g)
{
        double late_s = (double)(g->stop_ns - g->go_ns) / 1e9 - results[0].seconds;

        for (unsigned i = 0; i < n; i++) {
                results[i].seconds += late_s;
                results[i].sending_seconds += late_s;
        }
}

int flows_run(struct testbed *testbed, const struct flow *flows, unsigned n, const struct flow_shape *shape,
              double seconds, struct machine_watch *watch, struct flow_result *results)
{
        static const struct flow_driver here = {set_here, wait_here, pass_here};
        struct flow_group g;
        int r = flow_group_init(&g);

        g.raised = true;
        g.watch = watch;
        flow_results_init(results, n, flows[0].kind, seconds);
        if (r >= 0)
                r = start_all(&g, testbed, flows, n, shape);
        if (r >= 0)
                r = flow_phases_run(&here, &g, flows[0].kind, seconds);
        if (r >= 0)
                set_seconds(results, n, &g);
        for (unsigned i = 0; r >= 0 && i < g.n; i++)
                flow_result_add(&results[g.endpoints[i].endpoint.flow], &g.endpoints[i].endpoint,
                                &g.shared->counters[i], g.endpoints[i].cpu_seconds, flow_group_shares(&g, i));
        for (unsigned i = 0; r >= 0 && shape->rate_bps > 0 && i < n; i++) {
                if (is_first_of_sender(flows, i))
                        r = flow_shaping_installed_drops(testbed_node_namespace(testbed, flows[i].from->name),
                                                         &results[i].source_drops);
        }
        flow_group_fini(&g);
        return r < 0 ? log_error_errno(r, "lab: flows failed: %m") : 0;
}
