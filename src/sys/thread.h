/* Worker threads with names and processors, their processor time and priority, and a way to wake a thread
 * that waits for a ring. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts a thread with a name (15 bytes are shown) on the given processors (none: any). Signals stay blocked
 * as in the caller. Negative errno. */
int thread_start(pthread_t *ret, const char *name, const unsigned *cpus, size_t n_cpus, void *(*run)(void *),
                 void *ctx);
/* Pins the calling thread to processors; none: unchanged. Negative errno. */
int thread_pin(const unsigned *cpus, size_t n_cpus);
/* Processor time of the calling thread. */
uint64_t thread_used_ns(void);

/* Wakes a sleeping consumer; costs the producer no system call while the consumer is awake.
 *
 * Consumer: waker_prepare(); check the queue again; if it is empty, wait (waker_wait() or poll `fd`); then
 * waker_done(). Producer: put an item into the queue, then waker_wake(). Each side has a sequentially
 * consistent fence between its write and its read, so at least one of the two sees the other. */
struct waker {
        int fd; /* eventfd */
        _Atomic bool sleeping;
};

int waker_init(struct waker *w);
void waker_fini(struct waker *w);
void waker_wake(struct waker *w);
void waker_prepare(struct waker *w);
void waker_wait(struct waker *w, int timeout_ms); /* -1: until woken */
void waker_done(struct waker *w);                 /* ends the wait; also empties the eventfd */

/* Gives the calling process, and the processes that it starts, precedence over ordinary ones: nice value -20
 * in a session of its own, whose autogroup gets the same value. (Where the kernel groups sessions,
 * CONFIG_SCHED_AUTOGROUP, nice values count within a group only; see sched(7).) The setting ends
 * with the process and its children, so it need not be restored. Within a cgroup of the cpu controller, the
 * priority holds within that cgroup only.
 *
 * Call in a child between fork and exec: the caller becomes the leader of a new session and process group.
 * Returns -EACCES or -EPERM without CAP_SYS_NICE or a sufficient RLIMIT_NICE; the session is new anyway. */
int priority_raise(void);
/* Gives the calling thread nice value -20 in its current session. Returns negative errno, like
 * priority_raise(). */
int priority_prefer(void);
/* Gives the calling thread the lowest real-time priority; threads and processes that it starts do not inherit
 * it. For a thread that mostly sleeps, but must run in time while processes with priority_raise() are busy.
 * Returns negative errno. */
int priority_attend(void);
/* Whether priority_raise() would succeed. Call it from one thread only. */
bool priority_may_raise(void);
