/* Translates a scenario's network keys for the layer net. */
#include "evb/data/network.h"

#include <errno.h>
#include <string.h>

#include "evb/base/log.h"
#include "evb/base/random.h"

#define IPV4_HEADER_BYTES 20
#define IPV6_HEADER_BYTES 40
#define UDP_HEADER_BYTES 8

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

size_t network_datagram_bytes(const struct scenario *s)
{
        bool v6 = s->n_nodes > 0 && strchr(s->nodes[0].address, ':');

        return s->network.mtu_bytes - (v6 ? IPV6_HEADER_BYTES : IPV4_HEADER_BYTES) - UDP_HEADER_BYTES;
}

struct fault_config network_fault_config(const struct scenario *s, const struct scenario_node *self,
                                         unsigned which)
{
        return (struct fault_config){
                .loss = s->network.loss,
                .reorder = s->network.reorder,
                .duplicate = s->network.duplicate,
                .seed = random_mix(s->network.fault_seed) ^
                        ((uint64_t)self->role << 48 | (uint64_t)self->index << 16 | which),
        };
}
