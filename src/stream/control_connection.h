/* The control connections of one end of a stream. Either end may listen, and lets anyone connect until one
 * peer moves a stream with it; those who say nothing, or nothing sensible, are turned away and counted. The
 * other end dials, and tries again until the first one listens. Whoever dials speaks first. One thread: that
 * of the loop. */
#pragma once

#include <stdint.h>

#include "net/address.h"
#include "net/json_connection.h"

#define STREAM_CONTROL_PEERS_MAX 16u

struct stream_control {
        struct loop *loop;
        struct loop_io listener; /* fd -1: it dials */
        struct stream_control_peer {
                struct json_connection connection; /* first, so that the one leads to the other */
                struct stream_control *control;
                bool admitted, refused;
                uint64_t received_ns;      /* its last message */
                uint64_t deadline_ns;      /* it is closed then */
        } peers[STREAM_CONTROL_PEERS_MAX]; /* the dialled one is the first */
        const struct auth_key *key;        /* that both ends need; NULL: none */
        uint64_t foreign_senders;          /* connections that ended without being admitted */
        /* Dialling. */
        struct net_address to;
        struct tcp_backoff backoff;
        uint64_t retry_ns, give_up_ns;
        int error; /* of the last attempt */

        /* A message, borrowed. The connection may be admitted or refused, but not closed. */
        void (*received)(void *ctx, struct json_connection *c, const json_t *message);
        /* An admitted connection has ended, or brought nothing for 20 s (-ETIMEDOUT). */
        void (*ended)(void *ctx, struct json_connection *c, int error);
        /* Dialling: makes the first message of each attempt. */
        json_t *(*greet)(void *ctx);
        /* Dialling: no attempt succeeded, or the peer speaks no JSON (-EBADMSG). */
        void (*failed)(void *ctx, int error);
        void *ctx;
};

/* The caller sets the callbacks first. Negative errno. */
int stream_control_listen(struct stream_control *k, struct loop *loop, const struct net_address *local);
/* The first attempt is made by stream_control_turn(). */
void stream_control_dial(struct stream_control *k, struct loop *loop, const struct net_address *to,
                         uint64_t wait_ns);
/* Accepts a zeroed structure. */
void stream_control_close(struct stream_control *k);
/* The stream is moved with this peer. */
void stream_control_admit(struct json_connection *c);
/* Sends {"type": "refused", "reason"}, and lets the peer close. */
void stream_control_refuse(struct json_connection *c, const char *reason);
/* Dials, and closes what has ended or taken too long; returns when to call again. */
uint64_t stream_control_turn(struct stream_control *k, uint64_t now_ns);
/* Explains how an admitted connection ended: "it closed the connection". */
const char *stream_control_explain(int error);
/* The addresses of both ends of a connection, the peer's with another port. Negative errno. */
int stream_control_addresses(const struct json_connection *c, uint16_t peer_port,
                             struct net_address *ret_peer, struct net_address *ret_local);
