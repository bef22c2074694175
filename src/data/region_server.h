/* The ROS's side of regions of interest. Level-2 clients connect by TCP, request fragments of undecided
 * events, and receive them. The payload is copied, so that no client can prevent the ROS from freeing a
 * fragment. The total rate to all clients stays below a tenth of network.link-rate. One thread: the
 * loop's. */
#pragma once

#include "core/ros.h"
#include "data/context.h"
#include "data/fragment_source.h"

struct region_server;

/* Listens at level2.regions; *ret is unchanged if that key is "none". `source` is NULL if frames arrive in
 * `buffer`. Errors are logged. */
int region_server_new(struct region_server **ret, const struct data_context *context, struct ros *core,
                      const struct source *source, const uint8_t *buffer);
struct region_server *region_server_free(struct region_server *s);

/* Negative errno, logged: no more clients can connect. All functions accept NULL: no regions of interest. */
int region_server_turn(struct region_server *s, uint64_t now_ns);
uint64_t region_server_deadline_ns(const struct region_server *s);
/* Publishes the counters. */
void region_server_account(struct region_server *s);
