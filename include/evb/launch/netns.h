/* A testbed of network namespaces on this machine: one for each node, joined by veths to a bridge in one
 * more, which is the switch. All of them are called evb-PID-NAME and seen by `ip netns`; all go with
 * netns_lab_free(), and those of a launcher that was killed go at the next netns_lab_new(). Needs
 * CAP_SYS_ADMIN and CAP_NET_ADMIN. One thread. */
#pragma once

#include "evb/conf/scenario.h"

struct netns_lab;

/* Builds it, and fills the nodes' addresses in. Errors are logged: -EPERM, -EOPNOTSUPP and others. */
int netns_lab_new(struct netns_lab **ret, struct scenario *s);
struct netns_lab *netns_lab_free(struct netns_lab *lab);
/* A node's namespace, for netns_enter(); borrowed. -1: no such node. */
int netns_lab_node(const struct netns_lab *lab, const char *name);
/* Packets that the switch's ports have dropped. -ENODATA: wires without rates have no ports that drop. */
int netns_lab_switch_drops(const struct netns_lab *lab, uint64_t *ret_packets);
/* The calling thread goes there. Negative errno. */
int netns_enter(int namespace);
/* Removes the namespaces of launchers that live no more; how many. */
int netns_clean(void);
