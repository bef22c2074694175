/* Passes requests from threads to the event loop, and its published state to threads. The event loop answers
 * under the lock, so a request is valid as long as its sender waits. */
#include "mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"

/* Maximum wait for the event loop, including the wait for an earlier request of another thread. */
#define WAIT_NS (4 * NS_PER_S)

struct run_mailbox {
        int fd;
        pthread_mutex_t lock; /* protects the members below */
        pthread_cond_t changed;
        struct run_request *waiting; /* request of the thread that waits; NULL: none, or already answered */
        bool occupied;               /* a thread is using the mailbox */
        bool shut;
};

int run_mailbox_new(struct run_mailbox **ret)
{
        struct run_mailbox *m = calloc(1, sizeof *m);
        pthread_condattr_t monotonic;

        if (!m)
                return -ENOMEM;
        m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (m->fd < 0) {
                free(m);
                return -errno;
        }
        pthread_mutex_init(&m->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&m->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        *ret = m;
        return 0;
}

struct run_mailbox *run_mailbox_free(struct run_mailbox *m)
{
        if (!m)
                return NULL;
        pthread_cond_destroy(&m->changed);
        pthread_mutex_destroy(&m->lock);
        close(m->fd);
        free(m);
        return NULL;
}

int run_mailbox_fd(const struct run_mailbox *m)
{
        return m->fd;
}

/* Waits for a change. False: the wait has timed out, or no answer will come. */
static bool wait(struct run_mailbox *m, const struct timespec *until)
{
        return !m->shut && pthread_cond_timedwait(&m->changed, &m->lock, until) == 0;
}

bool run_mailbox_ask(struct run_mailbox *m, struct run_request *r)
{
        uint64_t until_ns = clock_now_ns() + WAIT_NS;
        const struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                                       .tv_nsec = (long)(until_ns % NS_PER_S)};
        bool answered = false;

        pthread_mutex_lock(&m->lock);
        while (m->occupied && wait(m, &until))
                ;
        if (!m->occupied && !m->shut) {
                m->occupied = true;
                m->waiting = r;
                /* Unlocks before the event loop is woken: if the event loop has a higher priority, it may run
                 * at once and try the lock repeatedly. */
                pthread_mutex_unlock(&m->lock);
                (void)eventfd_write(m->fd, 1);
                pthread_mutex_lock(&m->lock);
                while (m->waiting && wait(m, &until))
                        ;
                answered = !m->waiting;
                m->waiting = NULL;
                m->occupied = false;
                pthread_cond_broadcast(&m->changed);
        }
        pthread_mutex_unlock(&m->lock);
        return answered;
}

void run_mailbox_turn(struct run_mailbox *m, void (*follow)(void *ctx, struct run_request *r), void *ctx)
{
        eventfd_t n;

        /* If a thread was preempted while it holds the lock, the descriptor stays readable for the next
         * turn. */
        if (pthread_mutex_trylock(&m->lock) != 0)
                return;
        if (eventfd_read(m->fd, &n) >= 0) {
                if (m->waiting)
                        follow(ctx, m->waiting);
                m->waiting = NULL;
                pthread_cond_broadcast(&m->changed);
        }
        pthread_mutex_unlock(&m->lock);
}

void run_mailbox_shut(struct run_mailbox *m)
{
        pthread_mutex_lock(&m->lock);
        m->shut = true;
        pthread_cond_broadcast(&m->changed);
        pthread_mutex_unlock(&m->lock);
}

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
