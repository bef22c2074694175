/* A node as a child process: starts this program, watches it through a pidfd and reads its report from its
 * standard output. The node's counters stay readable after it exits. Only the loop's thread uses it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/histogram.h"
#include "conf/scenario.h"
#include "data/stats.h"
#include "sys/loop.h"

struct child {
        /* Set by the caller before child_start(). */
        const struct scenario_node *node;
        struct loop *loop;
        void (*ended)(void *ctx, struct child *c);
        void *ctx;

        pid_t pid;
        struct loop_io exit_io;   /* pidfd */
        struct loop_io report_io; /* pipe from its standard output */
        struct node_stats *stats; /* shared memory; valid until child_fini() */
        int stats_fd;
        bool running;
        int status; /* as of waitpid(2) */
        struct rusage usage;
        char *report;
        size_t report_bytes, report_size;
};

struct child_command {
        const char *program, *config;
        const char *const *settings; /* --set */
        size_t n_settings;
        int namespace; /* namespace in which the child runs; -1: the caller's */
        bool raised;   /* with precedence over ordinary processes (see sys/thread.h), if permitted */
};

/* Returns negative errno and logs it. child_fini() is required in any case. */
int child_start(struct child *c, const struct child_command *command);
/* Kills the child if it still runs. */
void child_fini(struct child *c);

enum node_state child_state(const struct child *c);
double child_cpu_seconds(const struct child *c);
/* Whether the child ended without being killed, so that its counters are final. */
bool child_lived(const struct child *c);

/* ---- A meter of the share of a processor that processes use, interval by interval, in one histogram per
 * group of processes. A process with several threads may use more than one processor. One thread.  The kernel
 * updates the account of a process when the process sleeps, or at the next tick, every 1 to 10 ms
 * (thread_group_cputime() in kernel/sched/cputime.c). So intervals must be much longer than a tick, and a
 * share may be wrong by a tick. ---- */

/* The unit of shares: a hundredth of a per cent of one processor. */
#define CPU_METER_WHOLE 10000u
/* Interval of samples: much longer than a tick, and much shorter than a second. */
#define CPU_METER_INTERVAL_NS UINT64_C(50000000)

struct cpu_meter;

/* Makes a meter for at most `processes` processes in `groups` groups. Returns -ENOMEM. */
int cpu_meter_new(struct cpu_meter **ret, size_t processes, size_t groups);
struct cpu_meter *cpu_meter_free(struct cpu_meter *m);
/* Adds a child that has not been reaped; `group` counts from 0. Returns negative errno. */
int cpu_meter_add(struct cpu_meter *m, pid_t pid, size_t group);
/* Call this before the child is reaped, because another process may then get its number. */
void cpu_meter_remove(struct cpu_meter *m, pid_t pid);
/* Begins an interval without counting the previous one. */
void cpu_meter_restart(struct cpu_meter *m);
/* Ends an interval, counts each process's share in it, and begins the next one. */
void cpu_meter_sample(struct cpu_meter *m);
/* Call this often: takes a sample once per interval while `active` is set, and skips the time before and
 * after. */
void cpu_meter_turn(struct cpu_meter *m, uint64_t now_ns, bool active);
/* Returns the end of the interval. */
uint64_t cpu_meter_deadline_ns(const struct cpu_meter *m);
/* The result is borrowed. */
const struct histogram *cpu_meter_shares(const struct cpu_meter *m, size_t group);
/* Returns {"p10", "p50", "p90", "p99", "edges", "below"}, in per cent of a processor. For each edge, `below`
 * contains the fraction of intervals (0 to 1) at or below the edge. Returns null if nothing was sampled. */
json_t *cpu_meter_describe(const struct histogram *shares);
