/* Requests pages from HTTP servers, or sends a JSON object to each, over TCP and Unix sockets: many at once,
 * or as part of an event loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum size of a reply. */
#define HTTP_GET_MAX_BYTES (1u << 20)

struct http_get {
        const char *place; /* "HOST:PORT" or "unix:PATH" */
        const char *path;
        const char *post;  /* JSON; NULL: the request is a GET */
        const char *token; /* sent as "Authorization: Bearer"; NULL: none */
        /* For http_get_all(): the maximum wait for the connection, which other programs on the remote machine
         * do not delay; 0: the same as for the answer. */
        uint64_t connect_ns;
        /* The result: 0 or a negative errno, e.g. -ECONNREFUSED, -ETIMEDOUT, -EBADMSG (not HTTP). */
        int error;
        unsigned status;
        char *body; /* the caller frees it; NULL: none */
        int fd;     /* valid while the request is in progress; -1: the request has ended */
        /* Private. */
        size_t sent, received;
        char *reply, *request;
};

/* Begins a request, which may end at once. */
void http_get_start(struct http_get *g);
/* The events of poll(2) or epoll(7) that g->fd waits for. */
unsigned http_get_events(const struct http_get *g);
/* Continues the request after one of these events or an error of the connection. */
void http_get_continue(struct http_get *g);
/* Ends a request that is in progress with this error. */
void http_get_stop(struct http_get *g, int error);

/* Sends all requests, and waits at most `timeout_ns` until each has been answered or has failed. */
void http_get_all(struct http_get *gets, size_t n, uint64_t timeout_ns);
