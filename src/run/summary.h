/* The report of a whole run, and of the machine during it. */
#pragma once

#include <jansson.h>

#include "run/launched_run.h"
#include "sys/machine_watch.h"

/* Returns {"seconds", "stolen_share", "others_share", "waiting_share", "wait_mean_us", "timer_late_p99_us",
 * "timer_late_max_us", "raised"}, see struct machine_view; a figure that is not known is null. `raised`:
 * whether the measured processes had a raised priority. Returns null if nobody watched. */
json_t *machine_report(struct machine_watch *watch, bool raised);

/* Writes the report to options->json, or a summary for people to standard output, and logs the reasons of a
 * failure. Returns the exit status. */
int summary_write(const struct launch *l);
