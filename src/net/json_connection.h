/* A TCP connection that carries JSON objects, one per line, for the control of a stream (docs/streams.md). No
 * call blocks. Only the loop's thread may use it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "net/tcp.h"
#include "protocol/auth.h"
#include "sys/loop.h"

/* json_auth.c: classifies each line of the connection by the key of both ends. */

struct json_auth {
        const struct auth_key *key; /* NULL: none */
        bool dials;                 /* this end made the connection */
        bool ready;                 /* the peer's nonce has arrived */
        bool received;              /* a message has arrived; with a key, one with a valid tag */
        uint8_t nonce[AUTH_NONCE_BYTES];
        struct auth_line line;
        json_t *held; /* messages to send once `ready` */
};

enum json_auth_verdict {
        JSON_AUTH_MESSAGE, /* the text is a message from the peer */
        JSON_AUTH_READY,   /* the peer has introduced itself: send the held messages */
        JSON_AUTH_REFUSAL, /* a peer that is not authenticated refuses this end */
        JSON_AUTH_NO_KEY,  /* the peer has no key */
        JSON_AUTH_WRONG,   /* the peer has another key */
        JSON_AUTH_UNASKED, /* the peer has a key, but this end has none */
};

/* Sets the nonce. If there is a key, the caller must send json_auth_greeting() before anything else. */
int json_auth_begin(struct json_auth *a, const struct auth_key *key, bool dials);
void json_auth_end(struct json_auth *a);
json_t *json_auth_greeting(const struct json_auth *a);
/* Checks a line. For JSON_AUTH_MESSAGE and JSON_AUTH_REFUSAL, *ret_text is its message. */
enum json_auth_verdict json_auth_check(struct json_auth *a, const char *line, size_t n,
                                       const char **ret_text);
/* Holds a message until the peer has introduced itself; consumes it. -ENOBUFS: too many are held. */
int json_auth_hold(struct json_auth *a, json_t *message);
/* -ENOKEY or -EKEYREJECTED if the verdict ends the connection; otherwise 0. */
int json_auth_error(enum json_auth_verdict v);
/* Explains such an error for both ends; NULL: another error. */
const char *json_auth_explain(int error);

/* Limits of a line and of unsent bytes; exceeding one ends the connection. */
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
        /* The key that the peer must also have; borrowed; NULL: none. If the peer has no key or another one,
         * the connection ends with -ENOKEY or -EKEYREJECTED; the end that made the connection first receives
         * a message with "refused". */
        const struct auth_key *key;
        /* A message has arrived; borrowed. The callback may call json_connection_close(). */
        void (*received)(void *ctx, json_t *message);
        /* The peer or an error has ended the connection; called once. The owner must then call
         * json_connection_close(), and nothing else. */
        void (*ended)(void *ctx, int error);
        void *ctx;
};

/* Takes over a connected socket, or one that is `connecting`. The caller sets `received`, `ended`, `ctx` and
 * optionally `key` first. Returns negative errno with the socket closed. */
int json_connection_open(struct json_connection *c, struct loop *loop, int fd, bool connecting);
/* Drops unsent messages and calls no callback. Accepts a closed or zeroed connection. */
void json_connection_close(struct json_connection *c);
bool json_connection_is_open(const struct json_connection *c);
/* Sends a message and consumes the reference. Does nothing if the connection has ended. */
void json_connection_send(struct json_connection *c, json_t *message);

#define JSON_CONNECTION_TEXT_MAX_BYTES 1024
/* Copies a peer's reason and makes it printable. Returns `text`. */
char *json_connection_text(const json_t *value, char *text, size_t size);
