/* Translates a scenario into a request for a plan: the shaping of one ROS's device. Pure. */
#pragma once

#include "conf/scenario.h"
#include "shape/model/plan.h"
#include "shape/kernel/device.h"

/* Sets everything except the backend. `device`: NULL if it is not on this machine. `destinations` must have
 * room for all SFIs; it receives the SFIs for which `wanted` is true (NULL: all). -EINVAL: the scenario
 * cannot be shaped. */
int shaping_request_of_scenario(struct tc_request *ret, const struct scenario *s,
                                const struct scenario_node *ros, const struct tc_device *device,
                                struct tc_destination *destinations, const bool *wanted, struct error *error);
enum tc_backend shaping_backend_of_scenario(const struct scenario *s);
