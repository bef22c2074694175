/* The run that an earlier DFM left without an end or without a report: the log and run control name it, until
 * this DFM resumes it or begins another one. */
#pragma once

#include "node_internal.h"
#include "run_record.h"

struct last_run {
        uint32_t run;    /* 0: there is no such run */
        uint64_t cookie; /* 0: it has ended */
        char began[32];
};

/* Names the run of the record. `has_duration`: its age decides when it ends. */
void last_run_open(struct last_run *l, struct node *n, const struct run_former *f, bool has_duration);
/* The run with this cookie begins or continues. */
void last_run_begin(struct last_run *l, uint64_t cookie);
