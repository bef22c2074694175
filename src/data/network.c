/* Translates a scenario's network keys for the layer net. */
#include "data/network.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/random.h"
#include "base/util.h"
#include "data/fragment_source.h"
#include "protocol/auth.h"
#include "protocol/message.h"
#include "shape/model/plan.h"

#define IPV4_HEADER_BYTES 20
#define IPV6_HEADER_BYTES 40
#define UDP_HEADER_BYTES 8
/* KeepAlive may use at most this share of the data rate at which the DFM may send into the port of an SFI. */
#define KEEP_ALIVE_PERMILLE 750u
/* Rate of regions of interest if the rate of links is unlimited. */
#define REGIONS_RATE_BPS UINT64_C(100000000)

int network_node_address(struct net_address *ret, const struct scenario_node *n, uint16_t port)
{
        if (n->address[0] == '\0')
                return log_error_errno(EINVAL,
                                       "node %s has no address; set it in section [node %s], or start all "
                                       "nodes with `evb run`",
                                       n->name, n->name);
        if (net_address_parse(ret, n->address, port) < 0)
                return log_error_errno(
                        EINVAL, "node %s: invalid address \"%s\"; expected a numeric IPv4 or IPv6 address",
                        n->name, n->address);
        return 0;
}

int network_front_end_address(struct net_address *ret, const struct scenario_node *n)
{
        struct net_address source;
        int r = network_node_address(ret, n, 0);

        if (r < 0 || (n->source_kind != SOURCE_UDP && n->source_kind != SOURCE_TCP) ||
            net_address_parse_with_port(&source, n->source_at) < 0)
                return r;
        if (n->source_kind == SOURCE_UDP && !net_address_is_multicast(&source))
                *ret = source;
        /* A group is joined on the device of the node's own address. */
        else if (source.any.sa_family != ret->any.sa_family ||
                 (net_address_is_loopback(ret) && !net_address_is_loopback(&source)))
                net_address_parse(ret, source.any.sa_family == AF_INET6 ? "::" : "0.0.0.0", 0);
        return 0;
}

int network_trigger_group(struct net_address *ret, const struct scenario *s)
{
        return s->trigger.group[0] == '\0' ? -ENOENT
                                           : net_address_parse(ret, s->trigger.group, s->trigger.port);
}

static bool is_v6(const struct scenario *s)
{
        return s->n_nodes > 0 && strchr(s->nodes[0].address, ':');
}

size_t network_payload_bytes(const struct scenario *s, uint64_t mtu_bytes)
{
        return mtu_bytes - (is_v6(s) ? IPV6_HEADER_BYTES : IPV4_HEADER_BYTES) - UDP_HEADER_BYTES;
}

size_t network_datagram_bytes(const struct scenario *s)
{
        return network_payload_bytes(s, scenario_mtu_bytes(s));
}

size_t network_probe_bytes(const struct scenario *s)
{
        return s->network.mtu_bytes == SCENARIO_AUTO ? network_payload_bytes(s, NETWORK_MTU_MAX_BYTES)
                                                     : network_datagram_bytes(s);
}

uint32_t network_trailer_bytes(const struct scenario *s)
{
        return s->network.key_file[0] ? AUTH_TRAILER_BYTES : 0;
}

size_t network_message_bytes(const struct scenario *s)
{
        return network_datagram_bytes(s) - network_trailer_bytes(s);
}

uint32_t network_header_bytes(const struct scenario *s)
{
        return is_v6(s) ? BUDGET_HEADER6_BYTES : BUDGET_HEADER_BYTES;
}

uint32_t network_overhead_bytes(const struct scenario *s)
{
        return s->qos.overhead_bytes == SCENARIO_UNCHANGED ? TC_ETHERNET_OVERHEAD_BYTES
                                                           : (uint32_t)s->qos.overhead_bytes;
}

/* 0: the size is unknown, because the fragments come from outside. */
static uint64_t usual_fragment_bytes(const struct scenario *s)
{
        if (!scenario_all_from(s, SOURCE_PATTERN))
                return 0;
        switch (s->ros.sizes_kind) {
        case SIZES_UNIFORM:
                return (s->ros.sizes_least_bytes + s->ros.sizes_most_bytes) / 2;
        case SIZES_LOGNORMAL:
                return (uint64_t)s->ros.sizes_mean_bytes;
        default:
                return s->ros.fragment_size_bytes;
        }
}

static struct budget_plan control_plan(const struct scenario *s, uint64_t keep_alive_ns)
{
        return budget_plan_make(&(struct budget_demand){
                .link_bps = s->network.link_rate_bps,
                .n_ros = (uint32_t)s->ros.count,
                .n_sfi = (uint32_t)s->sfi.count,
                .fragment_bytes = usual_fragment_bytes(s),
                .with_info = scenario_replayed_file(s) || s->trigger.source_kind != TRIGGER_INTERNAL ||
                             s->level2.port > 0,
                .mtu_bytes = (uint32_t)scenario_mtu_bytes(s),
                .header_bytes = network_header_bytes(s),
                .trailer_bytes = network_trailer_bytes(s),
                .overhead_bytes = network_overhead_bytes(s),
                .keep_alive_ns = keep_alive_ns,
                .configured_bps = s->qos.control_rate_bps == SCENARIO_AUTO ? 0 : s->qos.control_rate_bps,
        });
}

struct budget_plan network_control_plan(const struct scenario *s)
{
        return control_plan(s, s->dfm.keep_alive_ns);
}

/* Computes the rate of KeepAlive into the port of an SFI, and the rate at which the DFM may send there.
 * False: KeepAlive uses too much of this rate. */
