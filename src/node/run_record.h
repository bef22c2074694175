/* Stores two things about the runs of this machine's DFMs: the last run number, so that run.number = auto and
 * next never repeat a number; and the current run, so that a restarted DFM can resume it. The files are in
 * $STATE_DIRECTORY, $XDG_STATE_HOME/evb, /var/lib/evb (root) or ~/.local/state/evb. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/dfm.h"
#include "data/reasons.h"

#define RUN_RECORD_PATH_MAX 512

/* How the age of the previous run was determined. */
enum run_age {
        RUN_AGE_CERTAIN, /* by a clock that is never set */
        RUN_AGE_STEPPED, /* by the same clock, but the wall clock was set in between */
        RUN_AGE_BY_WALL, /* by the wall clock, because the machine may have restarted in between */
        RUN_AGE_UNKNOWN, /* age 0: as for RUN_AGE_BY_WALL, but the wall clock shows a time before the run */
};

enum run_stage {
        RUN_STAGE_RUNNING,
        RUN_STAGE_STOPPED,  /* the run accepts no further triggers, even if it is resumed */
        RUN_STAGE_ENDED,    /* the run must not be resumed, and its DFM has not reported it yet */
        RUN_STAGE_REPORTED, /* the run must not be resumed, and its DFM has reported it */
};

/* The run during which a DFM process last ended. */
struct run_previous {
        struct dfm_previous dfm;
        uint32_t run; /* 0: unknown */
        uint64_t began_utc_ns;
        enum run_age age;
        bool is_unreported;          /* the run has ended, but its DFM has not reported it */
        char cause[REASON_TEXT_MAX]; /* the fault that ended the run; "": none */
        bool is_damaged;             /* the record is damaged, so nothing is known */
};

struct run_record {
        int fd; /* this DFM's file, locked; -1: none, or another DFM with this address has locked it */
        char path[RUN_RECORD_PATH_MAX];
};

/* Sets the path of a DFM's file, or only its name if the directory is unknown. */
void run_record_path(const char *address, unsigned port, char path[static RUN_RECORD_PATH_MAX]);
/* `address`: of the DFM. Negative errno: s->path cannot be used, so no run is stored or known. */
int run_record_open(struct run_record *s, const char *address, unsigned port);
void run_record_close(struct run_record *s);
/* Returns the run during which a DFM with this address last ended. */
struct run_previous run_record_previous(const struct run_record *s);
/* Allocates a run number that this machine has not used before; it is on disk when this function returns.
 * Negative errno: the last number is unknown (-EBADMSG: the file is damaged) or the new one cannot be stored
 * in `path`; then *ret is the time in seconds, unless `strict` is set. */
int run_record_next_number(uint32_t *ret, bool strict, char path[static RUN_RECORD_PATH_MAX]);
/* Like run_record_next_number(), and also logs why the clock provided the number. Negative errno, logged:
 * only if `strict` is set. */
int run_record_claim_number(uint32_t *ret, bool strict);
/* Records the stage of the run, which began `age_ns` ago, and the fault that ends it ("": none). Negative
 * errno. Only the age of a run that continues is used later. Call this without delay, because `age_ns`
 * excludes suspensions of the machine. */
int run_record_write(struct run_record *s, uint32_t run, uint64_t cookie, uint64_t age_ns,
                     enum run_stage stage, const char *cause);
