/* Links and switch ports with a rate and a finite buffer, like those of a real switch. */
#pragma once

#include <stdint.h>

struct exact_port;
struct scenario;
struct tc_socket;

struct wire_counts {
        uint64_t dropped_packets; /* that the port's buffer had no room for */
        /* That the testbed lost although neither link nor port drops them: queues that only delay were full,
         * or a processor's backlog was, or a device did not pass a packet on. */
        uint64_t lost_packets;
};

/* Makes the programs for one link and port; see exact_port_new() for errors. */
int wires_new_port(struct exact_port **ret, const struct scenario *s);
/* Limits link i (port{i} in the namespace of `at_switch`) to the scenario's rate in both directions. Packets
 * from the node wait in a long queue that its socket notices (wire{i}, an ifb device). Packets to the node
 * wait in the port's buffer and are dropped when it is full: `exact` decides this, or a TBF if it is NULL or
 * if the kernel refuses the programs with *ret_refusal (a negative errno, else 0). Logs other errors. */
int wires_set_rate(struct tc_socket *at_switch, const struct scenario *s, unsigned i,
                   const struct exact_port *exact, int *ret_refusal);
/* Counts since the link was made; `exact` as it was attached. Returns negative errno. */
int wires_read(struct tc_socket *at_switch, unsigned i, const struct exact_port *exact,
               struct wire_counts *ret);
