/* Runs a point of plain flows: one-way traffic or echoes between nodes, with or without shaping. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "traffic/flows.h"
#include "flow_figures.h"
#include "run_internal.h"
#include "settings.h"

#define GROUP "239.255.69.1"
#define PORT 7100
#define CONTROL_PORT 26800

/* Fills `s` with the senders and receivers of the point: the first nodes of the bed, or those of a lab that
 * testbed_new() creates. */
static int find_nodes(const struct lab_point *p, struct scenario *s)
{
        const struct scenario *bed = p->bed ? p->bed->scenario : NULL;
        unsigned senders = (unsigned)setting_of(p, "senders", 1),
                 receivers = (unsigned)setting_of(p, "receivers", 1);

        *s = (struct scenario){};
        s->ros.count = senders;
        s->sfi.count = receivers;
        s->network.link_rate_bps = bed ? bed->network.link_rate_bps : (uint64_t)setting_of(p, "link", 1e9);
        s->network.switch_buffer_bytes =
                bed ? bed->network.switch_buffer_bytes : (uint64_t)setting_of(p, "buffer", 262144);
        s->network.mtu_bytes = bed ? bed->network.mtu_bytes : (uint64_t)setting_of(p, "mtu", 1500);
        for (unsigned i = 0; i < senders + receivers; i++) {
                bool sender = i < senders;
                unsigned index = sender ? i : i - senders;
                const struct scenario_node *there =
                        bed ? scenario_node_of(bed, sender ? ROLE_ROS : ROLE_SFI, index) : NULL;
                struct scenario_node *n = &s->nodes[s->n_nodes++];

                if (there && strchr(there->address, ':'))
                        return log_error_errno(EAFNOSUPPORT,
                                               "lab: %s: address %s is not IPv4; plain flows need IPv4",
                                               there->name, there->address);
                if (there)
                        *n = *there;
                else
                        snprintf(n->name, sizeof n->name, "%s%u", sender ? "sender" : "receiver", index + 1);
        }
        return 0;
}

static struct flow make_flow(const struct lab_point *p, const struct scenario *s, unsigned from, unsigned to,
                             enum flow_kind kind)
{
        struct flow f = {
                .kind = kind,
                .from = &s->nodes[from],
                .to = {&s->nodes[s->ros.count + to]},
                .n_to = 1,
                .port = kind == FLOW_ECHO ? CONTROL_PORT : (uint16_t)(PORT + from * 16 + to),
                .message_bytes = (uint32_t)setting_of(p, "message", 1400),
                .messages_per_s = (uint64_t)setting_of(p, "messages_per_s", 0),
                .receiver_packets_per_s = (uint64_t)setting_of(p, "receiver_pps", 0),
                .buffer_bytes = (uint32_t)setting_of(p, "socket", 0),
                .watch_wire = setting_of(p, "watch", 0) > 0,
        };

        if (kind == FLOW_MULTICAST) {
                snprintf(f.group, sizeof f.group, GROUP);
                f.n_to = (unsigned)MIN(s->sfi.count, (uint64_t)FLOW_RECEIVERS_MAX);
                for (unsigned i = 0; i < f.n_to; i++)
                        f.to[i] = &s->nodes[s->ros.count + i];
        }
        return f;
}

static struct flow_shape make_shape(const struct lab_point *p, const struct scenario *s, enum flow_kind kind)
{
        struct flow_shape shape = {
                .rate_bps = (uint64_t)setting_of(p, "rate", 0),
                /* The shaping tree limits an echo's link to its configured rate, even on a faster wire. */
                .link_rate_bps =
                        kind == FLOW_ECHO ? (uint64_t)setting_of(p, "link", 1e9) : s->network.link_rate_bps,
                .mtu_bytes = s->network.mtu_bytes,
                .switch_buffer_bytes = kind == FLOW_ECHO ? 0 : s->network.switch_buffer_bytes,
                .control_port = setting_of(p, "control", 0) > 0 ? CONTROL_PORT : 0,
                .sources = (unsigned)s->ros.count,
                .n_to = kind == FLOW_MULTICAST ? 1 : (unsigned)MIN(s->sfi.count, (uint64_t)FLOWS_MAX),
        };

        for (unsigned i = 0; i < shape.n_to; i++)
                snprintf(shape.to[i], sizeof shape.to[i], "%s",
                         kind == FLOW_MULTICAST ? GROUP : s->nodes[s->ros.count + i].address);
        return shape;
}

static unsigned make_flows(const struct lab_point *p, const struct scenario *s, enum flow_kind kind,
                           struct flow flows[static FLOWS_MAX])
{
        unsigned n = 0;

        for (unsigned i = 0; i < s->ros.count; i++) {
                for (unsigned k = 0; k < (kind == FLOW_MULTICAST ? 1 : s->sfi.count) && n < FLOWS_MAX; k++)
                        flows[n++] = make_flow(p, s, i, k, kind);
        }
        return n;
}

json_t *run_flows(const struct lab_point *p, struct machine_watch *watch)
{
        _cleanup_free_ struct scenario *s = calloc(1, sizeof *s);
        _cleanup_free_ struct flow_result *results = calloc(FLOWS_MAX, sizeof *results);
        enum flow_kind kind = (enum flow_kind)setting_of(p, "kind", FLOW_UDP);
        double seconds = setting_of(p, "seconds", 1);
        struct flow flows[FLOWS_MAX] = {};
        struct testbed *lab = NULL;
        struct flow_shape shape;
        json_t *result = NULL;
        struct testbed_counts at_switch;
        unsigned n = 0;
        int r = s && results ? find_nodes(p, s) : -ENOMEM;

        /* testbed_new() assigns the addresses that the flows need. */
        if (r >= 0 && !p->bed)
                r = testbed_new(&lab, s);
        if (r >= 0) {
                n = make_flows(p, s, kind, flows);
                shape = make_shape(p, s, kind);
                r = p->bed ? coordinator_run_flows(p->bed->coordinator, flows, n, &shape, seconds, results)
                           : flows_run(lab, flows, n, &shape, seconds, watch, results);
        }
        if (r >= 0) {
                result = kind == FLOW_ECHO ? flow_figures_echo(&results[0]) : flow_figures(flows, results, n);
                flow_figures_add_shares(result, results, n);
                flow_figures_add_losses(result, results, n, kind, shape.rate_bps > 0);
                if (lab && testbed_read_counts(lab, &at_switch) >= 0)
                        flow_figures_add_switch(result, &at_switch);
        }
        testbed_free(lab);
        return result;
}
