/* Logs and describes the DFM's nodes: who joins and leaves, who is refused and why, who is missing. */
#pragma once

#include <stddef.h>

#include "evb/core/dfm.h"
#include "node_internal.h"

/* Logs what happened since the last call. */
void roster_log(struct node *n, struct dfm *core);
/* "waiting for ros2, sfi1", or "all nodes are present". */
void roster_describe_missing(const struct node *n, const struct dfm *core, char *text, size_t size_bytes);
/* Why nodes make no progress, by their own account: "ros1: no front-end for 2.0 s"; "" if none says so. */
void roster_describe_reasons(const struct scenario *s, const struct dfm *core, char *text, size_t size_bytes);
