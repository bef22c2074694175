/* The DFM's side of orders: nodes that stand by are connected to it, and one `evb lab` at a time, whose
 * orders go to the nodes that they name and whose answers come back. It decides nothing; where that one goes
 * away, its orders end. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/sys/loop.h"

struct hub;

/* Listens on the DFM's address, port network.order-port. Negative errno, logged. The scenario is borrowed. */
int hub_new(struct hub **ret, const struct scenario *s, struct loop *loop);
struct hub *hub_free(struct hub *h);
/* Call after each wake-up: closes connections of peers that do not introduce themselves, and an idle `evb
 * lab`. */
void hub_turn(struct hub *h, uint64_t now_ns);
unsigned hub_members(const struct hub *h);

/* What nodes must have in common to find each other, as a number; of the scenario's nodes, ports and group.
 */
uint64_t hub_common_ground(const struct scenario *s);
