/* What the data path knows of the node that it belongs to. The node owns everything named here and keeps it
 * until the data path is closed. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/data/address_book.h"
#include "evb/data/stats.h"
#include "evb/sys/loop.h"

struct data_context {
        const struct scenario *scenario;
        const struct scenario_node *self;
        const struct address_book *nodes;
        struct node_stats *stats;
        struct loop *loop;
};
