/* Memory that the endpoint processes of one group share with their parent: the parent sets the state, the
 * processes report progress, errors and counters. */
#pragma once

#include <stdatomic.h>

#include "traffic/flow_endpoint.h"

/* FLOW_WARM: senders send, but nothing is counted yet (TCP only). */
enum flow_state { FLOW_WAIT, FLOW_WARM, FLOW_GO, FLOW_STOP_SENDING, FLOW_END };

struct flow_shared {
        _Atomic unsigned ready; /* endpoints that listen or are connected */
        _Atomic unsigned quiet; /* senders that have stopped */
        _Atomic unsigned state;
        _Atomic unsigned failed; /* errno of an endpoint that failed; 0: none */
        /* Each process writes its own element; the parent reads it after the process has exited. */
        struct flow_counters counters[FLOW_ENDPOINTS_MAX];
};

enum flow_state flow_state(const struct flow_shared *shared);
/* Reports errno to the parent and exits the endpoint process. */
_Noreturn void flow_fail(struct flow_shared *shared);
/* Reports that this endpoint is ready, then waits until the state leaves FLOW_WAIT. */
void flow_wait_for_start(struct flow_shared *shared);
