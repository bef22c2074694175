/* The reasons for exit status 1. */
#pragma once

#include <jansson.h>

#include "run/launched_run.h"
#include "data/reasons.h"

/* The accounts of the run: the DFM's, completed by summary.c if the DFM was killed. */
struct accounts {
        uint64_t triggers, assigned, complete, partial, lost, rejected;
        uint64_t expected, received, fragments_lost, fragments_absent;
        uint64_t payload_bytes;
        uint64_t stored;      /* in closed files, if any */
        uint64_t unexplained; /* built by SFIs beyond the DFM's count */
        bool balanced, all_lived;
        char difference[200]; /* between the counts of DFM, SFIs and files; "": none */
};

/* Adds each reason. `nodes` holds the nodes' reports. */
void run_reasons(const struct launch *l, const struct accounts *a, const json_t *nodes, struct reasons *to);
