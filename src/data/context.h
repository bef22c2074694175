/* The parts of a node that its data path uses. The node owns all of them and keeps them until the data path
 * is closed. */
#pragma once

#include "conf/scenario.h"
#include "data/network.h"
#include "data/stats.h"
#include "sys/loop.h"

struct data_context {
        const struct scenario *scenario;
        const struct scenario_node *self;
        const struct address_book *nodes;
        struct node_stats *stats;
        struct loop *loop;
        bool check_only; /* open and close only; change nothing on this machine */
};
