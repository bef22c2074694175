/* Shaping for measurements that run no node. */
#pragma once

#include <net/if.h>

#include "evb/tc/shaper.h"
#include "evb/traffic/flows.h"

/* In a namespace of the lab, on its eth0, by a process that goes there and ends; it goes with the namespace.
 * Errors are logged. */
int lab_shape(int namespace, const struct flow_shape *shape);
/* Packets that this shaping has dropped, at the source. Negative errno; errors are logged. */
int lab_shape_drops(int namespace, uint64_t *ret_packets);
/* Shapes a device of the calling thread's namespace until tc_shaper_remove(). */
int lab_shape_device(struct tc_shaper **ret, const char *device, const struct flow_shape *shape,
                     struct error *error);
/* Packets that it has dropped. Negative errno. */
int lab_shaper_drops(struct tc_shaper *shaper, uint64_t *ret_packets);
/* The device of a node: the one that it names, or that has its address. Negative errno. */
int lab_device_of(const struct scenario_node *n, char device[static IF_NAMESIZE]);
/* Takes back what somebody of us who was killed has left on it. Nothing of ours there, or not allowed to
 * look: nothing is done. */
void lab_unshape_device(const char *device);
