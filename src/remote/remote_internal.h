/* What the files of the commander's side share. */
#pragma once

#include "evb/remote/remote.h"
#include "evb/sys/loop.h"
#include "json_connection.h"

struct remote {
        const struct scenario *scenario;
        const char *const *settings; /* it was loaded with */
        size_t n_settings;
        struct loop *loop;
        struct json_connection connection;
        bool introduced;      /* the command server has said who stands by */
        bool refused;         /* it has said why it does not */
        bool lost;            /* the connection has ended */
        bool *stands_by;      /* of each node of the scenario */
        bool *given_up;       /* waited for in vain, and still absent */
        bool server_given_up; /* the wait for the DFM was in vain */
        uint64_t alive_ns;    /* when to send the next sign of life to the DFM */
        json_int_t job;       /* the last one */
        /* Who hears answers of the present job; node: an index into the scenario's nodes. `left`: the node's
         * connection has ended. */
        void (*answered)(void *ctx, size_t node, const json_t *answer);
        void (*left)(void *ctx, size_t node);
        void *ctx;
};

/* Waits for words until `done` says so; -ETIMEDOUT; -EPIPE: the command server is gone; -EINTR: a signal
 * waits. */
int remote_wait(struct remote *r, bool (*done)(void *ctx), void *ctx, uint64_t deadline_ns);
/* An order to some nodes, by their indices in the scenario; consumes it. */
void remote_order(struct remote *r, const size_t *nodes, size_t n, json_t *order);
/* Waits a while for all of them to stand by; -ENOTCONN: some do not, logged by name. */
int remote_wait_for(struct remote *r, const size_t *nodes, size_t n);
/* The index of a name; SIZE_MAX: there is none. */
size_t remote_node(const struct remote *r, const char *name);
