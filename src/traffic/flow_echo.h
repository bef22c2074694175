/* The two endpoints of a FLOW_ECHO flow. */
#pragma once

#include "traffic/flow_shared.h"

void flow_echo_request(const struct flow_endpoint *e, struct flow_shared *shared,
                       struct flow_counters *counters);
void flow_echo_reply(const struct flow_endpoint *e, struct flow_shared *shared);
