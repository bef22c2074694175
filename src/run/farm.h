/* The stand-in farm of a run (test.stand-in): evb level2 beside the DFM. One thread. */
#pragma once

#include <sys/types.h>

#include "run/launch.h"

/* Starts it in the DFM's namespace (-1: the caller's) if the scenario asks for one. *ret is 0 otherwise.
 * Errors are logged. */
int farm_start(pid_t *ret, const struct launch_options *options, int namespace);
/* Ends it, unless it has ended with the run. */
void farm_stop(pid_t farm);
