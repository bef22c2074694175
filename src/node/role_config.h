/* Makes the configurations of the cores from a scenario. The daemons add the values that only a running
 * process has (sockets, keys, random numbers, files), and evb sim adds those of its model. Pure. */
#pragma once

#include "conf/scenario.h"
#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"

/* What events require of each ROS; the configurations of DFM and SFI borrow it. */
void role_ros_rules(const struct scenario *s, struct ros_rule rules[static EVB_ROS_MAX]);
/* How long an event waits for the frame of this ROS. */
uint64_t role_ros_wait_ns(const struct scenario *s, const struct scenario_node *n);
/* Fills all but the numbers, keys and files of the process. */
struct dfm_config role_dfm_config(const struct scenario *s, const struct ros_rule *rules);
/* Fills all but the member and the source of fragments. */
struct ros_config role_ros_config(const struct scenario *s, const struct scenario_node *self);
/* Fills all but the member and `room_bytes`. */
struct sfi_config role_sfi_config(const struct scenario *s, const struct scenario_node *self,
                                  const struct ros_rule *rules);
