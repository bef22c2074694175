/* The state of run control as the event loop last published it. Any client may read it at metrics.listen;
 * such a read must not wake the event loop. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define RUN_ERROR_TEXT_MAX 512

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
