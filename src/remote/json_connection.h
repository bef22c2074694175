/* A conversation of JSON objects, one a line, over a TCP connection: what nodes that stand by, their DFM and
 * `evb lab` say to each other (docs/protocol.md, "Orders"). Nothing blocks; one thread, that of the loop. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "evb/net/tcp.h"
#include "evb/sys/loop.h"

/* A longer line, or more that the other side does not take, ends the conversation. */
#define JSON_CONNECTION_LINE_MAX_BYTES (1u << 20)
#define JSON_CONNECTION_UNSENT_MAX_BYTES (16u << 20)

struct json_connection {
        struct loop *loop;
        struct loop_io io;
        struct tcp_reader reader;
        char *out;
        size_t out_begin, out_end, out_size;
        bool connecting;
        int error; /* why it has ended; 0: it goes on */
        /* An object has come; borrowed. json_connection_close() may be called in it. */
        void (*heard)(void *ctx, json_t *message);
        /* It has ended, by the other side or by an error, told once; what is left to do is
         * json_connection_close(). */
        void (*ended)(void *ctx, int error);
        void *ctx;
};

/* Takes a connected or (`connecting`) connecting socket over. `heard`, `ended` and `ctx` are set by the
 * caller before. Negative errno: the socket is closed. */
int json_connection_open(struct json_connection *t, struct loop *loop, int fd, bool connecting);
/* Nothing is heard any more; unsent words are lost. Closed or zeroed ones too. */
void json_connection_close(struct json_connection *t);
bool json_connection_is_open(const struct json_connection *t);
/* Removes control characters from text of others that goes to logs and terminals. In place; returns
 * `text`. */
#define TALK_TEXT_MAX_BYTES 1024
char *json_connection_printable(char *text);
/* A reason given by the other side, made printable the same way. */
char *json_connection_text(const json_t *value, char *text, size_t size);
/* Consumes the reference. A conversation that has ended takes it in silence. */
void json_connection_send(struct json_connection *t, json_t *message);
