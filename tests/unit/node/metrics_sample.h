/* What the metrics of a node of the small scenario are made of: all 0 after view_of(), which view_end() ends.
 */
#pragma once

#include "node_sample.h"

#include "node/metrics/openmetrics.h"

static struct metrics_state shared;
static struct metrics_view v;

static inline void view_of(const char *node)
{
        struct scenario *s = sample_scenario("udp");

        assert_int_equal(metrics_state_init(&shared, s->n_nodes), 0);
        v = (struct metrics_view){
                .version = "1.2.3",
                .scenario = s,
                .self = scenario_find(s, node),
                .state = NODE_RUNNING,
                .shared = &shared,
                .process = {.cpu_seconds = 1.5, .start_seconds = 1e9, -1, -1, 7, 1024},
        };
}

static inline int view_end(void **state)
{
        metrics_state_fini(&shared);
        free((void *)v.scenario);
        return 0;
}
