/* What a machine did while something was measured on it, as an object of a report. */
#pragma once

#include <jansson.h>

#include "sys/machine_watch.h"

/* Returns {"seconds", "stolen_share", "others_share", "waiting_share", "wait_mean_us", "timer_late_p99_us",
 * "timer_late_max_us", "raised"}, see struct machine_view; a figure that is not known is null. `raised`:
 * whether the measured processes had a raised priority. Returns null if nobody watched. */
json_t *machine_report(struct machine_watch *watch, bool raised);
