/* Decides whether the rest of the machine disturbed a point, and makes a disturbed point again. Packets that
 * the testbed itself lost (run/testbed.h) disturb a point, too: its queues only overflow if processors
 * are away for long.
 *
 * Figures of a point, beside those of its kind; null if unknown (points on standby nodes have none of them):
 *   stolen_share, others_share, waiting_share, wait_mean_us, timer_late_p99_us, timer_late_max_us: see
 *     sys/machine_watch.h
 *   repeats: how many times the point was made again
 *   disturbed: the reason why the point is invalid, or null */
#pragma once

#include <jansson.h>

#include "lab/points.h"
#include "sys/machine_watch.h"

/* A disturbed point is made again at most so many times: so often at once, and the rest at the end of the
 * run, when what disturbed it may be over. */
#define LAB_REPEATS_MAX 3u
#define LAB_REPEATS_AT_ONCE 1u
/* A point on which the verdict "differs" rests counts with the median of so many results. */
#define LAB_SAMPLES 3u

/* Verdicts distinguish throughputs that differ by 1 % (extension_c.c), so the hypervisor must not take much
 * more. The kernel counts in ticks of 10 ms, each 1 % of the shortest points on two processors. */
#define LAB_STOLEN_SHARE_MAX 0.02
/* Socket buffers and shaping queues (4 MiB) hold 34 ms of a 1 Gbit/s link: a longer pause loses packets that
 * a free machine would not have lost. The bound cannot be much lower, because the point's own processes hold
 * a processor in the kernel, which does not preempt them: for up to 28 ms with three shaped TCP flows. */
#define LAB_LATE_MAX_US 40000.0
/* One timer in a hundred. Processes with real-time priority that hold the processors for 20 ms five times a
 * second reach 18 ms and cost a tenth of the throughput; the point's own processes reached 10 ms. */
#define LAB_LATE_P99_US 15000.0
/* Others use what the lab leaves idle, and the lab's processes wait for each other; neither disturbs. Others
 * disturb if they use this share of the processors while the lab's processes wait. */
#define LAB_OTHERS_SHARE_MAX 0.2
/* With raised priority (sys/priority.h), a process waits 20 to 1700 us for its turn beside 20 busy processes,
 * and longer only if the lab itself leaves nothing to others. A longer wait means that the priority has no
 * effect, for example because others are in a cgroup with a weight of its own. */
#define LAB_WAIT_MEAN_US 3000.0
/* At equal priority the others do take what the lab waits for: points built 12 to 97 % of what they should.
 */
#define LAB_WAITING_SHARE_EQUAL_MAX 0.2

/* The processors limit a point whose processes waited longer for them than this share of the time of all
 * processors. The simulator, whose nodes have a processor each, then makes something else: in a quick run of
 * C1 to C10 on a quiet machine, it differed by at most 1.4 % at the 39 points below this bound, and by up to
 * 99 % at those above (docs/scaling.md). */
#define LAB_CROWDED_SHARE 0.4

/* Adds the figures of a view, with `disturbed`, to those of the point. NULL: the machine was not watched.
 * `raised`: the point's processes had a raised priority. */
void lab_valid_describe(json_t *figures, const struct machine_view *v, bool raised);
/* The result with the median of figure `y` among n valid ones of the same point (n is odd). Counts of losses
 * are the largest of all: one loss is enough to tell that a point loses. Returns a new reference. */
json_t *lab_valid_median(json_t *const *results, size_t n, const char *y);
/* The reason why a result is disturbed, or NULL. Results of earlier versions are not. Borrowed. */
const char *lab_valid_reason(const json_t *result);
/* Makes figures with `make` until they are undisturbed, it has failed (NULL), `stop` returns true, or it was
 * repeated `repeats_max` times. Returns the figures of the last attempt, with `repeats`. */
json_t *lab_valid_make(json_t *(*make)(const void *ctx), const void *ctx, bool (*stop)(void),
                       unsigned repeats_max);
