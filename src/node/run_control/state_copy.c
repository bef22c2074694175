/* Keeps the published state of run control under a lock. The event loop never waits for this lock. */
#include "state_copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

void run_state_copy_init(struct run_state_copy *c)
{
        *c = (struct run_state_copy){};
        pthread_mutex_init(&c->lock, NULL);
}

void run_state_copy_fini(struct run_state_copy *c)
{
        free(take_ptr(c->json));
        pthread_mutex_destroy(&c->lock);
}

bool run_state_copy_begin(struct run_state_copy *c)
{
        return pthread_mutex_trylock(&c->lock) == 0;
}

void run_state_copy_end(struct run_state_copy *c, char *json, const char *error)
{
        if (json) {
                free(c->json);
                c->json = json;
        }
        snprintf(c->error, sizeof c->error, "%s", error);
        pthread_mutex_unlock(&c->lock);
}

char *run_state_copy_json(struct run_state_copy *c)
{
        char *json;

        pthread_mutex_lock(&c->lock);
        json = c->json ? strdup(c->json) : NULL;
        pthread_mutex_unlock(&c->lock);
        return json;
}

void run_state_copy_error(struct run_state_copy *c, char text[static RUN_ERROR_TEXT_MAX])
{
        pthread_mutex_lock(&c->lock);
        memcpy(text, c->error, RUN_ERROR_TEXT_MAX);
        pthread_mutex_unlock(&c->lock);
}
