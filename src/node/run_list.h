/* The list of a DFM's runs, for `evb ctl runs`: a file next to the record of runs (run_record.h), with one
 * JSON object per line. A line is appended when a run begins, when it is stopped, and when it has ended. All
 * lines of one run have the same cookie, even if a restarted DFM resumes it. Lines are not synced. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/dfm.h"
#include "data/reasons.h"
#include "run_record.h"

/* Maximum number of runs that the list shows. */
#define RUN_LIST_MAX 256
#define RUN_LIST_PATH_MAX (RUN_RECORD_PATH_MAX + 8)
#define RUN_LIST_HOW_MAX 24
#define RUN_LIST_WHO_MAX REASON_TEXT_MAX

struct run_list_run {
        uint32_t number;
        uint64_t cookie;
};

/* Why a run accepts no further triggers. */
struct run_list_stop {
        char how[RUN_LIST_HOW_MAX]; /* a command, "signal", a key, "fault"; "": not stopped */
        char who[RUN_LIST_WHO_MAX]; /* the operator, the sender of the signal, or the fault; "": unknown */
};

/* How a run ended. */
struct run_list_outcome {
        uint32_t run;
        char status[16];        /* as in run_list_add_end() */
        struct reasons reasons; /* the first reasons of the report */
};

/* `record_path`: path of the record of runs, which the caller has locked while it appends. */
void run_list_path(const char *record_path, char path[static RUN_LIST_PATH_MAX]);
/* These three functions append one line, and never wait for a reader. Negative errno; -EINVAL: the path is
 * not a regular file. `began_utc_ns`: when the run began. `scenario`: name of the scenario. */
int run_list_add_begin(const char *path, struct run_list_run run, uint64_t began_utc_ns,
                       const char *scenario);
int run_list_add_stop(const char *path, struct run_list_run run, const struct run_list_stop *stop);
/* `files`: a pattern that matches the event files; "": none. `status`: "ok", "fell short", "error". */
int run_list_add_end(const char *path, struct run_list_run run, const char *status,
                     const struct dfm_counts *counts, const struct reasons *reasons, const char *files);

/* Reads how the last run of the list ended. False: it has no end, or no run is readable; *ret is
 * unchanged. */
bool run_list_read_last(const char *path, struct run_list_outcome *ret);
/* Reads the last RUN_LIST_MAX runs, the newest last: {"runs": [{"run", "begin", "end", "status", "ended",
 * "ended_by", "events", "reasons", "files"}]}. Unknown values are null. A run without an end has the status
 * "running" if it is the newest and `is_in_run`, otherwise "unknown". Damaged lines are ignored. No file: no
 * runs. Any thread. Returns 0 or negative errno; *ret is from malloc(). */
int run_list_read(const char *path, bool is_in_run, char **ret);
