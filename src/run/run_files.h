/* The records of a run beside its event files. */
#pragma once

#include <jansson.h>

#include "data/reasons.h"
#include "run/launched_run.h"

/* Writes the report to CORE.run.json beside the files of each SFI, and appends its path to `written`. Each
 * failure is a reason. */
void run_files_write(const struct launch *l, const json_t *report, json_t *written, struct reasons *to);
/* Prints the paths of the first event files of `report`, and of the first records. */
void run_files_print(const json_t *report, const json_t *records);
