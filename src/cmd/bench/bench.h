/* The verbs of `evb bench`. Private to src/cmd/bench. */
#pragma once

#include "cmd/options.h"

/* Each parses its options, and returns the exit status. */
int bench_qos(const struct command *command, int argc, char **argv);
int bench_memcpy(const struct command *command, int argc, char **argv);
int bench_paths(const struct command *command, int argc, char **argv);
int bench_wire(const struct command *command, int argc, char **argv);

/* Parses the argument of an option, a number from 1 to `most`. False: it is none, and an error was printed.
 */
bool bench_parse_number(const char *option, const char *text, uint64_t most, uint64_t *ret);
/* Parses seconds, which may have a fraction. False: they are none, and an error was printed. */
bool bench_parse_seconds(const char *verb, const char *text, double least, double most, double *ret);
/* Prints that the option has another value than expected. Always false. `verb` is "evb bench paths". */
bool bench_refuse_value(const char *verb, const char *option, const char *text, const char *expected);
