/* Decides whether the rest of the machine disturbed a point, and makes a disturbed point again.
 *
 * Figures of a point, beside those of its kind; null if unknown (points on standby nodes have none of them):
 *   stolen_share, others_share, waiting_share, timer_late_p99_us, timer_late_max_us: see sys/machine_watch.h
 *   repeats: how many times the point was made again
 *   disturbed: the reason why the point is invalid, or null */
#pragma once

#include <jansson.h>

#include "evb/lab/points.h"
#include "evb/sys/machine_watch.h"

/* A disturbed point is made again at most so many times. */
#define LAB_REPEATS_MAX 3u

/* Verdicts distinguish throughputs that differ by 1 % (extension_c.c), so the hypervisor must not take much
 * more. The kernel counts in ticks of 10 ms, each 1 % of the shortest points on two processors. */
#define LAB_STOLEN_SHARE_MAX 0.02
/* Socket buffers and shaping queues (4 MiB) hold 34 ms of a 1 Gbit/s link: a longer pause loses packets that
 * a free machine would not have lost. The bound cannot be much lower, because the point's own processes hold
 * a processor in the kernel, which does not preempt them: for up to 28 ms with three shaped TCP flows. */
#define LAB_LATE_MAX_US 40000.0
/* The lab's processes wait for each other, and others use processors that the lab leaves idle; neither
 * disturbs. Only time that others use while the lab's processes wait does. It is at most the smaller of both
 * shares, and usually much less: with raised priority (sys/priority.h), points with 0.5 beside 20 busy
 * processes built 93 to 100 % of what they build on a free machine. */
#define LAB_CONTESTED_SHARE_MAX 0.6
/* At equal priority the others do take that time: points with 0.4 to 0.9 built 12 to 97 %. */
#define LAB_CONTESTED_SHARE_EQUAL_MAX 0.2

/* Adds the figures of a view, with `disturbed`. `raised`: the point's processes had a raised priority. */
void lab_valid_describe(json_t *figures, const struct machine_view *v, bool raised);
/* The reason why a result is disturbed, or NULL. Results of earlier versions are not. Borrowed. */
const char *lab_valid_reason(const json_t *result);
/* Makes a point with `make` until it is undisturbed, has failed (NULL), `stop` returns true, or was repeated
 * `repeats_max` times. Returns the figures of the last attempt, with `repeats`. */
json_t *lab_valid_make(const struct lab_point *p, json_t *(*make)(const struct lab_point *p),
                       bool (*stop)(void), unsigned repeats_max);
