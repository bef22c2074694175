/* Translates a scenario's network keys for the layer net: addresses, datagram size, faults. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/net/address.h"
#include "evb/net/faults.h"

/* Address of a node's port. Errors are logged. */
int network_node_address(struct net_address *ret, const struct scenario_node *n, uint16_t port);
/* Bytes of UDP payload in one packet. */
size_t network_datagram_bytes(const struct scenario *s);
/* Faults of socket number `which` of a node; each socket has its own seed. */
struct fault_config network_fault_config(const struct scenario *s, const struct scenario_node *self,
                                         unsigned which);
