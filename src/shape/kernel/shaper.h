/* The shaping of one device: its plan, its state file and the installed tree. The nodes and `evb qos` shape
 * through these functions. One thread. */
#pragma once

#include "shape/kernel/apply.h"
#include "shape/kernel/device.h"
#include "shape/kernel/state_file.h"

struct tc_shaper;

/* Opens a device for changes. -EPERM: CAP_NET_ADMIN is missing; -EBUSY: another process shapes the device. */
int tc_shaper_new(struct tc_shaper **ret, const struct tc_device *device, struct tc_outcome *outcome,
                  struct error *error);
/* Leaves the tree installed. */
struct tc_shaper *tc_shaper_free(struct tc_shaper *s);
struct tc_socket *tc_shaper_socket(struct tc_shaper *s);
/* Returns the destinations and rates of the last plan; borrowed. */
const struct tc_destination *tc_shaper_asked(const struct tc_shaper *s, size_t *ret_n);

/* Finds the layout to use: the requested one, or, for TC_BACKEND_AUTO, the first of htb+tbf, htb and cbq+tbf
 * that this kernel supports; and whether it supports fq_codel. Changes nothing. `reason` explains the choice.
 * -EOPNOTSUPP: the kernel does not support it. */
int tc_shaper_probe(struct tc_shaper *s, enum tc_backend asked, enum tc_backend *ret, enum tc_fair *ret_fair,
                    char reason[static TC_REASON_MAX], struct error *error);

/* Finds whether the device offloads HTB, if `offload` and the backend `asked` want that. The kernel and the
 * driver are asked with a request that always fails, so nothing is installed. Returns 1: use the backend HTB,
 * offloaded; 0: do not, and a warning of *o says why if it was wanted. A negative errno: required, but the
 * kernel refuses. */
int tc_shaper_probe_offload(struct tc_shaper *s, enum tc_backend asked, enum tc_offload offload,
                            struct tc_outcome *o, struct error *error);

/* Installs a plan. Replaces a foreign root with classes only if `force` is set (otherwise -EEXIST). Removal
 * restores such a root, as it restores a classless root. Destinations that are no longer in the plan have
 * patience_ns to drain. Then their classes stay without traffic (outcome->undraining) or, with `insist`, are
 * deleted. */
int tc_shaper_apply(struct tc_shaper *s, const struct tc_plan *plan, bool force, uint64_t patience_ns,
                    bool insist, struct tc_outcome *outcome, struct error *error);
/* Drains the queues, deletes evb's tree and restores the earlier settings. Does nothing if the device has no
 * tree of evb. */
int tc_shaper_remove(struct tc_shaper *s, struct tc_outcome *outcome, struct error *error);
/* Returns the tree that the last tc_shaper_apply() installed; borrowed. */
const struct tc_tree *tc_shaper_installed(const struct tc_shaper *s);
/* Reads the kernel's current tree. */
int tc_shaper_read(struct tc_shaper *s, struct tc_tree *ret);
