/* The run that an earlier DFM left unfinished or unreported. The log and run control name that run until this
 * DFM resumes it or begins another one. */
#pragma once

#include "data/reasons.h"
#include "node_internal.h"
#include "run_record.h"

struct last_run {
        uint32_t run;    /* 0: there is no such run */
        uint64_t cookie; /* 0: the run has ended */
        char began[CLOCK_UTC_TEXT_MAX];
        char cause[REASON_TEXT_MAX]; /* the fault that ended the run; "": none */
};

/* Names the run of the record, or lets run control know how the last run ended. `has_duration`: the age of
 * the run decides when it ends. */
void last_run_open(struct last_run *l, struct node *n, const struct run_previous *f, bool has_duration);
/* Call this when the run with this cookie begins or continues. Returns whether the run ends because of the
 * fault in `cause`. */
bool last_run_begin(struct last_run *l, uint64_t cookie);
