/* What the programs evb and evb-qos share. */
#pragma once

/* Opens the log under the name of the program, makes standard output wait where it is non-blocking, and calls
 * run(). Returns the exit status: that of run(), or 1 instead of 0 if part of the output is lost. */
int program_run(const char *name, int (*run)(int argc, char **argv), int argc, char **argv);
