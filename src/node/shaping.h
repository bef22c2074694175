/* A ROS's shaping of its own traffic: installed at its start, following SFIs as they come and go, given back at its end.
 * One thread. */
#pragma once

#include "node_internal.h"

struct shaping;

/* *ret is NULL where nothing is to be shaped, or it cannot be and qos.required is no. -EPERM, -EOPNOTSUPP and others are
 * logged. */
int shaping_new(struct shaping **ret, struct node *n);
/* Takes off what is installed, and puts back what was there. */
struct shaping *shaping_free(struct shaping *s);

/* Follows the SFIs that are there (bit i % 64 of word i / 64). Cheap where nothing has changed. */
void shaping_turn(struct shaping *s, uint64_t now_ns, const uint64_t *sfi_live);
uint64_t shaping_deadline_ns(const struct shaping *s);
/* Reads the kernel's counters into the node's page. */
void shaping_account(struct shaping *s);
/* The largest super-packet that may be handed to the kernel; 0: any. */
size_t shaping_super_packet_bytes(const struct shaping *s);
