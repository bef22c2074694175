/* When the DFM heard of its nodes. Silence of all nodes means that the DFM is cut off, and not that all of
 * them died. */
#pragma once

#include "dfm_internal.h"

/* For some keep-alives, no node has said anything. */
bool dfm_hears_nobody(const struct dfm *d, uint64_t now_ns);
/* The node has said something. If the DFM was cut off until now, all time-outs are extended by that time. */
void dfm_hear(struct dfm *d, uint64_t now_ns, struct dfm_node *n);
