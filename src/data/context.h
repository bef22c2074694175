/* What the data path knows of the node that it belongs to. The node owns everything named here and keeps it
 * until the data path is closed. */
#pragma once

#include "conf/scenario.h"
#include "data/address_book.h"
#include "data/stats.h"
#include "sys/loop.h"

struct data_context {
        const struct scenario *scenario;
        const struct scenario_node *self;
        const struct address_book *nodes;
        struct node_stats *stats;
        struct loop *loop;
};
