/* The DFM's nodes, for people: who comes and goes, who is refused and why, and who is missing. */
#pragma once

#include <stddef.h>

#include "evb/core/dfm.h"
#include "node_internal.h"

/* Logs what has happened since the last call. */
void roster_log(struct node *n, struct dfm *core);
/* "waiting for ros2, sfi1", or "all nodes are there". */
void roster_describe_missing(const struct node *n, const struct dfm *core, char *text, size_t size_bytes);
/* What the nodes themselves say that keeps them: "ros1: no front-end for 2.0 s"; "" where there is nothing. */
void roster_describe_reasons(const struct scenario *s, const struct dfm *core, char *text, size_t size_bytes);
