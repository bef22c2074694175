/* A TCP connection that carries JSON objects, one per line, for the control of a stream (docs/streams.md). No
 * call blocks. One thread: that of the loop. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "net/tcp.h"
#include "protocol/auth.h"
#include "sys/loop.h"

/* json_auth.c: decides what each line of the connection is, with the key of both ends. */

struct json_auth {
        const struct auth_key *key; /* NULL: none */
        bool dials;                 /* this end made the connection */
        bool ready;                 /* the peer's nonce has come */
        bool received;              /* a message has come that counts */
        uint8_t nonce[AUTH_NONCE_BYTES];
        struct auth_line line;
        json_t *held; /* messages to send once it is ready */
};

enum json_auth_verdict {
        JSON_AUTH_MESSAGE, /* the text is a message of the peer */
        JSON_AUTH_READY,   /* the peer has introduced itself: send what was held */
        JSON_AUTH_REFUSAL, /* the peer refuses this end, which is not authenticated */
        JSON_AUTH_NO_KEY,  /* the peer has no key */
        JSON_AUTH_WRONG,   /* the peer has another key */
        JSON_AUTH_UNASKED, /* the peer has a key, and this end has none */
};

/* Sets the nonce; the caller sends json_auth_greeting() before anything else if there is a key. */
int json_auth_begin(struct json_auth *a, const struct auth_key *key, bool dials);
void json_auth_end(struct json_auth *a);
json_t *json_auth_greeting(const struct json_auth *a);
/* Checks a line. On JSON_AUTH_MESSAGE and JSON_AUTH_REFUSAL *ret_text is its message. */
enum json_auth_verdict json_auth_check(struct json_auth *a, const char *line, size_t n,
                                       const char **ret_text);
/* Keeps a message until the peer has introduced itself; consumes it. -ENOBUFS: too many. */
int json_auth_hold(struct json_auth *a, json_t *message);
/* -ENOKEY or -EKEYREJECTED, if the verdict ends the connection; otherwise 0. */
int json_auth_error(enum json_auth_verdict v);
/* Explains such an error for both ends; NULL: another error. */
const char *json_auth_explain(int error);

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
