/* The verbs of `evb bench`. Private to src/cmd/bench. */
#pragma once

#include <jansson.h>

#include "cmd/options.h"
#include "sys/machine_watch.h"

/* ---- Rounds (rounds.c) ---- */

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

/* Parses seconds, which may have a fraction. False: the text is invalid, and an error was printed. */
bool bench_parse_seconds(const char *verb, const char *text, double least, double most, double *ret);
/* Prints that the value of an option is invalid, and what is expected. Returns false. `verb` is "evb bench
 * paths". */
bool bench_refuse_value(const char *verb, const char *option, const char *text, const char *expected);
