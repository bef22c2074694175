/* What the metrics of a node of the small scenario are made of; they are all 0. */
#pragma once

#include "node_sample.h"

#include "metrics/page.h"

static inline struct metrics_view sample_view(const char *node, struct metrics_state *shared)
{
        struct scenario *s = sample_scenario("udp");

        assert_int_equal(metrics_state_init(shared, s->n_nodes), 0);
        return (struct metrics_view){
                .version = "1.2.3",
                .scenario = s,
                .self = scenario_find(s, node),
                .state = NODE_RUNNING,
                .shared = shared,
                .process = {.cpu_seconds = 1.5, .start_seconds = 1e9, -1, -1, 7, 1024},
        };
}

static inline void sample_view_free(struct metrics_view *v, struct metrics_state *shared)
{
        metrics_state_fini(shared);
        free((void *)v->scenario);
}
