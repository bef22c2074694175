/* A group of endpoint processes with one shared memory: all endpoints of a local measurement, or those of one
 * standby node. One thread. */
#pragma once

#include <sys/types.h>

#include "run/cpu_meter.h"
#include "sys/machine_watch.h"
#include "traffic/flow_shared.h"

struct flow_group {
        struct flow_shared *shared;
        struct {
                struct flow_endpoint endpoint;
                pid_t pid; /* 0: reaped */
                double cpu_seconds;
        } endpoints[FLOW_ENDPOINTS_MAX];
        unsigned n, n_senders;
        uint64_t go_ns, stop_ns; /* when flow_group_set() began and ended the measurement */
        struct cpu_meter *meter; /* one group for each endpoint */
        /* Set by the caller after flow_group_init(): */
        bool raised;                 /* endpoints have precedence over ordinary processes, if permitted */
        struct machine_watch *watch; /* watches during the measurement; NULL: none */
};

int flow_group_init(struct flow_group *g); /* -ENOMEM */
/* Kills the processes that still run. */
void flow_group_fini(struct flow_group *g);
/* Starts an endpoint in a namespace (-1: the caller's). Returns negative errno. */
int flow_group_start(struct flow_group *g, const struct flow_endpoint *endpoint, int namespace);
/* Call often: samples the processor time of the endpoints during the measurement. */
void flow_group_turn(struct flow_group *g, uint64_t now_ns);
const struct histogram *flow_group_shares(const struct flow_group *g, unsigned endpoint);
bool flow_group_is_ready(const struct flow_group *g);
/* Returns true if all senders have stopped. */
bool flow_group_is_quiet(const struct flow_group *g);
void flow_group_set(struct flow_group *g, enum flow_state state);
/* Reaps exited processes without blocking. Returns true once all have exited. */
bool flow_group_reap(struct flow_group *g);
/* Returns the error of an endpoint that failed, -EPIPE for one that flow_group_reap() found killed, or 0. */
int flow_group_error(const struct flow_group *g);
