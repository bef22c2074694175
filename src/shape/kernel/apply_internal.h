/* Steps of tc_apply() that restore.c and the shaper also use. */
#pragma once

#include "shape/kernel/apply.h"

/* Sends changes and counts them; adds the kernel's warnings to the outcome. The error is the first refusal.
 */
int apply_send(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
               struct tc_outcome *o, struct error *e);
/* Waits until the classes that `want` lacks (NULL: all) hold no packets; *ret_bytes: what they still hold
 * after patience_ns. */
int apply_drain(struct tc_socket *s, int ifindex, const struct tc_tree *want, uint64_t patience_ns,
                uint64_t *ret_bytes);
