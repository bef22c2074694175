/* Connects stall.h with a node: checks its work, publishes and logs what it waits for, and reports its
 * stalls. */
#pragma once

#include <jansson.h>

#include "../node_internal.h"

void progress_init(struct node *n, uint64_t now_ns);
/* Call this several times a second. */
void progress_watch(struct node *n, uint64_t now_ns);
/* Describes what the node waits for now: "no credit from sfi2: slow disk on sfi2", or "". Only for the node's
 * own thread; others read `obstacle` of its counters. */
void progress_text(const struct node *n, uint64_t now_ns, char *text, size_t size_bytes);
/* Adds stalled_seconds, stall_reason and ended_by_stall. */
void progress_report(const struct node *n, json_t *o);
