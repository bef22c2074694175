/* The state of run control, and its description as JSON. */
#pragma once

#include "core/dfm.h"
#include "node/run_states.h"
#include "../node_internal.h"

/* How a run ended. */
enum run_outcome { RUN_OUTCOME_NONE, RUN_OUTCOME_OK, RUN_OUTCOME_FELL_SHORT, RUN_OUTCOME_ERROR };

struct run_state_view {
        bool is_held;       /* the next run waits for an operator */
        bool ends_previous; /* an operator has commanded that the run of an earlier DFM end when its nodes
                               arrive */
        bool has_failed;    /* the last run ended in an error, and no operator has started another one */
        bool is_over;       /* no run follows in this process, which is about to end */
        /* The last run. */
        uint32_t run;
        enum run_outcome outcome;
        struct reasons reasons;
        bool is_counted;          /* the next two are known */
        struct dfm_counts counts; /* of the last run */
        uint64_t ended_utc_ns;
};

/* Returns the outcome of the node's run, which is over. */
enum run_outcome run_outcome_of(const struct node *n);
/* Returns "ok", "fell short", "error"; NULL: RUN_OUTCOME_NONE. */
const char *run_outcome_name(enum run_outcome outcome);
/* Whether this process may begin a run now, or after the current one. */
bool run_state_has_next(const struct node *n);
enum run_control_state run_state_of(const struct dfm *core, const struct run_state_view *v);
/* Records a run that an earlier DFM left, and that fell short, or failed if the cause is not "". */
void run_state_record_last(struct run_state_view *v, uint32_t run, const char *why, const char *cause);
/* Records a run that an earlier DFM reported. `fault_remains`: if the run ended in an error, no run begins
 * until an operator starts one. */
void run_state_restore_last(struct run_state_view *v, const struct run_list_outcome *last,
                            bool fault_remains);
/* Records the end of this node's run. */
void run_state_record_end(const struct node *n, struct run_state_view *v);
/* Both return text from malloc(); NULL: out of memory. */
char *run_state_json(const struct node *n, const struct run_state_view *v, uint64_t now_ns);
char *run_error_json(const char *text);
