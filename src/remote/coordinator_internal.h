/* The coordinator's connection, for the files that send commands. */
#pragma once

#include "net/json_connection.h"
#include "remote/coordinator.h"
#include "sys/loop.h"
#include "command_key.h"

struct coordinator {
        const struct scenario *scenario;
        const char *const *settings; /* with which the scenario was loaded */
        size_t n_settings;
        struct command_key key;
        struct loop *loop;
        struct json_connection connection;
        bool introduced;      /* the command server has listed the standby nodes */
        bool refused;         /* it has refused the coordinator */
        bool lost;            /* the connection has ended */
        bool *on_standby;     /* for each node of the scenario */
        bool *given_up;       /* a wait for this node timed out, and it is still absent */
        bool server_given_up; /* a wait for the DFM timed out */
        uint64_t alive_ns;    /* when the next keep-alive is due */
        json_int_t job;       /* the latest one */
        /* Callbacks of the current job; `node` is an index into the scenario's nodes. `left`: the node's
         * connection has ended. */
        void (*answered)(void *ctx, size_t node, const json_t *answer);
        void (*left)(void *ctx, size_t node);
        void *ctx;
};

/* Handles messages until done() returns true. Returns -ETIMEDOUT, -EPIPE if the connection ended, or -EINTR
 * if a signal is pending. */
int coordinator_wait(struct coordinator *c, bool (*done)(void *ctx), void *ctx, uint64_t deadline_ns);
/* Sends a command to nodes, given by their indices in the scenario. Consumes the command. */
void coordinator_command(struct coordinator *c, const size_t *nodes, size_t n, json_t *command);
/* Waits until all of them are on standby. Returns -ENOTCONN and logs the names of missing nodes. */
int coordinator_wait_for_nodes(struct coordinator *c, const size_t *nodes, size_t n);
/* Returns the index of a node; SIZE_MAX if it does not exist. */
size_t coordinator_find_node(const struct coordinator *c, const char *name);
