/* Reports a whole run, and the load and delays of the machine during the run. */
#pragma once

#include <jansson.h>

#include "data/reasons.h"
#include "run/launched_run.h"
#include "sys/machine_watch.h"

/* ---- Parts of the report, for summary.c. ---- */

/* front_ends.c: checks that the classes of frames add up for each ROS that was not killed: every frame that
 * it read belongs to exactly one class. Describes the first difference. */
bool front_ends_balance(const struct launch *l, char *difference, size_t size_bytes);
/* Returns the sums over all ROSs; null without front-ends. `sums`: from launch_sums(). */
json_t *front_ends_report(const struct launch *l, const uint64_t sums[static COUNTERS]);
/* Prints these sums as a line of text if there are front-ends, and the clocks of boards in another one. */
void front_ends_print(const struct launch *l);

/* run_files.c: writes the report to CORE.run.json next to the files of each SFI, and appends its path to
 * `written`. Each failure becomes a reason. */
void run_files_write(const struct launch *l, const json_t *report, json_t *written, struct reasons *to);
/* Prints the paths of the first event files of `report`, and of the first records. */
void run_files_print(const json_t *report, const json_t *records);

/* The counts of the DFM for the run, which summary.c completes if the DFM was killed. */
struct accounts {
        uint64_t triggers, assigned, complete, partial, lost, rejected;
        uint64_t expected, received, fragments_lost, fragments_absent;
        uint64_t payload_bytes;
        uint64_t stored;      /* in closed files, if any */
        uint64_t unexplained; /* number of events that SFIs built in excess of the DFM's count */
        bool balanced, all_lived;
        char difference[200]; /* difference between the counts of DFM, SFIs and files; "": none */
};

/* run_reasons.c: adds each reason for exit status 1. `nodes` contains the nodes' reports. */
void run_reasons(const struct launch *l, const struct accounts *a, const json_t *nodes, struct reasons *to);

/* ---- Functions for other files. ---- */

/* Returns {"seconds", "stolen_share", "others_share", "waiting_share", "wait_mean_us", "timer_late_p99_us",
 * "timer_late_max_us", "raised"}, see struct machine_view; unknown figures are null. `raised`: whether the
 * measured processes had a raised priority. Returns null if the machine was not watched. */
json_t *machine_report(struct machine_watch *watch, bool raised);

/* Writes the report to options->json, or a readable summary to standard output, and logs the reasons for a
 * failure. Returns the exit status. */
int summary_write(const struct launch *l);
