/* Applies a wanted tree to a device, or restores an earlier tree: sends only the difference, reads back and
 * verifies. Rolls back if the kernel refuses a change. One thread. */
#pragma once

#include "base/error.h"
#include "shape/kernel/outcome.h"
#include "shape/kernel/socket.h"

/* `have` is the tree as last read. On failure the device is rolled back; the error says so if even that
 * fails. Unwanted classes may drain for patience_ns; then they stay, or, with `insist`, are deleted. */
int tc_apply(struct tc_socket *s, int ifindex, const struct tc_tree *have, const struct tc_tree *want,
             uint64_t patience_ns, bool insist, struct tc_outcome *outcome, struct error *error);
/* Replaces the device's root by a tree that was dumped earlier (deep, if it had classes). */
int tc_restore(struct tc_socket *s, int ifindex, const struct tc_tree *saved, struct tc_outcome *outcome,
               struct error *error);
