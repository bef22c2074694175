/* What other processes take of a processor, from interval to interval, by the kernel's account in
 * nanoseconds: histograms, one for each group of processes. A process of several threads may take more than
 * one processor. One thread. The kernel brings the account of a process up to date when it goes to sleep, or
 * at the next tick (thread_group_cputime() in kernel/sched/cputime.c; 1 to 10 ms): intervals are to be much
 * longer, and a share may be off by a tick of them. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "evb/base/histogram.h"

/* Shares are counted in hundredths of a per cent of one processor. */
#define CPU_METER_WHOLE 10000u
/* Many ticks of the kernel's account, and many intervals in a second. */
#define CPU_METER_INTERVAL_NS UINT64_C(50000000)

struct cpu_meter;

/* For so many processes in so many groups at most. -ENOMEM. */
int cpu_meter_new(struct cpu_meter **ret, size_t processes, size_t groups);
struct cpu_meter *cpu_meter_free(struct cpu_meter *m);
/* A child that has not been waited for; `group` counts from 0. Negative errno: it cannot be metered. */
int cpu_meter_add(struct cpu_meter *m, pid_t pid, size_t group);
/* To be called before it is waited for, or else another may have its number by then. */
void cpu_meter_remove(struct cpu_meter *m, pid_t pid);
/* The next interval begins now. */
void cpu_meter_restart(struct cpu_meter *m);
/* An interval ends, and the next one begins: each process's share of a processor in it is counted. */
void cpu_meter_sample(struct cpu_meter *m);
/* To be called often: samples once an interval while what is to be measured goes on, and not what came before
 * it or after. */
void cpu_meter_turn(struct cpu_meter *m, uint64_t now_ns, bool goes_on);
/* When the interval ends. */
uint64_t cpu_meter_deadline_ns(const struct cpu_meter *m);
/* Borrowed. */
const struct histogram *cpu_meter_shares(const struct cpu_meter *m, size_t group);
/* {"p10", "p50", "p90", "p99", "edges", "below"}, in per cent of a processor: `below` are the shares of
 * intervals that are not above each of the edges, from 0 to 1. null where nothing was counted. */
json_t *cpu_meter_describe(const struct histogram *shares);
