/* Computes the changes that turn one tree into another, in a safe order: first classes, from the top down,
 * then their qdiscs, and then the filters, so that filters direct traffic only to complete classes. Unwanted
 * objects are deleted in the reverse order. Pure. */
#pragma once

#include "shape/model/netlink_message.h"

struct tc_diff {
        struct tc_change *changes; /* objects are borrowed from the two trees */
        size_t n;
        /* Of the changes before this index, only TC_RENEW drops packets. Later changes delete classes whose
         * filters are already gone, so drain the classes first. */
        size_t n_before_drain;
        /* Later changes delete u32 tables. The kernel returns -EBUSY until it has released the filters that
         * led to a table. */
        size_t n_before_tables;
};

/* Both trees must be sorted and describe the same device. If the root changes, all objects below it change
 * too. -ENOMEM. */
int tc_diff_make(struct tc_diff *ret, const struct tc_tree *have, const struct tc_tree *want);
void tc_diff_fini(struct tc_diff *d);
