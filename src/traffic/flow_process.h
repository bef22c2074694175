/* The body of an endpoint process. */
#pragma once

#include "traffic/flow_shared.h"

/* Runs the endpoint until the shared state is FLOW_END. If it fails, it sets shared->failed and exits the
 * process. */
void flow_process_run(const struct flow_endpoint *e, struct flow_shared *shared,
                      struct flow_counters *counters);
