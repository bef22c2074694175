/* Runs flows on standby nodes: sends each node its endpoints and the phases, and collects the counters. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "run/counters_json.h"
#include "traffic/flow_phases.h"
#include "coordinator_internal.h"

struct participant {
        size_t node; /* index into the coordinator's scenario */
        struct flow_endpoint endpoints[FLOW_ENDPOINTS_MAX];
        unsigned n_endpoints;
        bool shapes;
        enum reached { NOTHING, READY, QUIET, ENDED } reached;
};

struct measurement {
        struct coordinator *coordinator;
        struct participant participants[FLOW_ENDPOINTS_MAX];
        size_t nodes[FLOW_ENDPOINTS_MAX], n;
        struct flow_result *results;
        enum reached awaited;
        int error;
};

static struct participant *find_participant(struct measurement *m, size_t node)
{
        for (size_t i = 0; i < m->n; i++) {
                if (m->participants[i].node == node)
                        return &m->participants[i];
        }
        return NULL;
}

static int add_endpoint(struct measurement *m, const struct scenario_node *n,
                        const struct flow_endpoint *endpoint)
{
        size_t node = coordinator_find_node(m->coordinator, n->name);
        struct participant *p = find_participant(m, node);

        if (node == SIZE_MAX || (!p && m->n == FLOW_ENDPOINTS_MAX))
                return -EINVAL;
        if (!p) {
                p = &m->participants[m->n];
                p->node = m->nodes[m->n++] = node;
        }
        p->endpoints[p->n_endpoints++] = *endpoint;
        return 0;
}

static int assign_endpoints(struct measurement *m, const struct flow *flows, unsigned n)
{
        struct flow_endpoint endpoints[FLOW_RECEIVERS_MAX + 2];
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < n; i++) {
                unsigned n_endpoints = flow_endpoints(&flows[i], i, endpoints);

                for (unsigned k = 0; r >= 0 && k < n_endpoints; k++)
                        r = add_endpoint(m,
                                         endpoints[k].role == FLOW_SENDER ? flows[i].from
                                                                          : flows[i].to[endpoints[k].which],
                                         &endpoints[k]);
        }
        return r;
}

static uint64_t count(const json_t *o, const char *name)
{
        json_int_t v = json_integer_value(json_object_get(o, name));

        return v > 0 ? (uint64_t)v : 0;
}

static int take_counters(struct measurement *m, const struct participant *p, const json_t *answer)
{
        const json_t *endpoints = json_object_get(answer, "endpoints");

        for (unsigned i = 0; i < p->n_endpoints; i++) {
                const json_t *e = json_array_get(endpoints, i), *gaps = json_object_get(e, "gaps_ns");
                struct histogram shares;
                struct flow_counters counters = {
                        .messages = count(e, "messages"),
                        .bytes = count(e, "bytes"),
                        .socket_drops = count(e, "socket_drops"),
                };

                if (!e || (gaps && histogram_from_json(&counters.gaps_ns, gaps) < 0) ||
                    histogram_from_json(&shares, json_object_get(e, "cpu_shares")) < 0)
                        return -EBADMSG;
                flow_result_add(&m->results[p->endpoints[i].flow], &p->endpoints[i], &counters,
                                json_number_value(json_object_get(e, "cpu_seconds")), &shares);
        }
        m->results[p->endpoints[0].flow].source_drops += count(answer, "source_drops");
        m->results[p->endpoints[0].flow].source_drops_unknown |=
                p->shapes && !json_is_integer(json_object_get(answer, "source_drops"));
        return 0;
}

static void answered(void *ctx, size_t node, const json_t *answer)
{
        struct measurement *m = ctx;
        struct participant *p = find_participant(m, node);
        const char *state = json_string_value(json_object_get(answer, "state"));
        char why[JSON_CONNECTION_TEXT_MAX_BYTES];

        if (!p || !state)
                return;
        if (strcmp(state, "ready") == 0)
                p->reached = MAX(p->reached, READY);
        else if (strcmp(state, "quiet") == 0)
                p->reached = MAX(p->reached, QUIET);
        else if (strcmp(state, "ended") == 0 && p->reached < ENDED) {
                int r = take_counters(m, p, answer);

                m->error = MIN(m->error, r);
                p->reached = ENDED;
        } else if (strcmp(state, "refused") == 0) {
                log_error("%s refused: %s", m->coordinator->scenario->nodes[node].name,
                          json_connection_text(json_object_get(answer, "reason"), why, sizeof why));
                m->error = -ECANCELED;
                p->reached = ENDED;
        }
}

static void left(void *ctx, size_t node)
{
        struct measurement *m = ctx;

        if (!find_participant(m, node))
                return;
        log_error("%s disconnected during a measurement", m->coordinator->scenario->nodes[node].name);
        m->error = -ENOTCONN;
}

