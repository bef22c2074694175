/* The verbs of `evb bench`. Private to src/cmd/bench. */
#pragma once

#include <jansson.h>

#include "cmd/options.h"
#include "sys/machine_watch.h"

/* ---- Shared (rounds.c) ---- */

/* Like quantity_parse_time(), but a number without a unit has seconds, as options of earlier versions had. */
int bench_parse_time(const char *text, uint64_t *ret_ns);

/* Adds the figures of a view, by which python/evb/lab/valid.py decides whether other work on the machine
 * disturbed the measurement. NULL: the machine was not watched, so they are null. */
void bench_record_machine(json_t *figures, const struct machine_view *v);
/* Returns the result with the median of figure `y` among n results of the same measurement (n is odd). Each
 * count of losses is the maximum of all n, because one loss is enough to show that a measurement loses.
 * Returns a new reference. */
json_t *bench_median_round(json_t *const *results, size_t n, const char *y);

/* ---- Verbs ---- */

/* Each parses its options, and returns the exit status. */
int bench_memcpy(const struct command *command, int argc, char **argv);
int bench_paths(const struct command *command, int argc, char **argv);
int bench_wire(const struct command *command, int argc, char **argv);
