/* Translates the keys of a scenario into a request, so that src/shape does not depend on scenarios, and makes
 * the plan of a ROS. */
#include "node/shaping_request.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "base/util.h"
#include "data/network.h"
#include "shaping_tree.h"

#define LATE_TIMER_US 250 /* nearly all timers are late by less than this */

static int add_destinations(struct tc_request *q, const struct scenario *s, struct tc_destination *to,
                            const bool *wanted, struct error *e)
{
        for (unsigned i = 0; i < scenario_count(s, ROLE_SFI); i++) {
                const struct scenario_node *sfi = scenario_node_of(s, ROLE_SFI, i);

                if (wanted && !wanted[i])
                        continue;
                if (q->n_destinations == TC_DESTINATIONS_MAX)
                        return error_set(e, -EINVAL, "too many SFIs to shape for; expected at most %u",
                                         TC_DESTINATIONS_MAX);
                if (!sfi->address[0])
                        return error_set(e, -EINVAL,
                                         "node %s has no address; set it in section [node %s], or use evb "
                                         "run, which assigns addresses",
                                         sfi->name, sfi->name);
                if (!tc_address_parse(&to[q->n_destinations].address, sfi->address))
                        return error_set(e, -EINVAL,
                                         "node %s: invalid address \"%s\"; expected an IPv4 or IPv6 address",
                                         sfi->name, sfi->address);
                to[q->n_destinations].permille = 0;
                to[q->n_destinations++].rate_bps = s->qos.rate_bps;
        }
        return 0;
}

int shaping_request_of_scenario(struct tc_request *ret, const struct scenario *s,
                                const struct scenario_node *ros, const struct tc_device *device,
                                struct tc_destination *destinations, const bool *wanted, struct error *e)
{
        /* A configured rate counts bytes as the kernel does; see network_overhead_bytes(). */
        uint64_t overhead = s->qos.rate_bps == SCENARIO_AUTO ? TC_ETHERNET_OVERHEAD_BYTES : 0;
        bool is_virtual = s->network.link_rate_bps == 0 && device && device->is_virtual;
        struct tc_request q = {
                .link_rate_bps = s->network.link_rate_bps
                                         ?: device ? device->speed_bps
                                                   : 0,
                /* TCP and other programs use the device's MTU. A packet larger than a burst never passes. */
                .mtu_bytes = MAX((uint32_t)scenario_mtu_bytes(s), device ? device->mtu_bytes : 0),
                .link_is_virtual = is_virtual,
                /* Without a rate, a virtual link does not end at a switch port. */
                .switch_buffer_bytes = is_virtual ? 0 : s->network.switch_buffer_bytes,
                .sources = scenario_count(s, ROLE_ROS),
                /* One socket for each SFI; the kernel doubles the requested size. */
                .send_buffer_bytes = 2 * (s->network.socket_buffer_bytes ?: SCENARIO_SEND_BUFFER_BYTES),
                .super_packet_bytes = device ? device->super_packet_bytes : 0,
                .rate_bps = s->qos.rate_bps,
                .burst_bytes = s->qos.burst_bytes,
                .limit_bytes = s->qos.limit_bytes,
                .control_rate_bps = s->qos.control_rate_bps,
                .offload = (enum tc_offload)s->qos.offload,
                .control_port = (uint16_t)s->network.control_port,
                .data_protocol = s->scenario.transport == TRANSPORT_TCP ? IPPROTO_TCP : IPPROTO_UDP,
                .data_port = scenario_data_port(s),
                .overhead_bytes =
                        (uint16_t)(s->qos.overhead_bytes == SCENARIO_UNCHANGED ? overhead
                                                                               : s->qos.overhead_bytes),
                .other_rate_bps = network_regions_rate_bps(s),
                .other_what = "regions of interest",
                .destinations = destinations,
        };
        struct budget_plan control = network_control_plan(s);
        int r;

        if (q.control_rate_bps == 0 && control.share_bps > 0) {
                q.control_rate_bps = control.share_bps;
                network_control_reason(s, &control, q.control_reason, sizeof q.control_reason);
        }
        if (ros->role != ROLE_ROS)
                return error_set(e, -EINVAL, "node %s sends no fragments; expected a node of role ros",
                                 ros->name);
        r = add_destinations(&q, s, destinations, wanted, e);
        if (r < 0)
                return r;
        *ret = q;
        return 0;
}

