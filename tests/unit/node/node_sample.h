/* A node of the small scenario of data_sample.h; only its loop is open. */
#pragma once

#include "../data/data_sample.h"
#include "node/node_internal.h"

static inline void sample_node(struct node *n, const char *name, const char *transport)
{
        struct scenario *s = sample_scenario(transport);

        *n = (struct node){.scenario = s,
                           .self = scenario_find(s, name),
                           .run = 7,
                           .stats = calloc(1, sizeof *n->stats)};
        assert_non_null(n->self);
        assert_non_null(n->stats);
        assert_int_equal(loop_new(&n->loop), 0);
}

static inline void sample_node_free(struct node *n)
{
        control_close(&n->control);
        loop_free(n->loop);
        free(n->stats);
        free((void *)n->scenario);
}
