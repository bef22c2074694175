/* Samples the share of a processor that other processes use, interval by interval, into one histogram per
 * group of processes. A process with several threads may use more than one processor. One thread.
 *
 * The kernel updates the account of a process when it sleeps or at the next tick, every 1 to 10 ms
 * (thread_group_cputime() in kernel/sched/cputime.c). Intervals must be much longer than a tick, and a share
 * may be wrong by a tick. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/histogram.h"

/* The unit of shares: a hundredth of a per cent of one processor. */
#define CPU_METER_WHOLE 10000u
/* Long against a tick, short against a second. */
#define CPU_METER_INTERVAL_NS UINT64_C(50000000)

struct cpu_meter;

/* Makes a meter for at most `processes` processes in `groups` groups. Returns -ENOMEM. */
int cpu_meter_new(struct cpu_meter **ret, size_t processes, size_t groups);
struct cpu_meter *cpu_meter_free(struct cpu_meter *m);
/* Adds a child that has not been reaped; `group` counts from 0. Returns negative errno. */
int cpu_meter_add(struct cpu_meter *m, pid_t pid, size_t group);
/* Call before the child is reaped: another process may get its number afterwards. */
void cpu_meter_remove(struct cpu_meter *m, pid_t pid);
/* Begins an interval without counting the previous one. */
void cpu_meter_restart(struct cpu_meter *m);
/* Ends an interval, counts each process's share in it, and begins the next one. */
void cpu_meter_sample(struct cpu_meter *m);
/* Call often: samples once per interval while `active`, and skips the time before and after. */
void cpu_meter_turn(struct cpu_meter *m, uint64_t now_ns, bool active);
/* Returns the end of the interval. */
uint64_t cpu_meter_deadline_ns(const struct cpu_meter *m);
/* Borrowed. */
const struct histogram *cpu_meter_shares(const struct cpu_meter *m, size_t group);
/* Returns {"p10", "p50", "p90", "p99", "edges", "below"}, in per cent of a processor. `below` holds, for each
 * edge, the fraction of intervals (0 to 1) at or below it. Returns null if nothing was counted. */
json_t *cpu_meter_describe(const struct histogram *shares);
