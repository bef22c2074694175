/* The control connections of one end of a stream. Either end may listen. A listening end accepts any
 * connection until it streams with one peer; it disconnects and counts peers that send nothing, or nothing
 * valid. The other end dials, and retries until the listener answers. The end that dials sends the first
 * message. Used only by the thread of the loop. */
#pragma once

#include <stdint.h>

#include "net/address.h"
#include "net/json_connection.h"

#define STREAM_CONTROL_PEERS_MAX 16u

struct stream_control {
        struct loop *loop;
        struct loop_io listener; /* fd -1: this end dials */
        struct stream_control_peer {
                struct json_connection connection;
                struct stream_control *control;
                bool admitted, refused;
                uint64_t received_ns;      /* time of the last message */
                uint64_t deadline_ns;      /* the connection is closed at this time */
        } peers[STREAM_CONTROL_PEERS_MAX]; /* when dialling, the first entry is used */
        const struct auth_key *key;        /* key that both ends must have; NULL: none */
        uint64_t foreign_senders;          /* connections that ended without being admitted */
        /* When dialling. */
        struct net_address to;
        struct tcp_backoff backoff;
        uint64_t retry_ns, give_up_ns;
        int error; /* error of the last attempt */

        /* A message has arrived; borrowed. The connection may be admitted or refused, but not closed. */
        void (*received)(void *ctx, struct json_connection *c, const json_t *message);
        /* An admitted connection has ended, or was silent for 20 s (-ETIMEDOUT). */
        void (*ended)(void *ctx, struct json_connection *c, int error);
        /* Dialling: makes the first message of each attempt. */
        json_t *(*greet)(void *ctx);
        /* Dialling: no attempt succeeded, or the peer does not send JSON (-EBADMSG). */
        void (*failed)(void *ctx, int error);
        void *ctx;
};

/* The caller sets the callbacks first. Returns negative errno. */
int stream_control_listen(struct stream_control *k, struct loop *loop, const struct net_address *local);
/* The first attempt is made by stream_control_turn(). */
void stream_control_dial(struct stream_control *k, struct loop *loop, const struct net_address *to,
                         uint64_t wait_ns);
/* Accepts a zeroed structure. */
void stream_control_close(struct stream_control *k);
/* Marks the connection as the connection of the stream's peer. */
void stream_control_admit(struct json_connection *c);
/* Sends {"type": "refused", "reason"}; the peer then closes the connection. */
void stream_control_refuse(struct json_connection *c, const char *reason);
/* Dials, and closes connections that have ended or timed out; returns when to call this function again. */
uint64_t stream_control_turn(struct stream_control *k, uint64_t now_ns);
/* Explains how an admitted connection ended: "it closed the connection". */
const char *stream_control_explain(int error);
/* Returns the addresses of both ends of a connection, with another port in the peer's address; negative
 * errno. */
int stream_control_addresses(const struct json_connection *c, uint16_t peer_port,
                             struct net_address *ret_peer, struct net_address *ret_local);
