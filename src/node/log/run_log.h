/* Logs the stages of a run on a node: its start, the cause of its end, and its accounts; describes its
 * remaining work after a stop signal. */
#pragma once

#include "../node_internal.h"

/* The limit in the scenario that ended the DFM's run. */
enum run_limit { RUN_LIMIT_NONE, RUN_LIMIT_TRIGGERS, RUN_LIMIT_DURATION };

enum run_limit run_limit_reached(const struct node *n);
/* Call this when the node has received its first or a further stop signal. */
void run_log_signal(const struct node *n, bool first);
/* Call this when the run has changed its state on this node. */
void run_log_state(struct node *n, enum run_state was, enum run_state is);
/* Call this about once a second, after n->fault is updated: logs each new fault once, and its end. */
void run_log_fault(struct node *n);
/* Call this when the node is done. */
void run_log_end(const struct node *n);

/* Room for "stopping: serves run 7 until it ends, at most 45 s longer". */
#define STOP_TEXT_MAX 192
/* Describes the remaining work after a stop signal, for the log and the service manager. */
const char *stop_text(const struct node *n, uint64_t now_ns, char text[static STOP_TEXT_MAX]);
