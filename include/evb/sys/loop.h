/* An event loop over epoll: descriptors, one deadline, signals. One thread; nothing is allocated after
 * loop_new(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop;

/* A descriptor watched, embedded in its owner; `ready` gets the epoll events. */
struct loop_io {
        int fd;
        uint32_t events; /* EPOLLIN, EPOLLOUT... */
        void (*ready)(void *ctx, uint32_t events);
        void *ctx;
};

uint64_t clock_now_ns(void);  /* CLOCK_MONOTONIC */
uint64_t clock_utc_ns(void);  /* CLOCK_REALTIME */
uint64_t clock_boot_ns(void); /* CLOCK_BOOTTIME */

int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *loop);

/* The same three for a descriptor; a removed one is not called again, even within the same wake-up. Negative
 * errno. */
int loop_add(struct loop *loop, struct loop_io *io);
int loop_modify(struct loop *loop, struct loop_io *io, uint32_t events);
void loop_remove(struct loop *loop, struct loop_io *io);

/* Blocks SIGTERM, SIGINT and SIGHUP and counts them here instead. SIGHUP has its own count, and does not
 * count if it was ignored before (nohup). Call before threads are made. */
int loop_catch_signals(struct loop *loop);
unsigned loop_signals(const struct loop *loop); /* SIGTERM and SIGINT */
unsigned loop_hangups(const struct loop *loop);

/* Without a loop, or around several: blocks SIGTERM, SIGINT and SIGHUP from now on; whether one is
 * pending. */
void signals_hold(void);
bool signals_are_waiting(void);
/* Takes one of these blocked signals if it comes within `wait_ns`; whether one came. */
bool signals_wait(uint64_t wait_ns);

/* Waits for a descriptor, a signal or `deadline_ns` (NEVER_NS: none; in the past: does not wait), and calls
 * what is ready. 0, or negative errno. */
int loop_wait(struct loop *loop, uint64_t deadline_ns);
/* The time of the last wake-up. */
uint64_t loop_now_ns(const struct loop *loop);
