/* The state of evb's tree as reported by the kernel, with one row per destination. Only the requested rates
 * come from the state file. */
#pragma once

#include "shape/model/layout.h"

struct tc_row {
        bool present;
        struct tc_address address; /* the destination's address */
        uint32_t classid;
        uint64_t asked_bps; /* 0: unknown */
        uint32_t permille;  /* share of asked_bps that is installed after a reduction; 0: unknown */
        uint64_t rate_bps, burst_bytes, limit_bytes; /* as installed */
        struct tc_counters counters;                 /* class and queue combined */
};

struct tc_status {
        enum tc_backend backend; /* TC_BACKEND_NONE: no tree of evb's is installed */
        enum tc_owner owner;
        bool is_offloaded; /* the device shapes */
        struct tc_row *rows;
        size_t n;
        struct tc_row control, other;
        struct tc_row apart; /* sum over the destinations of packets that are not data; only counters */
        uint64_t drops;      /* drops of data and control messages at the source; must be 0 */
};

/* Pure. `asked` may be NULL. -ENOMEM. */
int tc_status_make(struct tc_status *ret, const struct tc_tree *have, const struct tc_destination *asked,
                   size_t n_asked);
void tc_status_fini(struct tc_status *s);

/* Calls `line` for each tc command line that builds the tree, in the required order. */
int tc_commands(const struct tc_tree *want, const char *device, void (*line)(const char *text, void *ctx),
                void *ctx);
