/* A small HTTP/1.1 server for GET and HEAD, in a thread of its own with a lower priority: whatever clients
 * do, other threads of the process notice nothing. Connections, their memory and their duration are bounded;
 * each serves one request. Over TCP and Unix sockets. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "evb/base/error.h"

struct http_request {
        const char *path;   /* decoded, without the query */
        const char *accept; /* "": any */
};

struct http_reply {
        unsigned status;          /* 200 unless set */
        const char *content_type; /* a string that lives on */
        char *text;               /* from malloc(), taken over; NULL: 503 */
        size_t text_bytes;
};

struct http_config {
        int listener; /* a listening, non-blocking stream socket; borrowed */
        /* Runs in the server's thread, one call at a time. */
        void (*answer)(void *ctx, const struct http_request *request, struct http_reply *ret);
        void *ctx;
        const unsigned *cpus; /* processors of the thread; none: those of the caller */
        size_t n_cpus;
};

struct http_server;

int http_server_new(struct http_server **ret, const struct http_config *config, struct error *e);
/* Ends the thread and closes all connections, but not the listener. */
struct http_server *http_server_free(struct http_server *s);
