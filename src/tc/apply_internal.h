/* What apply.c and restore.c share. */
#pragma once

#include "evb/tc/apply.h"

/* Sends changes, counts them, and puts the kernel's words into the outcome; the first refusal is returned. */
int apply_send(struct tc_socket *s, int ifindex, const struct tc_change *changes, size_t n,
               struct tc_outcome *o);
int apply_drain(struct tc_socket *s, int ifindex, const struct tc_tree *want, uint64_t patience_ns,
                uint64_t *ret_bytes);
