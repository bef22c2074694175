/* Watches what else a machine does while some processes are measured: processor time that the hypervisor or
 * other processes take, how late timers fire, and how long the measured processes wait for a processor.
 *
 * Timer lateness comes from one small thread per processor, at the second real-time priority, which sleeps
 * to absolute deadlines. Ordinary processes never delay it, the measured ones included. The hypervisor,
 * other real-time processes and long interrupts delay it, but also every measured process on that processor.
 *
 * One thread uses a watch. Start it before forking the measured processes: its threads hold no lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How each processor of the machine spent its time, as the kernel counts it (proc_stat(5)). */

#define PROCESSORS_MAX 1024u

enum processor_use {
        PROCESSOR_USER, /* includes nice */
        PROCESSOR_SYSTEM,
        PROCESSOR_IDLE,
        PROCESSOR_IOWAIT,
        PROCESSOR_IRQ,
        PROCESSOR_SOFTIRQ,
        PROCESSOR_STEAL,
        PROCESSOR_USES,
};

extern const char *const processor_use_names[PROCESSOR_USES];

struct processors {
        size_t n;
        struct processor_times {
                unsigned number;
                uint64_t ticks[PROCESSOR_USES]; /* since boot */
        } each[PROCESSORS_MAX];
};

/* Reads the text of /proc/stat. -EBADMSG: it lists no processor. */
int processors_parse(struct processors *ret, const char *text);
/* Reads /proc/stat. Negative errno. */
int processors_read(struct processors *ret);
/* The share of each use between two readings, in per cent. */
void processor_shares(const struct processor_times *begin, const struct processor_times *end,
                      double ret_percent[static PROCESSOR_USES]);

/* Measurements while the watch was active. Shares are parts of the time of all processors that this process
 * may use; an unknown figure is NAN. */
struct machine_view {
        double seconds; /* 0: not active for long enough; all other members are then unknown */
        /* Time that the hypervisor gave to other machines ("steal" of proc_stat(5)). */
        double stolen_share;
        /* Time of processes that were not added, and of the kernel outside any process. */
        double others_share;
        /* Time that added processes waited on run queues (Documentation/scheduler/sched-stats.rst); above 1
         * if several wait at a time. They also wait for each other. */
        double waiting_share;
        /* How long they waited before each turn on a processor, on average. */
        double wait_mean_us;
        /* NAN without permission to use real-time threads (CAP_SYS_NICE, RLIMIT_RTPRIO). */
        double late_p99_us, late_max_us;
};

struct machine_watch;

/* Starts the threads. Signals stay blocked in them as in the caller. Returns negative errno. */
int machine_watch_new(struct machine_watch **ret);
/* Ends the threads. This function and the next three accept NULL, and then do nothing. */
struct machine_watch *machine_watch_free(struct machine_watch *w);
/* Adds a process to the measured processes. This process is measured from the start. With more than 256
 * processes, the figures that distinguish these processes from others are unknown. */
void machine_watch_add(struct machine_watch *w, pid_t pid);
/* Call this often. The watch covers the time from the first call with `active` to the last call before one
 * without. */
void machine_watch_turn(struct machine_watch *w, uint64_t now_ns, bool active);
void machine_watch_view(struct machine_watch *w, struct machine_view *ret);

/* The parts below are pure. */

/* Time since boot, summed over some processors. */
struct machine_times {
        uint64_t idle_ns, stolen_ns;
        unsigned processors;
};

/* Sums the processors selected by `use`. Returns -EBADMSG if there are none. */
int machine_times_sum(struct machine_times *ret, const struct processors *all, uint64_t tick_ns,
                      bool (*use)(void *ctx, unsigned processor), void *ctx);

/* The time that threads ran, the time that they waited for a processor, and how often they got one. */
struct thread_times {
        uint64_t used_ns, waited_ns, turns;
};

/* Adds the text of a /proc/PID/task/TID/schedstat. Returns -EBADMSG. */
int thread_times_add(struct thread_times *to, const char *text);

/* Computes the shares between two readings that are `elapsed_ns` apart. */
void machine_view_shares(struct machine_view *ret, const struct machine_times *begin,
                         const struct machine_times *end, const struct thread_times *used,
                         uint64_t elapsed_ns);
