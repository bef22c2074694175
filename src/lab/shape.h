/* Shaping for measurements that run no node. */
#pragma once

#include "evb/lab/flows.h"
#include "evb/tc/shaper.h"

/* In a namespace of the lab, on its eth0, by a process that goes there and ends; it goes with the namespace. Errors are logged. */
int lab_shape(int namespace, const struct flow_shape *shape);
/* Packets that this shaping has dropped, at the source. Negative errno; errors are logged. */
int lab_shape_drops(int namespace, uint64_t *ret_packets);
/* On a device of the calling thread's namespace; tc_shaper_remove() takes it back. Negative errno, told in `why`. */
int lab_shape_device(struct tc_shaper **ret, const char *device, const struct flow_shape *shape, char *why, size_t size);
/* Packets that it has dropped. Negative errno. */
int lab_shaper_drops(struct tc_shaper *shaper, uint64_t *ret_packets);
