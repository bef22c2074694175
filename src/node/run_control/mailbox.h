/* Passes requests from the threads of HTTP servers to the event loop, one at a time, with a bounded wait, and
 * its published state to these threads. */
#pragma once

#include <pthread.h>
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

#define RUN_ERROR_TEXT_MAX 512

/* The state of run control as the event loop last published it. Any client may read it at metrics.listen;
 * such a read must not wake the event loop. */
struct run_state_copy {
        pthread_mutex_t lock;           /* protects the members below; held only during a copy */
        char *json;                     /* NULL: nothing is published yet */
        char error[RUN_ERROR_TEXT_MAX]; /* why the last run ended in an error; "": no error */
};

void run_state_copy_init(struct run_state_copy *c);
void run_state_copy_fini(struct run_state_copy *c);
/* For the event loop; never waits. False: another thread is reading, so try it again at the next turn. */
bool run_state_copy_begin(struct run_state_copy *c);
/* Takes ownership of `json`, which is from malloc(); NULL keeps the previous value. */
void run_state_copy_end(struct run_state_copy *c, char *json, const char *error);
/* Any thread. Returns a copy from malloc(); NULL: nothing has been published, or out of memory. */
char *run_state_copy_json(struct run_state_copy *c);
/* Any thread. */
void run_state_copy_error(struct run_state_copy *c, char text[static RUN_ERROR_TEXT_MAX]);
