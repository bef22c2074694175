/* Requests pages from HTTP servers, or sends a JSON object to each, over TCP and Unix sockets: many at once,
 * or as part of an event loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest reply. */
#define HTTP_GET_MAX_BYTES (1u << 20)

struct http_get {
        const char *place; /* "HOST:PORT" or "unix:PATH" */
        const char *path;
        const char *post;  /* JSON; NULL: the request is a GET */
        const char *token; /* sent as "Authorization: Bearer"; NULL: none */
        /* Of http_get_all(): the longest wait for the connection, which no load of the other machine's
         * programs delays; 0: as long as for the answer. */
        uint64_t connect_ns;
        /* The result: 0 or a negative errno, e.g. -ECONNREFUSED, -ETIMEDOUT, -EBADMSG (no HTTP). */
        int error;
        unsigned status;
        char *body; /* the caller frees it; NULL: none */
        int fd;     /* while the request is under way; -1: it is over */
        /* Private. */
        size_t sent, received;
        char *reply, *request;
};

/* Begins a request; it may be over at once. */
void http_get_start(struct http_get *g);
/* The events of poll(2) or epoll(7) for which g->fd waits now. */
unsigned http_get_events(const struct http_get *g);
/* Continues, after any of them or an error of the connection. */
void http_get_continue(struct http_get *g);
/* Ends a request that is under way with this error. */
void http_get_stop(struct http_get *g, int error);

/* Sends all requests, and waits until each has its answer or has failed, at most `timeout_ns`. */
void http_get_all(struct http_get *gets, size_t n, uint64_t timeout_ns);
