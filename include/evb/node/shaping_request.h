/* Translates a scenario into the request that tc plans for: the shaping of one ROS's device. Pure. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/tc-model/plan.h"
#include "evb/tc/device.h"

/* All but the backend is set. `device`: facts of it, or NULL where it is not on this machine. `destinations`
 * has room for all SFIs; those for which `wanted` (NULL: all) is true are taken. 0; -EINVAL: `why` says what
 * is wrong. */
int shaping_request_of_scenario(struct tc_request *ret, const struct scenario *s,
                                const struct scenario_node *ros, const struct tc_device *device,
                                struct tc_destination *destinations, const bool *wanted,
                                char why[static TC_REASON_MAX]);
enum tc_backend shaping_backend_of_scenario(const struct scenario *s);
struct tc_tuning shaping_tuning_of_scenario(const struct scenario *s);