enum tc_backend shaping_backend_of_scenario(const struct scenario *s)
{
        static const enum tc_backend backends[] = {
                [QOS_NONE] = TC_BACKEND_NONE,       [QOS_AUTO] = TC_BACKEND_AUTO,
                [QOS_HTB] = TC_BACKEND_HTB,         [QOS_HTB_TBF] = TC_BACKEND_HTB_TBF,
                [QOS_CBQ_TBF] = TC_BACKEND_CBQ_TBF, [QOS_SOCKET] = TC_BACKEND_SOCKET,
                [QOS_EDT] = TC_BACKEND_EDT,
        };

        return backends[s->qos.backend];
}

static int make_request(struct shaping_tree *t, struct tc_request *ret, const bool *wanted, struct error *e)
{
        int r = shaping_request_of_scenario(ret, t->scenario, t->self, &t->device, t->destinations, wanted,
                                            e);

        ret->backend = t->backend;
        ret->fair = t->fair;
        ret->offload = t->offload;
        ret->burst_least_bytes = t->super_packet_bytes;
        return r;
}

/* Plans the burst for all SFIs and ROSs of the scenario. The burst stays the same while some of them are
 * absent, because reducing it later would drop the packets in the queue; see shape/model/diff.c. */
static int plan_burst(struct shaping_tree *t, struct error *e)
{
        struct tc_request q = {};
        struct tc_plan all;
        int r = make_request(t, &q, NULL, e);

        if (r >= 0)
                r = tc_plan_make(&all, &q, e);
        if (r < 0)
                return r;
        t->burst_bytes = all.shares[0].burst_bytes;
        tc_plan_fini(&all);
        return 0;
}

int shaping_tree_plan(struct shaping_tree *t, struct tc_plan *ret, struct error *e)
{
        const struct scenario *sc = t->scenario;
        struct tc_request q = {};
        int r = t->burst_bytes > 0 ? 0 : plan_burst(t, e);

        for (unsigned i = 0; i < sc->sfi.count; i++)
                t->wanted[i] = t->demand.sfi_live[i / 64] >> i % 64 & 1;
        if (r >= 0)
                r = make_request(t, &q, t->wanted, e);
        if (r < 0)
                return r;
        q.burst_bytes = t->burst_bytes;
        q.sources = (uint32_t)t->demand.sources ?: q.sources;
        for (unsigned i = 0, k = 0; i < sc->sfi.count; i++) {
                if (t->wanted[i])
                        t->destinations[k++].permille = t->demand.permille[i];
        }
        return tc_plan_make(ret, &q, e);
}

struct shaping_rates shaping_rates_of(const struct scenario *s)
{
        return (struct shaping_rates){s->qos.rate_bps, s->qos.burst_bytes, s->qos.limit_bytes};
}

void shaping_rates_set(struct scenario *s, const struct shaping_rates *rates)
{
        s->qos.rate_bps = rates->rate_bps;
        s->qos.burst_bytes = rates->burst_bytes;
        s->qos.limit_bytes = rates->limit_bytes;
}

int shaping_rates_check(const struct scenario *s, const struct scenario_node *self,
                        const struct tc_device *device, enum tc_backend backend, size_t super_packet_bytes,
                        struct error *e)
{
        _cleanup_free_ struct tc_destination *to = calloc(EVB_SFI_MAX, sizeof *to);
        struct tc_request q = {};
        struct tc_plan p = {};
        int r;

        if (!to)
                return error_set(e, -ENOMEM, "out of memory");
        r = shaping_request_of_scenario(&q, s, self, device, to, NULL, e);
        if (r < 0)
                return r;
        q.backend = backend;
        q.burst_least_bytes = super_packet_bytes;
        r = tc_plan_make(&p, &q, e);
        tc_plan_fini(&p);
        return r;
}

/* TBF collects tokens for at most one burst, and segments a larger super-packet. While a super-packet that
 * needs all tokens waits for a late timer, further tokens are lost, which reduces the rate. */
size_t shaping_tree_super_packet_bytes(const struct tc_share *s)
{
        return s->burst_bytes - MIN(s->burst_bytes / 4, s->rate_bps / 8 * LATE_TIMER_US / 1000000);
}
