/* Checks whether this machine has the devices that a node's section names, and maps start-up errors of a node
 * to exit statuses. */
#pragma once

#include "node_internal.h"

/* Checks device and processors. -EINVAL or -ENODEV, logged. */
int machine_check(const struct scenario_node *self);
/* Maps the error of a file or directory that the scenario names. An unusable path is a mistake in the
 * scenario, not a missing privilege. */
int machine_path_error(int r);
/* Logs that the kernel does not grant a buffer of this size. Returns -EINVAL. */
int machine_no_memory(const char *key, uint64_t requested_bytes);
/* Returns the exit status of a node that could not start: 2 (the scenario does not fit this machine), 77 (a
 * privilege or kernel feature is missing), 75 (a resource such as memory ran out), 1 (anything else). */
int machine_exit_status(int r);
