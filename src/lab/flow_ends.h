/* The two ends of a stream, and the one who watches the wire: each in a process of its own, writing into a shared page. */
#pragma once

#include <stdatomic.h>

#include "evb/lab/flows.h"

enum flow_state { FLOW_WAIT, FLOW_WARM, FLOW_GO, FLOW_STOP_SENDING, FLOW_END };

struct flow_end {
        uint64_t messages, bytes; /* written by its process alone, read when that has ended */
        struct histogram gaps_ns;
};

struct flow_page {
        _Atomic unsigned ready, state, failed;
        struct flow_end senders[FLOWS_MAX], watchers[FLOWS_MAX], receivers[FLOWS_MAX][FLOW_RECEIVERS_MAX];
};

void flow_send(const struct flow *f, struct flow_page *p, struct flow_end *end, unsigned which);
void flow_receive(const struct flow *f, struct flow_page *p, struct flow_end *end, unsigned which);
void flow_watch(const struct flow *f, struct flow_page *p, struct flow_end *end, unsigned which);