static bool fits(const struct scenario *s, uint64_t keep_alive_ns, uint64_t *ret_bps, uint64_t *ret_most_bps)
{
        static struct message keep_alive = {.header.type = MESSAGE_KEEP_ALIVE,
                                            .keep_alive.state = RUN_STARTING};
        struct budget_plan p = control_plan(s, keep_alive_ns);
        uint64_t bits = 8 * (message_bytes(&keep_alive) + p.header_bytes);

        *ret_bps = bits * NS_PER_S / keep_alive_ns;
        *ret_most_bps = p.assign_bps;
        return p.assign_bps == 0 || *ret_bps <= p.assign_bps / 1000 * KEEP_ALIVE_PERMILLE;
}

int network_check_control(const struct scenario *s, struct error *error)
{
        uint64_t least_ns = DIV_ROUND_UP(s->dfm.keep_alive_ns, NS_PER_MS) * NS_PER_MS, bps, most_bps, other,
                 other_most;
        char taken[QUANTITY_TEXT_MAX], most[QUANTITY_TEXT_MAX], least[QUANTITY_TEXT_MAX];

        if (fits(s, s->dfm.keep_alive_ns, &bps, &most_bps))
                return 0;
        while (!fits(s, least_ns, &other, &other_most))
                least_ns += NS_PER_MS;
        return error_set(error, -EINVAL,
                         "test.keep-alive: KeepAlive takes %s of the %s that the DFM may send to an SFI, so "
                         "there is too little left for assignments; expected at least %s, or a higher "
                         "qos.control-rate or network.link-rate",
                         quantity_format_rate(bps, taken), quantity_format_rate(most_bps, most),
                         quantity_format_time(least_ns, least));
}

void network_control_reason(const struct scenario *s, const struct budget_plan *p, char *text, size_t size)
{
        char link[QUANTITY_TEXT_MAX], events[QUANTITY_TEXT_MAX], needed[QUANTITY_TEXT_MAX];

        quantity_format_rate(s->network.link_rate_bps, link);
        if (s->qos.control_rate_bps != SCENARIO_AUTO)
                snprintf(text, size, "as configured");
        else if (p->event_rate_hz > 0)
                snprintf(text, size,
                         "auto: assignments of %s events/s, which fill the port, need %s; 0.1 %% of %s for "
                         "headers and acknowledgements; at most 10 %%",
                         quantity_format_count((uint64_t)p->event_rate_hz, events),
                         quantity_format_rate(p->needed_bps, needed), link);
        else
                snprintf(text, size, "auto: 0.5 %% of %s, as the size of fragments is unknown", link);
}

uint64_t network_control_bound_bps(const struct scenario *s, enum node_role role)
{
        struct budget_plan p = network_control_plan(s);

        switch (role) {
        case ROLE_SFI:
                return p.share_bps;
        case ROLE_ROS:
                return p.announce_bps + s->sfi.count * p.request_bps;
        case ROLE_DFM:
                return s->sfi.count * p.update_bps + s->ros.count * p.alive_bps;
        case ROLE_LEVEL2:
                break; /* no node */
        }
        return 0;
}

uint64_t network_regions_rate_bps(const struct scenario *s)
{
        if (s->level2.regions_port == 0)
                return 0;
        return s->network.link_rate_bps > 0 ? s->network.link_rate_bps / 10 : REGIONS_RATE_BPS;
}

struct fault_config network_fault_config(const struct scenario *s, const struct scenario_node *self,
                                         unsigned which)
{
        return (struct fault_config){
                .loss = s->network.loss,
                .reorder = s->network.reorder,
                .duplicate = s->network.duplicate,
                .seed = random_mix(s->run.seed) ^
                        ((uint64_t)self->role << 48 | (uint64_t)self->index << 16 | which),
        };
}

int address_book_init(struct address_book *b, const struct scenario *s)
{
        *b = (struct address_book){
                .ros = calloc(s->ros.count, sizeof *b->ros),
                .sfi = calloc(s->sfi.count, sizeof *b->sfi),
                .n_ros = s->ros.count,
                .n_sfi = s->sfi.count,
        };
        if (!b->ros || !b->sfi)
                return log_error_errno(ENOMEM, "address book: %m");
        for (size_t i = 0; i < s->n_nodes; i++) {
                const struct scenario_node *n = &s->nodes[i];
                struct net_address *to = n->role == ROLE_DFM   ? &b->dfm
                                         : n->role == ROLE_ROS ? &b->ros[n->index]
                                                               : &b->sfi[n->index];
                int r = network_node_address(to, n, (uint16_t)s->network.control_port);

                if (r < 0)
                        return r;
        }
        return 0;
}

void address_book_fini(struct address_book *b)
{
        free(b->ros);
        free(b->sfi);
        *b = (struct address_book){};
}

const struct net_address *address_book_find(const struct address_book *b, enum node_role role, uint16_t index)
{
        switch (role) {
        case ROLE_DFM:
                return &b->dfm;
        case ROLE_ROS:
                return index < b->n_ros ? &b->ros[index] : NULL;
        case ROLE_SFI:
                return index < b->n_sfi ? &b->sfi[index] : NULL;
        case ROLE_LEVEL2:
                break; /* no node */
        }
        return NULL;
}

bool address_book_is_host(const struct address_book *b, enum node_role role, uint16_t index,
                          const struct net_address *address)
{
        const struct net_address *known = address_book_find(b, role, index);

        return known && net_address_same_host(known, address);
}

bool address_book_has_ros(const struct address_book *nodes, const struct net_address *from)
{
        for (size_t i = 0; i < nodes->n_ros; i++) {
                if (address_book_is_host(nodes, ROLE_ROS, (uint16_t)i, from))
                        return true;
        }
        return false;
}
