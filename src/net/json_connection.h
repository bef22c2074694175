/* A TCP connection that carries JSON objects, one per line, for the control of a stream (docs/streams.md). No
 * call blocks. One thread: that of the loop. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "net/json_auth.h"
#include "net/tcp.h"
#include "sys/loop.h"

/* A longer line, or more unsent bytes, ends the connection. */
#define JSON_CONNECTION_LINE_MAX_BYTES (1u << 20)
#define JSON_CONNECTION_UNSENT_MAX_BYTES (16u << 20)

struct json_connection {
        struct loop *loop;
        struct loop_io io;
        struct tcp_reader reader;
        char *out;
        size_t out_begin, out_end, out_size;
        bool connecting;
        int error; /* negative errno once it has ended */
        struct json_auth auth;
        /* Which the peer must have too, borrowed; NULL: none. A peer without it, or with another one, ends
         * the connection with -ENOKEY or -EKEYREJECTED. The end that made the connection gets a message with
         * "refused" before that. */
        const struct auth_key *key;
        /* A message has arrived; borrowed. The callback may call json_connection_close(). */
        void (*received)(void *ctx, json_t *message);
        /* The connection has ended, by the peer or by an error; called once. Only json_connection_close()
         * remains to be called. */
        void (*ended)(void *ctx, int error);
        void *ctx;
};

/* Takes over a connected socket, or one that is `connecting`. The caller sets `received`, `ended`, `ctx` and
 * perhaps `key` first. Returns negative errno with the socket closed. */
int json_connection_open(struct json_connection *c, struct loop *loop, int fd, bool connecting);
/* Drops unsent messages and calls no callback. Accepts a closed or zeroed connection. */
void json_connection_close(struct json_connection *c);
bool json_connection_is_open(const struct json_connection *c);
/* Sends a message and consumes the reference. Does nothing if the connection has ended. */
void json_connection_send(struct json_connection *c, json_t *message);

#define JSON_CONNECTION_TEXT_MAX_BYTES 1024
/* Copies a peer's reason and makes it printable. Returns `text`. */
char *json_connection_text(const json_t *value, char *text, size_t size);
