/* What the files of the layout share. */
#pragma once

#include "evb/tc/layout.h"

/* Destinations have the classes FIRST_MINOR + 1 and on; the qdisc below each has the same number as its major one. */
#define FIRST_MINOR UINT32_C(0x1000)

/* The bucket is eight bits of a word of the address, counted from its lowest one. */
struct layout_hash {
        unsigned word, shift;
};

uint32_t layout_hash_bucket(const struct layout_hash *h, const struct tc_address *a);
/* `old` (or NULL) stays while it is not far from the best: to change it moves every filter. */
void layout_hash_choose(struct layout_hash *ret, const struct tc_plan *p, bool v6,
                        const struct layout_hash *old);

/* Root, link, control, other, and a class with its queue for each destination. */
int layout_add_classes(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors);
