/* Passes requests from the threads of HTTP servers to the event loop, one at a time, with a bounded wait. */
#pragma once

#include <stdbool.h>

#include "conf/scenario.h"
#include "node/run_states.h"

struct run_request {
        bool is_command; /* false: the request only asks for the state */
        enum run_command command;
        bool waits;     /* the client repeats requests for the state until its command has taken effect */
        int connection; /* connection of the operator, who can withdraw the command by closing it */
        char from[96];  /* the operator's address, for the log */
        struct scenario_metadata metadata[SCENARIO_METADATA_MAX];
        size_t n_metadata;
        char key[64], value[SCENARIO_TEXT_MAX]; /* of RUN_COMMAND_SET */
        unsigned status;                        /* HTTP status */
        char *reply;                            /* JSON, from malloc(); NULL: none */
};

struct run_mailbox;

int run_mailbox_new(struct run_mailbox **ret); /* negative errno */
struct run_mailbox *run_mailbox_free(struct run_mailbox *m);
/* Readable while a request waits. */
int run_mailbox_fd(const struct run_mailbox *m);
/* Any thread: waits until the event loop has answered. False: it did not answer in time, or has ended. */
bool run_mailbox_ask(struct run_mailbox *m, struct run_request *r);
/* For the event loop: calls `follow` with the waiting request, if any. Never waits for another thread: if the
 * lock is held, the descriptor stays readable. */
void run_mailbox_turn(struct run_mailbox *m, void (*follow)(void *ctx, struct run_request *r), void *ctx);
/* Any thread: waiting and later requests receive no answer. */
void run_mailbox_shut(struct run_mailbox *m);
