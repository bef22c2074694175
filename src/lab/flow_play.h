/* How streams go in time, the same for whoever plays them. */
#pragma once

#include "flow_ends.h"

struct flow_players {
        void (*set)(void *ctx, enum flow_state state);
        /* FLOW_WAIT: until all ends are ready; FLOW_STOP_SENDING: until senders are quiet; FLOW_END: until all have ended and told
         * what they counted. -ETIMEDOUT, or why an end failed. */
        int (*wait)(void *ctx, enum flow_state state, uint64_t deadline_ns);
};

int flow_play(const struct flow_players *players, void *ctx, enum flow_kind kind, double seconds);
void flow_set_times(struct flow_result *results, unsigned n, enum flow_kind kind, double seconds);
