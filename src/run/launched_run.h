/* A run as the report sees it: the scenario, each node's process with its counters and report, and what the
 * launcher measured. launch.c fills it from child processes; summary.c only reads it. The filler owns all
 * pointers. One thread. */
#pragma once

#include "base/util.h"
#include "run/child.h"
#include "run/launch.h"
#include "run/testbed.h"

/* How long a node may take to end that has nothing left to do. */
#define LAUNCH_TERM_NS (5 * NS_PER_S)

/* A run of evb sim. */
struct virtual_run {
        uint64_t seed, digest;
        uint32_t run;          /* its number */
        const char *violation; /* what did not hold, but must in every history; NULL: nothing */
        bool plan_fits;        /* see struct sim_result */
        uint64_t port_most_bytes;
};

struct launch {
        const struct launch_options *options; /* of these, the report uses `json` and `quiet` */
        const struct scenario *scenario;
        /* One per node of the scenario, in its order. A report needs `node`, `stats`, `status`, `usage` and
         * `report`. */
        struct child *children;
        size_t n_children;
        uint64_t start_ns, end_ns;
        struct histogram cpu_shares[ROLE_SFI + 1]; /* of each role's processes while triggers came */
        bool has_switch;                           /* an emulated switch whose ports have a rate */
        struct testbed_counts at_switch;
        unsigned signals;                      /* that asked the run to stop */
        const struct virtual_run *virtual_run; /* NULL: a real run */
        bool killed;                           /* nodes that did not stop were killed */
};

/* Returns the DFM's child; every scenario has one. */
struct child *launch_dfm(const struct launch *l);
/* Sums a counter over the nodes of a role; role 0: of all. */
uint64_t launch_sum(const struct launch *l, enum node_role role, size_t counter);
/* Sums each counter over the nodes of the roles that have it in an object (struct counter, `roles`). */
void launch_sums(const struct launch *l, uint64_t ret[static COUNTERS]);
/* Returns how long nodes may take to end once they are stopped. */
uint64_t launch_drain_ns(const struct scenario *s);
