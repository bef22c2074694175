/* Judges the network of a scenario by the answers of its nodes, for `evb check --network`. Pure. */
#pragma once

#include "node/metrics/statuses.h"

/* Returns an array of {"node", "fault", "command"}: each fault with its cause, and the command that repairs
 * it on the machine of the node. */
json_t *network_check_faults(const struct statuses *s);
