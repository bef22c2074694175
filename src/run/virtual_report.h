/* The report of a run in virtual time, for evb sim and the lab. */
#pragma once

#include "run/launch.h"
#include "sim/sim.h"

/* Writes the report of a simulation that has ended, as summary_write() does: to options->json, or to standard
 * output. `options` may have no scenario. Returns the exit status. */
int virtual_report_write(const struct sim *sim, const struct sim_config *config,
                         const struct launch_options *options);
