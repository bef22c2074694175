/* Whether this machine has what a node's section names, and what an error of its start means: its exit
 * status. */
#pragma once

#include "node_internal.h"

/* Its device and processors are here; -EINVAL or -ENODEV, logged. */
int machine_check(const struct scenario_node *self);
/* Of a file or folder that the scenario names: what cannot be used is a mistake in the scenario, not a
 * missing privilege. */
int machine_path_error(int r);
/* The kernel does not promise a buffer, whatever else runs here: -EINVAL, logged. */
int machine_no_memory(const char *key, uint64_t asked_bytes);
/* Of a node that could not start: 2 (the scenario does not fit this machine), 77 (a privilege or kernel
 * feature is missing), 75 (out of memory and the like), 1 (anything else). */
int machine_exit_status(int r);
