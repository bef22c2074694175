/* What the two files of the layout share. */
#pragma once

#include "evb/tc/layout.h"

/* Destinations have the classes FIRST_MINOR + 1 and on; the qdisc below each has the same number as its major one. */
#define FIRST_MINOR UINT32_C(0x1000)

/* Root, link, control, other, and a class with its queue for each destination. */
int layout_add_classes(struct tc_tree *t, const struct tc_plan *p, const uint32_t *minors);
