/* The condition of a whole run, from the answers of its nodes: one judgement for evb status, evb top and the
 * page. */
#pragma once

#include "node/metrics/statuses.h"

#define RUN_REASON_MAX 640

struct run_summary {
        uint32_t run; /* 0: unknown */
        bool ok;      /* no node has a problem */
        char state[16];
        /* Why the run is not ok, or what it waits for; "": neither. The text begins with the name of the
         * node, unless it is about the DFM. */
        char reason[RUN_REASON_MAX];
        const struct node_status *whose; /* the node that the reason is about; NULL: none */
};

/* Sets the DFM's state (node_status_word()), or "losing" if only an SFI loses events. */
void run_summary_make(const struct statuses *s, struct run_summary *ret);
/* Returns {"ok", "run", "state", "reason"}; unknown values are null. */
json_t *run_summary_to_json(const struct run_summary *r);
