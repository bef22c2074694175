/* Applies a wanted tree to a device, or restores an earlier tree. Sends only the difference, then reads back
 * the tree and verifies it. Rolls back if the kernel refuses a change. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shape/kernel/socket.h"
#include "shape/model/layout.h"
#include "shape/model/netlink_message.h"

#define TC_OUTCOME_TEXT_MAX 320

struct tc_outcome {
        unsigned operations; /* changes that the kernel accepted */
        enum tc_owner owner; /* owner of the root qdisc that was found */
        char warnings[TC_WARNINGS_MAX][TC_OUTCOME_TEXT_MAX];
        size_t n_warnings;
        unsigned undraining;      /* unwanted classes that still hold packets; they stay, without filters */
        uint64_t dropped_bytes;   /* queued bytes dropped by deleting their classes */
        uint64_t dropped_packets; /* packets dropped with the queues whose burst became shorter */
};

/* Adds a warning, or ignores it if there are TC_WARNINGS_MAX already. */
void tc_outcome_warn(struct tc_outcome *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* `have` is the tree as last read. After a failure, the device is rolled back; the error says so if even the
 * rollback fails. Unwanted classes have patience_ns to drain. Then they stay or, with `insist`, are
 * deleted. */
int tc_apply(struct tc_socket *s, int ifindex, const struct tc_tree *have, const struct tc_tree *want,
             uint64_t patience_ns, bool insist, struct tc_outcome *outcome, struct error *error);
/* Replaces the device's root with a tree that was dumped earlier (with deep = true, if it had classes). */
int tc_restore(struct tc_socket *s, int ifindex, const struct tc_tree *saved, struct tc_outcome *outcome,
               struct error *error);
/* Detaches the BPF program of EDT, if it is attached: it stays when another program deletes the root. */
int tc_detach(struct tc_socket *s, int ifindex, const struct tc_tree *have, struct tc_outcome *outcome,
              struct error *error);

/* Sends and counts changes; adds the kernel's warnings to the outcome. The error is the first refusal. */
int apply_send(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
               struct tc_outcome *o, struct error *e);
/* Waits until the classes that are not in `want` (NULL: all classes) hold no packets; *ret_bytes: the number
 * of bytes that they still hold after patience_ns. */
int apply_drain(struct tc_socket *s, int ifindex, const struct tc_tree *want, uint64_t patience_ns,
                uint64_t *ret_bytes);
