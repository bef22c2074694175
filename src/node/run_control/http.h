/* Operators' requests by HTTP, at control.listen and at metrics.listen. */
#pragma once

#include <stdbool.h>

#include "data/stats.h"
#include "node/run_list.h"
#include "mailbox.h"

/* Room for a command with 12 names and values of metadata, all of them escaped. */
#define RUN_HTTP_BODY_MAX_BYTES (32u << 10)

#define RUN_HTTP_PATH "/control"
/* The list of runs, at control.listen only. */
#define RUN_HTTP_LIST_PATH RUN_HTTP_PATH "/runs"

struct http_request;
struct http_reply;

struct run_http {
        const struct scenario *scenario;
        struct node_stats *stats;
        struct run_mailbox *mailbox;
        struct run_state_copy *copy;
        const char *token;            /* "": none */
        char runs[RUN_LIST_PATH_MAX]; /* the list of runs; "": none */
        _Atomic int state;            /* enum run_control_state, as of the last turn of the event loop */
};

/* Answers a request to /control, in the thread of a server. `at_metrics`: this is the server of
 * metrics.listen. There, any client may read the copy of the state, and commands need the token. */
void run_http_answer(const struct run_http *h, const struct http_request *request, struct http_reply *ret,
                     bool at_metrics);
const char *run_http_state(const struct run_http *h); /* any thread */
