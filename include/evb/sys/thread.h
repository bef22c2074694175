/* Worker threads with a name and processors of their own, and a way to wake one that waits on a ring. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts a thread that is called `name` (15 bytes are shown) on the given processors (none: any). Signals
 * stay blocked as in the caller. Negative errno. */
int thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus, void *(*run)(void *),
                 void *ctx);
/* The calling thread to these processors; none: unchanged. Negative errno. */
int thread_pin(const unsigned *cpus, size_t n_cpus);

/* Wakes a consumer that sleeps, and costs the producer no system call while it is awake.
 *
 * Consumer: waker_prepare(); look at the queue once more; where it is empty wait (waker_wait, or poll `fd`),
 * else go on; waker_done(). Producer: put into the queue, then waker_wake(). Between setting `sleeping` and
 * looking again, and between putting and reading `sleeping`, each side has a sequentially consistent fence:
 * one of the two sees the other. */
struct waker {
        int fd; /* eventfd */
        _Atomic bool sleeping;
};

int waker_init(struct waker *w);
void waker_fini(struct waker *w);
void waker_wake(struct waker *w);
void waker_prepare(struct waker *w);
void waker_wait(struct waker *w, int timeout_ms); /* -1: until woken */
void waker_done(struct waker *w);                 /* awake; also empties the eventfd */
