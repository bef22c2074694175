/* When the DFM last received messages from its nodes. Silence of all nodes means that the DFM is cut off, not
 * that all of them died. */
#pragma once

#include "dfm_internal.h"

/* No node has sent anything for three keep-alive intervals. */
bool dfm_receives_nothing(const struct dfm *d, uint64_t now_ns);
/* Records a message of the node. If the DFM was cut off until now, extends all time-outs by that time. */
void dfm_record_contact(struct dfm *d, uint64_t now_ns, struct dfm_node *n);
