/* Checks whether this machine has the devices that a node's section names, and maps start-up errors of a node
 * to exit statuses. */
#pragma once

#include "node_internal.h"

/* Checks device and processors. -EINVAL or -ENODEV, logged. */
int machine_check(const struct scenario_node *self);
/* With cpus = auto: gives this node its part of the processors that the process may use. All nodes of this
 * machine with cpus = auto divide them, in the order of the scenario: those whose addresses are here or,
 * below a launcher, all. If there are fewer processors than such nodes, the list stays empty, and the
 * scheduler places the node. `self` is a copy of the scenario's node. */
void machine_share_processors(const struct scenario *s, struct scenario_node *self);
/* Writes the part at `place` of `parts` of these processors into `ret`, and returns their number; 0: there
 * are fewer than `parts`. */
size_t machine_processors_part(const unsigned *processors, size_t n, size_t place, size_t parts,
                               unsigned ret[static SCENARIO_CPUS_MAX]);
/* Maps the error of a file or directory that the scenario names. An unusable path is a mistake in the
 * scenario, not a missing privilege. */
int machine_path_error(int r);
/* Logs that the kernel does not grant a buffer of this size. Returns -EINVAL. */
int machine_no_memory(const char *key, uint64_t requested_bytes);
/* Returns the exit status of a node that could not start: 2 (the scenario does not fit this machine), 77 (a
 * privilege or kernel feature is missing), 75 (a resource such as memory ran out), 1 (anything else). */
int machine_exit_status(int r);
