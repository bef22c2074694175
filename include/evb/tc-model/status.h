/* What the kernel says of our tree, a row for each destination; nothing here is told from memory but what was
 * asked for. */
#pragma once

#include "evb/tc-model/layout.h"

struct tc_row {
        bool present;
        struct tc_address address; /* of destinations */
        uint32_t classid;
        uint64_t asked_bps;                          /* 0: not known */
        uint64_t rate_bps, burst_bytes, limit_bytes; /* as installed */
        struct tc_counters counters;                 /* of class and queue together */
};

struct tc_status {
        enum tc_backend backend; /* TC_BACKEND_NONE: nothing of ours is installed */
        enum tc_owner owner;
        struct tc_row *rows;
        size_t n;
        struct tc_row control, other;
        uint64_t drops; /* at the source, in all: an alarm */
};

/* Pure. `asked` may be NULL. 0 or -ENOMEM. */
int tc_status_make(struct tc_status *ret, const struct tc_tree *have, const struct tc_destination *asked,
                   size_t n_asked);
void tc_status_fini(struct tc_status *s);

/* The changes from nothing to a tree as tc command lines, in the order of their need: calls `line` for each.
 */
int tc_commands(const struct tc_tree *want, const char *device, void (*line)(const char *text, void *ctx),
                void *ctx);
