/* The verbs of `evb bench`. Private to src/cmd/bench. */
#pragma once

#include <jansson.h>

#include "cmd/options.h"
#include "sys/machine_watch.h"

/* ---- Validity of a point (valid.c), judged by other activity of the machine and by lost packets ---- */

/* Maximum number of times that a disturbed point is measured again. */
#define VALID_REPEATS_MAX 3u

/* Verdicts distinguish throughputs that differ by 1 % (python/evb/lab/extensions.py), so the hypervisor must
 * not take much more. The kernel counts in ticks of 10 ms, each 1 % of the shortest points on two processors.
 */
#define VALID_STOLEN_SHARE_MAX 0.02
/* Socket buffers and shaping queues (4 MiB) hold 34 ms of a 1 Gbit/s link: a longer pause loses packets that
 * a free machine would not have lost. The bound cannot be much lower, because the point's own processes hold
 * a processor in the kernel, which does not preempt them: for up to 28 ms with three shaped TCP flows. */
#define VALID_LATE_MAX_US 40000.0
/* Limit for one timer in a hundred. If processes with real-time priority hold the processors for 20 ms five
 * times a second, this value is 18 ms, and the throughput is a tenth lower. The point's own processes reached
 * 10 ms. */
#define VALID_LATE_P99_US 15000.0
/* Other processes may use processor time that the lab does not use, and the lab's processes wait for each
 * other; neither disturbs a point. Other processes disturb a point if they use this share of the processors
 * while the lab's processes wait. */
#define VALID_OTHERS_SHARE_MAX 0.2
/* With raised priority (sys/thread.h), a process waits 20 to 1700 us for its turn while 20 processes are
 * busy, and longer only if the lab itself uses all processors. A longer wait means that the priority has no
 * effect, for example because other processes are in a cgroup with a separate weight. */
#define VALID_WAIT_MEAN_US 3000.0
/* At equal priority, other processes take time for which the lab waits: points then built 12 to 97 % of their
 * events. */
#define VALID_WAITING_SHARE_EQUAL_MAX 0.2

/* Adds the figures of a view, and `disturbed`, to the figures of the point. NULL: the machine was not
 * watched. `raised`: the point's processes had a raised priority. */
void bench_valid_describe(json_t *figures, const struct machine_view *v, bool raised);
/* Returns the result with the median of figure `y` among n valid results of the same point (n is odd). Each
 * count of losses is the maximum of all n, because one loss is enough to show that a point loses. Returns a
 * new reference. */
json_t *bench_valid_median(json_t *const *results, size_t n, const char *y);
/* Returns why a result is disturbed; NULL: it is not disturbed, or an earlier version made it. Borrowed. */
const char *bench_valid_reason(const json_t *result);
/* Calls `make` until its figures are undisturbed, it fails (NULL), `stop` returns true, or it was repeated
 * `repeats_max` times. Returns the figures of the last attempt, with `repeats`. */
json_t *bench_valid_make(json_t *(*make)(const void *ctx), const void *ctx, bool (*stop)(void),
                         unsigned repeats_max);

/* ---- Verbs ---- */

/* Each parses its options, and returns the exit status. */
int bench_memcpy(const struct command *command, int argc, char **argv);
int bench_paths(const struct command *command, int argc, char **argv);
int bench_wire(const struct command *command, int argc, char **argv);

/* Parses the argument of an option, a number from 1 to `most`. False: the text is invalid, and an error was
 * printed. */
bool bench_parse_number(const char *option, const char *text, uint64_t most, uint64_t *ret);
/* Parses seconds, which may have a fraction. False: the text is invalid, and an error was printed. */
bool bench_parse_seconds(const char *verb, const char *text, double least, double most, double *ret);
/* Prints that the value of an option is invalid, and what is expected. Returns false. `verb` is "evb bench
 * paths". */
bool bench_refuse_value(const char *verb, const char *option, const char *text, const char *expected);
