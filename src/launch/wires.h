/* Wires and switch ports with a rate and a finite buffer, as a real switch has them. */
#pragma once

#include <stdint.h>

struct scenario;
struct tc_socket;

/* Gives wire number i (port{i} in the namespace of `at_switch`) the scenario's rate both ways: what a node
 * sends waits in a long queue that its socket feels (wire{i}, an ifb device); what goes to it waits in the
 * port's buffer, and is dropped where that is full. Errors are logged. */
int wires_set_rate(struct tc_socket *at_switch, const struct scenario *s, unsigned i);
/* Dropped by the port to a node; on the wire from it there is nothing to drop. Negative errno. */
int wires_read_drops(struct tc_socket *at_switch, unsigned i, uint64_t *ret_packets);
