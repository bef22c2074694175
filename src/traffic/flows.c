/* Streams from start to end, whoever plays them: processes in namespaces here, or nodes that stand by
 * (flows_remote.c). What each end does is in flow_ends.c. */
#include "evb/traffic/flows.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/sys/loop.h"
#include "evb/traffic/flow_group.h"
#include "evb/traffic/flow_phases.h"
#include "evb/traffic/flow_shaping.h"

#define WARM_NS NS_PER_S
#define SETTLE_NS (300 * NS_PER_MS)
#define PATIENCE_NS (8 * NS_PER_S)

static void wait_ns(uint64_t ns)
{
        struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

        while (nanosleep(&t, &t) < 0 && errno == EINTR)
                ;
}

int flow_play(const struct flow_players *players, void *ctx, enum flow_kind kind, double seconds)
{
        int r = players->wait(ctx, FLOW_WAIT, clock_now_ns() + PATIENCE_NS);

        if (r < 0)
                return r;
        /* What is counted of TCP begins when it is in its stride; of UDP, all that is sent and received. */
        if (kind == FLOW_TCP) {
                players->set(ctx, FLOW_WARM);
                wait_ns(WARM_NS);
        }
        players->set(ctx, FLOW_GO);
        players->pass(ctx, (uint64_t)(seconds * 1e9));
        players->set(ctx, FLOW_STOP_SENDING);
        r = players->wait(ctx, FLOW_STOP_SENDING, clock_now_ns() + PATIENCE_NS);
        wait_ns(SETTLE_NS);
        players->set(ctx, FLOW_END);
        return r < 0 ? r : players->wait(ctx, FLOW_END, clock_now_ns() + PATIENCE_NS);
}

void flow_init_results(struct flow_result *results, unsigned n, enum flow_kind kind, double seconds)
{
        memset(results, 0, n * sizeof *results);
        for (unsigned i = 0; i < n; i++) {
                histogram_init(&results[i].sender_shares);
                histogram_init(&results[i].receiver_shares);
                results[i].seconds = seconds;
                results[i].sending_seconds = seconds + (kind == FLOW_TCP ? (double)WARM_NS / 1e9 : 0);
        }
}

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
                wait_ns(NS_PER_MS);
        }
        return flow_group_error(g);
}

static void pass_here(void *ctx, uint64_t duration_ns)
{
        uint64_t now_ns = clock_now_ns(), until_ns = now_ns + duration_ns;

        flow_group_turn(ctx, now_ns);
        while (now_ns < until_ns && !signals_are_waiting()) {
                wait_ns(MIN(CPU_METER_INTERVAL_NS, until_ns - now_ns));
                now_ns = clock_now_ns();
                flow_group_turn(ctx, now_ns);
        }
}

/* One shaping serves all flows of a sender. */
static bool is_first_of_sender(const struct flow *flows, unsigned i)
{
        return i == 0 || flows[i].from != flows[i - 1].from;
}

static int start_all(struct flow_group *g, struct netns_lab *lab, const struct flow *flows, unsigned n,
                     const struct flow_shape *shape)
{
        struct flow_part parts[FLOW_RECEIVERS_MAX + 2];
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < n; i++) {
                const struct flow *f = &flows[i];
                unsigned n_parts = flow_parts(f, i, parts);

                if (shape->rate_bps > 0 && is_first_of_sender(flows, i))
                        r = lab_shape(netns_lab_node(lab, f->from->name), shape);
                for (unsigned k = 0; r >= 0 && k < n_parts; k++)
                        r = flow_group_start(
                                g, &parts[k],
                                netns_lab_node(
                                        lab, (parts[k].role == FLOW_SENDER ? f->from : f->to[parts[k].which])
                                                     ->name));
        }
        return r;
}

int flows_run(struct netns_lab *lab, const struct flow *flows, unsigned n, const struct flow_shape *shape,
              double seconds, struct flow_result *results)
{
        static const struct flow_players here = {set_here, wait_here, pass_here};
        struct flow_group g;
        int r = flow_group_init(&g);

        flow_init_results(results, n, flows[0].kind, seconds);
        if (r >= 0)
                r = start_all(&g, lab, flows, n, shape);
        if (r >= 0)
                r = flow_play(&here, &g, flows[0].kind, seconds);
        for (unsigned i = 0; r >= 0 && i < g.n; i++)
                flow_result_add(&results[g.ends[i].part.flow], &g.ends[i].part, &g.counters->ends[i],
                                g.ends[i].cpu_seconds, flow_group_shares(&g, i));
        for (unsigned i = 0; r >= 0 && shape->rate_bps > 0 && i < n; i++) {
                if (is_first_of_sender(flows, i))
                        r = lab_shape_drops(netns_lab_node(lab, flows[i].from->name),
                                            &results[i].source_drops);
        }
        flow_group_fini(&g);
        return r < 0 ? log_error_errno(r, "lab: a stream could not run: %m") : 0;
}
