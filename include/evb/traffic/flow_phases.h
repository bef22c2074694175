/* How streams go in time, the same for whoever plays them. */
#pragma once

#include "evb/traffic/flow_endpoint.h"

struct flow_players {
        void (*set)(void *ctx, enum flow_state state);
        /* FLOW_WAIT: until all ends are ready; FLOW_STOP_SENDING: until senders are quiet; FLOW_END: until
         * all have ended and told what they counted. -ETIMEDOUT, or why an end failed. */
        int (*wait)(void *ctx, enum flow_state state, uint64_t deadline_ns);
        /* Lets streams go for so long. */
        void (*pass)(void *ctx, uint64_t duration_ns);
};

int flow_play(const struct flow_players *players, void *ctx, enum flow_kind kind, double seconds);
/* Empty results of so long a measurement. */
void flow_init_results(struct flow_result *results, unsigned n, enum flow_kind kind, double seconds);
