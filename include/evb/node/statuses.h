/* The states of all nodes of a scenario, as each one serves its own at /status (see docs/monitoring.md). Any
 * thread, one at a time. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/base/error.h"
#include "evb/conf/scenario.h"

#define NODE_STATUS_PROBLEM_MAX 400

struct node_status {
        const struct scenario_node *node;
        char place[SCENARIO_TEXT_MAX]; /* where it serves its state: "HOST:PORT" or "unix:PATH" */
        json_t *status;                /* its last answer; NULL: it did not answer, or is not this node */
        char problem[NODE_STATUS_PROBLEM_MAX]; /* no answer, or a stalled run; "": none */
};

struct statuses {
        const struct scenario *scenario; /* borrowed */
        size_t n;
        struct node_status *nodes; /* in the order of the scenario */
};

/* Finds the place of each node. -EINVAL: the scenario does not say where the nodes serve their states, which
 * the message explains; -ENOMEM. */
int statuses_init(struct statuses *s, const struct scenario *scenario, struct error *e);
void statuses_fini(struct statuses *s);
/* Asks all nodes at once, and waits until each has answered or failed, at most `timeout_ns` for every 256
 * nodes. -ENOMEM. */
int statuses_ask(struct statuses *s, uint64_t timeout_ns);
/* What a node answered, with "reachable" and "problem"; of a node that did not answer, its name and role. */
json_t *node_status_to_json(const struct node_status *n);
