/* Ends a run that makes no progress (run.stall-timeout), and records which ROSs held back triggers until the
 * end. */
#pragma once

#include "core/dfm.h"
#include "data/reasons.h"
#include "../node_internal.h"

struct dfm_end {
        char reason[REASON_TEXT_MAX]; /* why the DFM ended the run; "": the DFM did not end it */
        uint64_t abandon_ns;          /* when the DFM counts open events as lost */
        uint32_t abandoned;
        bool recorded;
        char held[256]; /* the ROSs that held back triggers until the end; "": none */
};

void dfm_end_turn(struct node *n, struct dfm *core, struct dfm_end *e, uint64_t now_ns);
/* Adds why the DFM ended the run, as the first reason. */
void dfm_end_reasons(const struct dfm_end *e, struct reasons *to);
