/* The testbed of the lab on this machine: one network namespace per node, each joined by a veth to a bridge
 * in a further namespace, the switch. testbed_free() removes all of it; testbed_new() also removes what
 * killed launchers left. Requires CAP_SYS_ADMIN and CAP_NET_ADMIN. One thread. */
#pragma once

#include "evb/conf/scenario.h"

struct testbed;

/* Builds the testbed and sets the nodes' addresses and devices in the scenario, which it borrows. Logs
 * errors: -EPERM, -EOPNOTSUPP and others. */
int testbed_new(struct testbed **ret, struct scenario *s);
struct testbed *testbed_free(struct testbed *testbed);
/* Returns a node's namespace for netns_enter(), borrowed; -1 if the node does not exist. */
int testbed_node_namespace(const struct testbed *testbed, const char *name);
/* Counts the packets that the switch's ports have dropped. Returns -ENODATA if links have no rate: then ports
 * drop nothing. */
int testbed_switch_drops(const struct testbed *testbed, uint64_t *ret_packets);
