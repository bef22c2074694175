/* Shared by the files of the layout. */
#pragma once

#include "shape/model/layout.h"

/* Destinations have the classes FIRST_MINOR + 1 and up. The qdisc below each has the same number as its major
 * number. */
#define FIRST_MINOR UINT32_C(0x1000)

/* The eight bits of one address word, counted from its lowest bit, that select the bucket. */
struct layout_hash {
        unsigned word, shift;
};

uint32_t layout_hash_bucket(const struct layout_hash *h, const struct tc_address *a);
/* Keeps `old` (may be NULL) if it is close to the best: a change moves every filter. */
void layout_hash_choose(struct layout_hash *ret, const struct tc_plan *p, bool v6,
                        const struct layout_hash *old);

/* Adds root, link, control, other, and a class with its queue for each destination. */
int layout_add_classes(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors);
