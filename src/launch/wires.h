/* Links and switch ports with a rate and a finite buffer, like those of a real switch. */
#pragma once

#include <stdint.h>

struct scenario;
struct tc_socket;

/* Limits link i (port{i} in the namespace of `at_switch`) to the scenario's rate in both directions. Packets
 * from the node wait in a long queue that its socket notices (wire{i}, an ifb device). Packets to the node
 * wait in the port's buffer and are dropped when it is full. Logs errors. */
int wires_set_rate(struct tc_socket *at_switch, const struct scenario *s, unsigned i);
/* Counts the packets that the port dropped; the other direction drops none. Returns negative errno. */
int wires_read_drops(struct tc_socket *at_switch, unsigned i, uint64_t *ret_packets);
