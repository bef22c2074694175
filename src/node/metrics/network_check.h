/* Judges the network of a scenario by the answers of its nodes, for `evb check --network`. Pure. */
#pragma once

#include "node/metrics/statuses.h"

/* The answers were made between these times of this machine's clock, in seconds since 1970. */
struct network_check {
        const struct statuses *statuses;
        double from_seconds, to_seconds;
};

/* Returns an array of {"node", "fault", "command"}: each fault with its cause, and the command that mends it
 * on the machine of the node. */
json_t *network_check_faults(const struct network_check *c);
