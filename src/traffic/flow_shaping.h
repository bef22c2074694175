/* Shaping of flows, for measurements that run no ROS to install it. */
#pragma once

#include <net/if.h>

#include "shape/kernel/shaper.h"
#include "traffic/flows.h"

/* Shapes eth0 in a namespace of the testbed, from a short-lived process that enters it. The shaping
 * disappears with the namespace. Logs errors. */
int flow_shaping_install(int namespace, const struct flow_shape *shape);
/* Reads the packets that this shaping has dropped. Returns negative errno; logs errors. */
int flow_shaping_installed_drops(int namespace, uint64_t *ret_packets);
/* Shapes a device of the calling thread's namespace; tc_shaper_remove() undoes it. */
int flow_shaping_apply(struct tc_shaper **ret, const char *device, const struct flow_shape *shape,
                       struct error *error);
/* Reads the packets that it has dropped. Returns negative errno. */
int flow_shaping_drops(struct tc_shaper *shaper, uint64_t *ret_packets);
/* Finds a node's device: the configured one, or the one with the node's address. Returns negative errno. */
int flow_shaping_device(const struct scenario_node *n, char device[static IF_NAMESIZE]);
/* Removes shaping that a killed evb left on a device. Does nothing without such shaping or without the
 * privilege to read it. */
void flow_shaping_clear(const char *device);
