/* The ends of flows as processes, all with one shared counters: those of all namespaces here, or those of one
 * machine. */
#pragma once

#include <sys/types.h>

#include "evb/launch/cpu_meter.h"
#include "evb/traffic/flow_endpoint.h"

struct flow_group {
        struct flow_counters *counters;
        struct {
                struct flow_part part;
                pid_t pid; /* 0: has ended, and been waited for */
                double cpu_seconds;
        } ends[FLOW_ENDS_MAX];
        unsigned n, n_senders;
        struct cpu_meter *meter; /* a group for each end */
};

int flow_group_init(struct flow_group *g); /* -ENOMEM */
/* Kills what still runs. */
void flow_group_fini(struct flow_group *g);
/* Starts an end in a namespace (-1: the caller's). Negative errno. */
int flow_group_start(struct flow_group *g, const struct flow_part *part, int namespace);
/* To be called often: meters what ends take of a processor while they go. */
void flow_group_turn(struct flow_group *g, uint64_t now_ns);
const struct histogram *flow_group_shares(const struct flow_group *g, unsigned end);
bool flow_group_is_ready(const struct flow_group *g);
/* All senders have stopped. */
bool flow_group_is_quiet(const struct flow_group *g);
void flow_group_set(struct flow_group *g, enum flow_state state);
/* Waits, without waiting, for processes that have ended: true once all have. */
bool flow_group_reap(struct flow_group *g);
/* Why an end could not go on, or was killed as far as is known by flow_group_reap(); 0: none failed. */
int flow_group_error(const struct flow_group *g);
