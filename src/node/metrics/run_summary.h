/* What a whole run does, from the answers of its nodes: one judgement for evb status, evb top and the page.
 */
#pragma once

#include "node/metrics/statuses.h"

#define RUN_REASON_MAX 640

struct run_summary {
        uint32_t run; /* 0: unknown */
        bool ok;      /* no node has a problem */
        char state[16];
        /* Why it is not ok, or what it waits for; "": nothing. It begins with the name of the node, unless
         * that is the DFM. */
        char reason[RUN_REASON_MAX];
        const struct node_status *whose; /* the reason is; NULL: there is none */
};

/* The state is the DFM's word (node_status_word()), or "losing" if only an SFI loses events. */
void run_summary_make(const struct statuses *s, struct run_summary *ret);
/* {"ok", "run", "state", "reason"}, with null for what is not known. */
json_t *run_summary_to_json(const struct run_summary *r);
