/* A ROS's shaping of its own traffic: installed at its start, following SFIs as they come and go, watched
 * against others, given back at its end. After the start a thread of its own speaks to the kernel, so that
 * the ROS's loop never waits for netlink; the functions here belong to the loop's thread. */
#pragma once

#include "node_internal.h"

struct shaping;

/* Installs before it returns. *ret is NULL where nothing is to be shaped, or it cannot be and qos.required is
 * no. -EPERM, -EOPNOTSUPP and others are logged. */
int shaping_new(struct shaping **ret, struct node *n);
/* Takes off what is installed, and puts back what was there. */
struct shaping *shaping_free(struct shaping *s);

/* Hands over which SFIs are there (bit i % 64 of word i / 64), and does not wait. Cheap where nothing has
 * changed. */
void shaping_turn(struct shaping *s, const uint64_t *sfi_live);
/* Waits until the kernel's counters are in the node's page, for a short while at most: for the report at the
 * end. */
void shaping_settle(struct shaping *s);
/* The largest super-packet that may be handed to the kernel; 0: any. */
size_t shaping_super_packet_bytes(const struct shaping *s);
/* It has to be shaped, and is not: others changed it, and it could not be repaired. */
bool shaping_fell_short(const struct shaping *s);
