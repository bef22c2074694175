/* The two endpoints of a FLOW_SEGMENTS flow. */
#pragma once

#include "traffic/flow_shared.h"

void flow_segments_send(const struct flow_endpoint *e, struct flow_shared *shared,
                        struct flow_counters *counters);
void flow_segments_receive(const struct flow_endpoint *e, struct flow_shared *shared,
                           struct flow_counters *counters);
