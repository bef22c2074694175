/* A small HTTP/1.1 server for GET and HEAD, and for POST if configured, in a thread of its own with a lower
 * priority, so that clients cannot disturb other threads of the process. Connections, their memory and their
 * duration are bounded; each serves one request. Over TCP and Unix sockets. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "net/address.h"

/* Maximum value of http_config.body_max_bytes. */
#define HTTP_BODY_MAX_BYTES (64u << 10)

struct http_request {
        const char *path;   /* decoded, without the query */
        const char *accept; /* "": any */
        /* The client's address; the family is AF_UNIX for a Unix socket, and AF_UNSPEC if the address is
         * unknown. */
        const struct net_address *from;
        bool is_post;
        const char *body; /* for a POST; ends with a zero byte, and may contain others */
        size_t body_bytes;
        const char *content_type; /* of the body; "": none */
        const char *origin;       /* of the page whose script sends it, as reported by browsers; "": none */
        const char *token;        /* from "Authorization: Bearer TOKEN"; "": none */
        bool waits;               /* the query of the request contains "wait", with any value */
        int connection;           /* the descriptor, valid until the request is answered */
};

/* Whether the client still waits for the answer: it has closed neither the connection nor its own half. Any
 * thread, until the request is answered. */
bool http_client_waits(int connection);
/* The user of a client at a Unix socket; UINT_MAX: unknown. Any thread, until the request is answered. */
unsigned http_client_user(int connection);

struct http_reply {
        unsigned status;          /* 200 unless set; 405: only GET and HEAD are allowed at this path */
        const char *content_type; /* a string that stays valid */
        char *text;               /* from malloc(), freed by the server; NULL: 503 */
        size_t text_bytes;
        const char *cache_control;   /* NULL: no-store */
        const char *security_policy; /* Content-Security-Policy; NULL: none */
};

struct http_config {
        int listener; /* a listening, non-blocking stream socket; borrowed */
        /* Runs in the server's thread, one call at a time. */
        void (*answer)(void *ctx, const struct http_request *request, struct http_reply *ret);
        void *ctx;
        /* POST is served with bodies up to this size; longer ones get the answer 413. 0: POST is refused. */
        size_t body_max_bytes;
        const char *post_path; /* the path that accepts POST, for the header Allow; NULL: none */
        const unsigned *cpus;  /* processors of the thread; n_cpus 0: those of the caller */
        size_t n_cpus;
};

struct http_server;

int http_server_new(struct http_server **ret, const struct http_config *config, struct error *e);
/* Ends the thread and closes all connections, but not the listener. */
struct http_server *http_server_free(struct http_server *s);
