/* A run as the report sees it: the scenario, each node's process with its counters and report, and the
 * launcher's measurements. launch.c fills in these data from child processes, and evb sim fills them in from
 * virtual nodes; summary.c only reads them. The code that fills them in owns all pointers. One thread. */
#pragma once

#include "base/util.h"
#include "run/child.h"
#include "run/launch.h"
#include "run/testbed.h"

/* Time limit for the exit of a node that has nothing left to do. */
#define LAUNCH_TERM_NS (5 * NS_PER_S)

/* A run of evb sim. */
struct virtual_run {
        uint64_t seed, digest;
        uint32_t run;          /* its number */
        const char *violation; /* the violated invariant; NULL: none */
        bool plan_fits;        /* see struct sim_result */
        uint64_t port_most_bytes;
};

struct launch {
        const struct launch_options *options; /* the report uses only `json` and `quiet` */
        const struct scenario *scenario;
        /* One per node of the scenario, in its order. A report needs `node`, `stats`, `status`, `usage` and
         * `report`. */
        struct child *children;
        size_t n_children;
        uint64_t start_ns, end_ns;
        struct histogram cpu_shares[ROLE_SFI + 1]; /* of each role's processes, while triggers arrived */
        bool has_switch;                           /* the switch is emulated, and its ports have a rate */
        struct testbed_counts at_switch;
        unsigned signals;                      /* number of signals that asked the run to stop */
        const struct virtual_run *virtual_run; /* NULL: a real run */
        bool killed;                           /* nodes that did not stop in time were killed */
};

/* Returns the DFM's child; every scenario has one. */
struct child *launch_dfm(const struct launch *l);
/* Sums a counter over the nodes of a role; role 0: over all nodes. */
uint64_t launch_sum(const struct launch *l, enum node_role role, size_t counter);
/* Sums each counter over the nodes whose role has it (struct counter, `roles`). */
void launch_sums(const struct launch *l, uint64_t ret[static COUNTERS]);
/* Returns how long nodes may take to end after they are stopped. */
uint64_t launch_drain_ns(const struct scenario *s);
