/* The command server on the DFM's machine. Standby nodes and one coordinator (`evb lab`) at a time connect to
 * it; it forwards the coordinator's commands to the nodes and their answers back. When the coordinator
 * disconnects, the server stops what the nodes do. */
#pragma once

#include "conf/scenario.h"
#include "sys/loop.h"

struct command_server;

/* Listens on the DFM's address, port network.order-port. Returns negative errno and logs it. The scenario is
 * borrowed. */
int command_server_new(struct command_server **ret, const struct scenario *s, struct loop *loop);
struct command_server *command_server_free(struct command_server *server);
/* Call after each wake-up: closes connections of peers that do not introduce themselves, and an idle
 * coordinator's. */
void command_server_turn(struct command_server *server, uint64_t now_ns);
/* Returns the number of connected standby nodes. */
unsigned command_server_nodes(const struct command_server *server);

/* Returns a digest of the scenario's nodes, ports and group, which all nodes must share. */
uint64_t command_server_digest(const struct scenario *s);
