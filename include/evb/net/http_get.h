/* Requests one page from each of many HTTP servers at once, or sends one JSON object to each, over TCP and
 * Unix sockets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The longest reply. */
#define HTTP_GET_MAX_BYTES (1u << 20)

struct http_get {
        const char *place; /* "HOST:PORT" or "unix:PATH" */
        const char *path;
        const char *post;  /* JSON; NULL: the request is a GET */
        const char *token; /* sent as "Authorization: Bearer"; NULL: none */
        /* The result: 0 or a negative errno, e.g. -ECONNREFUSED, -ETIMEDOUT, -EBADMSG (no HTTP). */
        int error;
        unsigned status;
        char *body; /* the caller frees it; NULL: none */
        /* Private. */
        int fd;
        size_t sent, received;
        char *reply, *request;
};

/* Sends all requests, and waits until each has its answer or has failed, at most `timeout_ns`. */
void http_get_all(struct http_get *gets, size_t n, uint64_t timeout_ns);
