/* Makes the configurations of the cores from a scenario. The daemons add values of the running process
 * (sockets, keys, random numbers, files), and evb sim adds values of its model. Pure. */
#pragma once

#include "conf/scenario.h"
#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"

/* Sets the requirements of events on each ROS, which the configurations of DFM and SFI borrow. */
void role_ros_rules(const struct scenario *s, struct ros_rule rules[static EVB_ROS_MAX]);
/* Fills everything except the numbers, keys and files of the process. */
struct dfm_config role_dfm_config(const struct scenario *s, const struct ros_rule *rules);
/* Fills everything except the member and the source of fragments. */
struct ros_config role_ros_config(const struct scenario *s, const struct scenario_node *self);
/* Fills everything except the member and `room_bytes`. */
struct sfi_config role_sfi_config(const struct scenario *s, const struct scenario_node *self,
                                  const struct ros_rule *rules);
