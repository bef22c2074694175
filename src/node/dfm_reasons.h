/* Finds the reasons why a DFM's run fell short, or why the run accepted no trigger. */
#pragma once

#include "conf/scenario.h"
#include "core/dfm.h"
#include "data/obstacle.h"
#include "data/reasons.h"

/* The reason why the first trigger is delayed. It is recorded during the run, because all nodes have left
 * when the run ends. */
struct idle {
        char why[REASON_TEXT_MAX / 2];
};

/* Updates *i until the first trigger. Call it regularly, and before the run stops. `other_runs`: number of
 * datagrams with triggers of another run. */
void idle_explain(struct idle *i, const struct dfm *d, const struct scenario *s, uint64_t other_runs);
/* Describes the first cause that holds up the run. There is no text before and after the run. */
void dfm_explain(const struct dfm *d, const struct scenario *s, uint64_t now_ns, struct obstacle *ret);
/* Lists the ROSs that hold back triggers when the run ends, after `stalled_ns` without a trigger; "": no ROS
 * does. */
void stall_describe_end(const struct dfm *d, const struct scenario *s, uint64_t stalled_ns, char *text,
                        size_t size_bytes);
/* Adds the SFIs whose output failed. */
void dfm_failed_outputs(const struct dfm *d, const struct scenario *s, struct reasons *to);
void dfm_reasons(const struct dfm *d, const struct scenario *s, const struct idle *i, struct reasons *to);
