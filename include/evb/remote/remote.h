/* Machines whose nodes stand by, and the way to them: one connection to their DFM, through which they are
 * given orders. One thread. Every wait is bounded. */
#pragma once

#include <jansson.h>

#include "evb/conf/scenario.h"
#include "evb/traffic/flows.h"

struct remote;

/* Connects to the DFM of the scenario and learns who stands by. Negative errno, logged. The scenario is
 * borrowed, and so are the settings ("SECTION.KEY=VALUE") with which it was loaded. */
int remote_new(struct remote **ret, const struct scenario *s, const char *const *settings, size_t n);
struct remote *remote_free(struct remote *r);

/* The scenario's file with the remote's own settings and then these, as its nodes will have it; NULL: logged
 * why. */
struct scenario *remote_load(const struct remote *r, const char *const *settings, size_t n);

/* A whole run of event building: the scenario's file with these settings ("SECTION.KEY=VALUE"), by all nodes
 * that it then has. Its report as `evb run --json` gives it; NULL: it could not be made, logged. */
json_t *remote_run(struct remote *r, const char *const *settings, size_t n);

/* Plain flows, as flows_run() runs them, between standby nodes; they remove the shaping afterwards. */
int remote_flows_run(struct remote *r, const struct flow *flows, unsigned n, const struct flow_shape *shape,
                     double seconds, struct flow_result *results);
