/* The phases of a measurement with flows: start, warm-up, measurement, end. They are the same for processes
 * on this machine and for standby nodes. */
#pragma once

#include "traffic/flow_shared.h"

/* The operations by which the phases control the endpoints. */
struct flow_driver {
        void (*set)(void *ctx, enum flow_state state);
        /* FLOW_WAIT: waits until all endpoints are ready; FLOW_STOP_SENDING: until all senders are quiet;
         * FLOW_END: until all endpoints have ended and their counters are complete. Returns -ETIMEDOUT, or
         * the error of an endpoint. */
        int (*wait)(void *ctx, enum flow_state state, uint64_t deadline_ns);
        /* Lets the flows run for this time. */
        void (*pass)(void *ctx, uint64_t duration_ns);
};

int flow_phases_run(const struct flow_driver *driver, void *ctx, enum flow_kind kind, double seconds);
/* Sleeps for the whole time even if signals arrive. */
void flow_sleep_ns(uint64_t ns);
/* Makes empty results of a measurement that lasts `seconds`. */
void flow_results_init(struct flow_result *results, unsigned n, enum flow_kind kind, double seconds);
