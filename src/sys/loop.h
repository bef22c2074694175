/* An event loop over epoll: descriptors, one deadline, signals. One thread. Allocates only in loop_new(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct loop;

/* A watched descriptor, embedded in its owner; `ready` receives the epoll events. */
struct loop_io {
        int fd;
        uint32_t events; /* EPOLLIN, EPOLLOUT... */
        void (*ready)(void *ctx, uint32_t events);
        void *ctx;
};
/* A `ready` whose ctx is a bool: sets it, for an owner that reads in its next turn. */
void loop_set_flag(void *flag, uint32_t events);

uint64_t clock_now_ns(void);  /* CLOCK_MONOTONIC */
uint64_t clock_utc_ns(void);  /* CLOCK_REALTIME */
uint64_t clock_boot_ns(void); /* CLOCK_BOOTTIME */
#define CLOCK_UTC_TEXT_MAX 32
/* "2026-11-28T19:43:01Z"; returns `text`. */
const char *clock_format_utc(uint64_t utc_ns, char text[static CLOCK_UTC_TEXT_MAX]);

int loop_new(struct loop **ret);
struct loop *loop_free(struct loop *loop);

/* Watch, change and unwatch a descriptor. After loop_remove() `ready` is not called again, even in the
 * current wake-up. Negative errno. */
int loop_add(struct loop *loop, struct loop_io *io);
int loop_modify(struct loop *loop, struct loop_io *io, uint32_t events);
void loop_remove(struct loop *loop, struct loop_io *io);

/* Blocks SIGTERM, SIGINT and SIGHUP, and counts them. SIGHUP is counted separately, and not if it was ignored
 * before (nohup). Call this before creating threads. */
int loop_catch_signals(struct loop *loop);
/* The number of times that SIGTERM or SIGINT asked the program to stop. Signals within this time of each
 * other count as one request: timeout(1), for example, sends two. */
#define LOOP_SIGNAL_APART_NS UINT64_C(1000000000)
unsigned loop_signals(const struct loop *loop);
unsigned loop_hangups(const struct loop *loop);
/* Like loop_signals(), for programs that SIGHUP stops too: it counts as a first request. */
unsigned loop_stops(const struct loop *loop);
/* Describes the last of these signals (a SIGHUP only if none of the others has arrived): "SIGTERM from
 * process 1 (systemd), user 0". Returns `text`. */
#define LOOP_SIGNAL_TEXT_MAX 96
const char *loop_describe_signal(const struct loop *loop, char text[static LOOP_SIGNAL_TEXT_MAX]);

/* For code without a loop, or between loops: blocks SIGTERM, SIGINT and SIGHUP; returns whether one is
 * pending. */
void signals_hold(void);
/* Blocks SIGHUP and SIGTERM until loop_catch_signals(), which then counts pending ones. Ctrl-C still ends a
 * program that does not get that far. */
void signals_hold_early(void);
bool signals_are_waiting(void);
/* Waits up to `wait_ns` for one of these signals and consumes it. Returns its number; 0: none arrived. */
int signals_wait(uint64_t wait_ns);

/* Makes loop_wait() poll for `poll_ns` before it sleeps. A caller that waits again after each piece of work
 * then notices the next one without being woken, and uses a whole processor. Deadlines and signals work as
 * usual. 0: it sleeps at once. */
void loop_set_poll(struct loop *loop, uint64_t poll_ns);

/* Waits for a descriptor, a signal or `deadline_ns` (NEVER_NS: none; in the past: does not wait), and calls
 * `ready` of the ready descriptors. Returns 0 or negative errno. */
int loop_wait(struct loop *loop, uint64_t deadline_ns);
/* The time of the last wake-up. */
uint64_t loop_now_ns(const struct loop *loop);
