/* The report of a whole run. */
#pragma once

#include "run/launched_run.h"

/* Writes the report to options->json, or a summary for people to standard output, and logs the reasons of a
 * failure. Returns the exit status. */
int summary_write(const struct launch *l);
