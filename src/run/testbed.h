/* The testbed of the lab on this machine: one network namespace per node, each connected by a veth to a
 * bridge in a further namespace, the switch. testbed_free() removes all of it; testbed_new() also removes
 * what killed launchers left. Requires CAP_SYS_ADMIN and CAP_NET_ADMIN. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "conf/scenario.h"

/* If this environment variable is "timer", timers decide which packets ports drop, as on a kernel without
 * BPF; for comparisons. */
#define TESTBED_PORT_ENV "EVB_LAB_PORT"

struct testbed;

/* Builds the testbed and sets the nodes' addresses and devices in the scenario, which it borrows. Logs
 * errors: -EPERM, -EOPNOTSUPP and others. */
int testbed_new(struct testbed **ret, struct scenario *s);
struct testbed *testbed_free(struct testbed *testbed);
/* Returns a node's namespace for netns_enter(), borrowed; -1 if the node does not exist. */
int testbed_node_namespace(const struct testbed *testbed, const char *name);

/* Packets that the switch dropped or lost since the testbed was built. */
struct testbed_counts {
        bool is_exact;            /* true: all ports were decided by arithmetic; false: by timers */
        uint64_t dropped_packets; /* by ports whose buffer was full */
        uint64_t lost_packets; /* packets dropped by queues of the testbed that do not exist in a real link or
                                  port */
};

/* Reads the counters. Logs a warning if packets were lost, or if reading fails. If links have no rate limit,
 * ports drop nothing, so it returns -ENODATA without a warning. */
int testbed_read_counts(const struct testbed *testbed, struct testbed_counts *ret);
/* Returns "exact" or "timer", for reports. */
const char *testbed_port_name(const struct testbed_counts *counts);

/* Named network namespaces, as `ip netns` shows them. Names begin with evb-PID-, where PID is the process
 * that made them. Requires CAP_SYS_ADMIN. */

/* Moves the calling thread into a namespace. Returns negative errno. */
int netns_enter(int namespace);
/* Makes a namespace and returns its descriptor; the calling thread stays where it is. Returns negative
 * errno. */
int netns_make(const char *name, int *ret_fd);
void netns_remove(const char *name);
/* Removes the namespaces of processes that no longer exist. Returns their number. */
int netns_clean(void);
