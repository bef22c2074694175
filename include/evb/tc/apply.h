/* Brings a device to a wanted tree, or back to an earlier one: reads, compares, sends only the difference,
 * verifies by reading again. What is refused half-way is undone. One thread. */
#pragma once

#include "evb/tc/outcome.h"
#include "evb/tc/socket.h"

/* `have` is what was read before. -errno: *outcome says what was refused, and the device is as it was (or
 * says that even undoing failed). Classes that are no longer wanted are given patience_ns to drain; then they
 * are left as they are, or, with `insist`, deleted. */
int tc_apply(struct tc_socket *s, int ifindex, const struct tc_tree *have, const struct tc_tree *want,
             uint64_t patience_ns, bool insist, struct tc_outcome *outcome);
/* Puts back what a dump (deep, where it had classes) has shown, by anyone's hand; the root that is there
 * goes. */
int tc_restore(struct tc_socket *s, int ifindex, const struct tc_tree *saved, struct tc_outcome *outcome);
/* Bytes that are queued below the classes of a device's root, or below those that `want` lacks. */
uint64_t tc_backlog(const struct tc_tree *have, const struct tc_tree *want);
