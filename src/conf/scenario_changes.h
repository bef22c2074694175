/* The differences between the scenario with which a node runs and the scenario in its file, and which of them
 * the node may apply at run time, according to the table of keys. */
#pragma once

#include "conf/keys.h"

enum scenario_difference_kind {
        DIFFERENCE_APPLIES, /* a node of this role may apply the difference */
        DIFFERENCE_OTHERS,  /* only nodes of other roles use or apply the key */
        DIFFERENCE_FIXED,   /* the difference needs a restart of the node */
        DIFFERENCE_COMMON,  /* the difference needs a restart of all nodes, which must have the same value */
};

struct scenario_difference {
        enum scenario_difference_kind kind;
        const struct scenario_key *key;                      /* NULL: sections of nodes, or metadata */
        char what[64];                                       /* "trigger.rate", "[node ros1]", "[metadata]" */
        char from[SCENARIO_TEXT_MAX], to[SCENARIO_TEXT_MAX]; /* values; "" without a key */
};

typedef void (*scenario_difference_fn)(void *ctx, const struct scenario_difference *d);

/* Calls `each` for each key that differs, in the order of the table, and then for sections of nodes and
 * metadata. Paths of files are ignored. `role` and `name` identify the node that compares. -ENOMEM. */
int scenario_compare(const struct scenario *running, const struct scenario *file, enum node_role role,
                     const char *name, scenario_difference_fn each, void *ctx);
