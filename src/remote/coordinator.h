/* The coordinator: `evb lab` commanding standby nodes through one connection to the DFM's command server. One
 * thread. Every wait is bounded. */
#pragma once

#include <jansson.h>

#include "conf/scenario.h"
#include "traffic/flows.h"

struct coordinator;

/* Connects to the scenario's DFM and learns which nodes are on standby. Returns negative errno and logs it.
 * Borrows the scenario and the settings ("SECTION.KEY=VALUE") with which it was loaded. */
int coordinator_new(struct coordinator **ret, const struct scenario *s, const char *const *settings,
                    size_t n);
struct coordinator *coordinator_free(struct coordinator *c);

/* Loads the scenario's file with the coordinator's settings and then these, as the nodes will. Returns NULL
 * and logs the error. */
struct scenario *coordinator_load(const struct coordinator *c, const char *const *settings, size_t n);

/* Runs event building on all nodes of the scenario with these settings. Returns a report as `evb run --json`
 * makes it; NULL if there is none, with the reason logged. */
json_t *coordinator_run(struct coordinator *c, const char *const *settings, size_t n);

/* Runs flows as flows_run() does, but between standby nodes, which remove their shaping afterwards. */
int coordinator_run_flows(struct coordinator *c, const struct flow *flows, unsigned n,
                          const struct flow_shape *shape, double seconds, struct flow_result *results);
