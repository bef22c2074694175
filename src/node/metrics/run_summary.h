/* The condition of a whole run, from the answers of its nodes: one judgement for evb status, evb top and the
 * page. */
#pragma once

#include "node/metrics/statuses.h"

#define RUN_REASON_MAX 640

struct run_summary {
        uint32_t run; /* 0: unknown */
        bool ok;      /* no node has a problem */
        bool blames;  /* the reason names a node with a problem or warning, not only what the run waits for */
        char state[16];
        /* Why the run is not ok, or what it waits for; "": neither. The text begins with the name of the
         * node, unless it is about the DFM. */
        char reason[RUN_REASON_MAX];
        const struct node_status *whose; /* the node that the reason is about; NULL: none */
};

/* The node at fault, as the DFM logs it, sends it to the service manager and serves it in its metrics. */
struct run_fault {
        char node[SCENARIO_TEXT_MAX]; /* "": no node is at fault */
        char state[NODE_STATUS_WORD_MAX];
        char cause[NODE_STATUS_CAUSE_MAX]; /* without times and counts */
        char text[RUN_REASON_MAX];         /* the reason of the summary, without what the run waits for */
        bool is_gone; /* the node does not answer, and the DFM receives nothing from it */
};

/* Sets the DFM's state (node_status_word()), or "losing" if only an SFI loses events. */
void run_summary_make(const struct statuses *s, struct run_summary *ret);
/* Sets *ret to the fault that run_summary_make() names first. A DFM that only waits is not at fault, nor is a
 * node for which node_is_excused() is true, nor any node while statuses_are_settled() is false. Returns false
 * if the DFM did not answer: then it is unknown whether a node is at fault. */
bool run_summary_find_fault(const struct statuses *s, struct run_fault *ret);
/* Whether both faults have the same node and the same cause. */
bool run_fault_is_same(const struct run_fault *a, const struct run_fault *b);
/* Decides whether the fault `now`, found after `seen`, replaces the confirmed one. A single answer may show a
 * node between two states, so the node and its state must be the same twice in a row, unless the DFM misses
 * the node, too. So must the cause, unless the node and its state are new: a cause that alternates does not
 * make the fault alternate. */
bool run_fault_confirms(const struct run_fault *confirmed, const struct run_fault *seen,
                        const struct run_fault *now);
/* Returns {"ok", "run", "state", "reason"}; unknown values are null. */
json_t *run_summary_to_json(const struct run_summary *r);
