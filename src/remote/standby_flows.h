/* The flows of a standby node: endpoint processes on its machine, and shaping of its device while they run.
 */
#pragma once

#include "base/error.h"
#include "conf/scenario.h"
#include "traffic/flow_group.h"
#include "traffic/flow_shaping.h"

struct standby_flows {
        const struct scenario *scenario;
        const struct scenario_node *self;
        struct flow_group group;
        struct tc_shaper *shaper;
        bool active, reported_ready, reported_quiet;
};

enum flows_change { FLOWS_UNCHANGED, FLOWS_READY, FLOWS_QUIET, FLOWS_ENDED };

/* Starts the endpoints of a command {"endpoints": [...], "shape": {...}}. They must belong to this node and
 * to addresses of the scenario. If it fails, nothing runs. */
int standby_flows_begin(struct standby_flows *f, const struct scenario *scenario,
                        const struct scenario_node *self, const json_t *command, struct error *error);
void standby_flows_set(struct standby_flows *f, int state);
/* Returns the next change. Call every few milliseconds while `active`, and repeat until FLOWS_UNCHANGED. */
enum flows_change standby_flows_turn(struct standby_flows *f);
/* After FLOWS_ENDED: fills the error if a process of the group failed, and returns 0 otherwise. */
int standby_flows_error(const struct standby_flows *f, struct error *error);
/* Adds the counters of endpoints and shaping to an answer, after FLOWS_ENDED. */
void standby_flows_add_result(const struct standby_flows *f, json_t *answer);
/* Kills the processes that still run and removes the shaping. */
void standby_flows_end(struct standby_flows *f);