static void set(void *ctx, enum flow_state state)
{
        struct measurement *m = ctx;

        coordinator_command(m->coordinator, m->nodes, m->n,
                            json_pack("{s:s, s:I, s:i}", "kind", "state", "job", m->coordinator->job, "state",
                                      (int)state));
}

static bool all_reached(void *ctx)
{
        const struct measurement *m = ctx;
        bool all = true;

        for (size_t i = 0; i < m->n; i++)
                all &= m->participants[i].reached >= m->awaited;
        return all || m->error < 0;
}

/* Names silent nodes: they may have made another node fail. */
static void log_late(const struct measurement *m)
{
        static const char *const awaited[] = {
                [READY] = "become ready", [QUIET] = "stop sending", [ENDED] = "finish"};

        for (size_t i = 0; i < m->n; i++) {
                if (m->participants[i].reached < m->awaited)
                        log_error("%s did not %s in time",
                                  m->coordinator->scenario->nodes[m->participants[i].node].name,
                                  awaited[m->awaited]);
        }
}

static int wait_for(void *ctx, enum flow_state state, uint64_t deadline_ns)
{
        struct measurement *m = ctx;
        int r;

        m->awaited = state == FLOW_WAIT ? READY : state == FLOW_END ? ENDED : QUIET;
        r = coordinator_wait(m->coordinator, all_reached, m, deadline_ns);
        if (r == -ETIMEDOUT || m->error == -ECANCELED)
                log_late(m);
        return m->error < 0 ? m->error : r;
}

static bool has_failed(void *ctx)
{
        return ((const struct measurement *)ctx)->error < 0;
}

static void pass(void *ctx, uint64_t duration_ns)
{
        struct measurement *m = ctx;

        (void)coordinator_wait(m->coordinator, has_failed, m, clock_now_ns() + duration_ns);
}

static json_t *shape_to_json(const struct flow_shape *s)
{
        json_t *to = json_array();

        for (unsigned i = 0; i < s->n_to; i++)
                json_array_append_new(to, json_string(s->to[i]));
        return json_pack("{s:I, s:I, s:I, s:I, s:i, s:i, s:o}", "rate_bps", (json_int_t)s->rate_bps,
                         "link_rate_bps", (json_int_t)s->link_rate_bps, "mtu_bytes", (json_int_t)s->mtu_bytes,
                         "switch_buffer_bytes", (json_int_t)s->switch_buffer_bytes, "control_port",
                         (int)s->control_port, "sources", (int)s->sources, "to", to);
}

static void send_endpoints(struct measurement *m, const struct flow_shape *shape)
{
        for (size_t i = 0; i < m->n; i++) {
                struct participant *p = &m->participants[i];
                json_t *endpoints = json_array(), *command;
                bool sends = false;

                for (unsigned k = 0; k < p->n_endpoints; k++) {
                        json_array_append_new(endpoints, flow_endpoint_to_json(&p->endpoints[k]));
                        sends |= p->endpoints[k].role == FLOW_SENDER;
                }
                command = json_pack("{s:s, s:I, s:o}", "kind", "flows", "job", m->coordinator->job,
                                    "endpoints", endpoints);
                p->shapes = sends && shape->rate_bps > 0;
                if (p->shapes)
                        json_object_set_new(command, "shape", shape_to_json(shape));
                coordinator_command(m->coordinator, &p->node, 1, command);
        }
}

static int measure(struct measurement *m, const struct flow *flows, unsigned n,
                   const struct flow_shape *shape, double seconds)
{
        static const struct flow_driver driver = {set, wait_for, pass};
        int r = assign_endpoints(m, flows, n);

        if (r >= 0)
                r = coordinator_wait_for_nodes(m->coordinator, m->nodes, m->n);
        if (r < 0)
                return r;
        m->coordinator->job++;
        m->coordinator->answered = answered;
        m->coordinator->left = left;
        m->coordinator->ctx = m;
        send_endpoints(m, shape);
        r = flow_phases_run(&driver, m, flows[0].kind, seconds);
        m->coordinator->answered = NULL;
        m->coordinator->left = NULL;
        if (r < 0)
                coordinator_command(m->coordinator, m->nodes, m->n, json_pack("{s:s}", "kind", "stop"));
        return r;
}

int coordinator_run_flows(struct coordinator *c, const struct flow *flows, unsigned n,
                          const struct flow_shape *shape, double seconds, struct flow_result *results)
{
        _cleanup_free_ struct measurement *m = calloc(1, sizeof *m);
        int error = m ? 0 : -ENOMEM;

        flow_results_init(results, n, flows[0].kind, seconds);
        if (error >= 0) {
                m->coordinator = c;
                m->results = results;
                error = measure(m, flows, n, shape, seconds);
        }
        return error < 0 ? log_error_errno(error, "lab: flows failed: %m") : 0;
}
