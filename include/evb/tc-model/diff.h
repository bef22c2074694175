/* What has to change for the kernel to have what is wanted, in an order that is safe: classes from the top
 * down, their qdiscs, then filters (the filter is what commits: traffic goes to a class that is all there);
 * then, the other way round, what is no longer wanted. Pure. */
#pragma once

#include "evb/tc-model/message.h"

struct tc_diff {
        struct tc_change *changes; /* objects are borrowed from the two trees */
        size_t n;
        /* Up to here nothing that holds packets goes; behind it, classes do whose filters are gone: drain
         * them before. */
        size_t n_before_drain;
        /* Behind these, tables of u32. The kernel lets go of what led there only after a while: -EBUSY until
         * then. */
        size_t n_before_tables;
};

/* Of two sorted trees of one device. What hangs at another root than the wanted one goes with it. 0 or
 * -ENOMEM. */
int tc_diff_make(struct tc_diff *ret, const struct tc_tree *have, const struct tc_tree *want);
void tc_diff_fini(struct tc_diff *d);
