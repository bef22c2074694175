/* What a scenario asks of one ROS's device. Pure. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/tc/device.h"
#include "evb/tc/plan.h"

/* Of Ethernet, beyond the header that the kernel counts: preamble 8, checksum 4, gap 12 (IEEE 802.3). */
#define TC_ETHERNET_OVERHEAD_BYTES 24

/* All but the backend is set. `device`: facts of it, or NULL where it is not on this machine. `destinations` has room for
 * all SFIs; those for which `wanted` (NULL: all) is true are taken. 0; -EINVAL: `why` says what is wrong. */
int tc_request_of_scenario(struct tc_request *ret, const struct scenario *s, const struct scenario_node *ros,
                           const struct tc_device *device, struct tc_destination *destinations, const bool *wanted,
                           char why[static TC_REASON_MAX]);
struct tc_tuning tc_tuning_of_scenario(const struct scenario *s);
