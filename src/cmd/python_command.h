/* Runs a module of the Python package `evb` as a command. The package is in the source tree of the build,
 * or installed with the program. */
#pragma once

#include "cmd/options.h"

/* Runs `python3 -m MODULE [VERB] OPTIONS -- WORDS`. `command` names the command in messages; `verb` may be
 * NULL; the options are those in `o`, and the n_own of `own` that are set. EVB_PROGRAM and EVB_VERSION in the
 * environment are the path and version of the program. Returns only if Python cannot be run: the exit status,
 * after an error message. */
int python_command_run(const char *command, const char *module, const char *verb,
                       const struct option_entry *own, size_t n_own, const struct options *o);
