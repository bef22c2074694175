/* The streams of events (text/event-stream) of an HTTP server. A published line goes to all of them. Each
 * stream has at most one line under way, which all streams share. So a slow reader skips lines, and takes no
 * memory of its own. */
#pragma once

#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_STREAMS_MAX 8

struct http_message;

struct http_stream {
        struct http_streams *all;
        struct MHD_Connection *handle; /* NULL: free */
        struct http_message *sending;  /* NULL: none */
        size_t sent_bytes;             /* of it */
        uint64_t number;               /* of the last message that it began to send */
        uint64_t until_ns;
        bool waits; /* MHD has suspended the connection */
};

struct http_streams {
        uint64_t lifetime_ns;
        int wake_fd; /* eventfd: readable if there is a new line */
        bool ended;
        /* Of the server's thread. */
        struct http_stream streams[HTTP_STREAMS_MAX];
        size_t n;
        struct http_message *greeting, *current; /* current NULL: none since the first stream began */
        /* From any thread. */
        pthread_mutex_t lock;          /* protects `incoming` */
        struct http_message *incoming; /* NULL: none */
};

int http_streams_init(struct http_streams *s, uint64_t lifetime_ns); /* negative errno */
void http_streams_fini(struct http_streams *s);
/* Any thread. Replaces a line that no stream has taken yet. -ENOMEM. */
int http_streams_publish(struct http_streams *s, const char *line);

/* The rest belongs to the server's thread. Makes the endless response of a new stream; NULL: too many are
 * open, or out of memory. The stream exists until MHD has destroyed the response. */
struct MHD_Response *http_streams_add(struct http_streams *s, struct MHD_Connection *c, uint64_t now_ns);
/* Continues the streams that have something to do. */
void http_streams_turn(struct http_streams *s, uint64_t now_ns);
/* Lets all streams end. */
void http_streams_end(struct http_streams *s);
