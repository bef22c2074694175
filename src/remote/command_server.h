/* The DFM's side of orders: nodes that stand by are connected to it, and one `evb lab` at a time, whose
 * orders go to the nodes that they name and whose answers come back. It decides nothing; where that one goes
 * away, its orders end. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/sys/loop.h"

struct command_server;

/* Listens on the DFM's address, port network.order-port. Negative errno, logged. The scenario is borrowed. */
int command_server_new(struct command_server **ret, const struct scenario *s, struct loop *loop);
struct command_server *command_server_free(struct command_server *h);
/* Call after each wake-up: closes connections of peers that do not introduce themselves, and an idle `evb
 * lab`. */
void command_server_turn(struct command_server *h, uint64_t now_ns);
unsigned command_server_members(const struct command_server *h);

/* What nodes must have in common to find each other, as a number; of the scenario's nodes, ports and group.
 */
uint64_t command_server_common_ground(const struct scenario *s);
