/* Translates a scenario's network keys for the layer net: addresses, datagram size, faults. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "conf/scenario.h"
#include "net/address.h"
#include "net/injected_faults.h"
#include "protocol/budget.h"

/* Address of a node's port. Errors are logged. */
int network_node_address(struct net_address *ret, const struct scenario_node *n, uint16_t port);
/* Where a ROS with a front-end receives or connects from; the port is 0. It is the node's own address, unless
 * its source names another one, or a front-end elsewhere is out of reach of a loopback address. Errors are
 * logged. */
int network_front_end_address(struct net_address *ret, const struct scenario_node *n);
/* Bytes of UDP payload in one packet. */
size_t network_datagram_bytes(const struct scenario *s);
/* Bytes of the trailer of each control message, if network.key-file is set; otherwise 0. */
uint32_t network_trailer_bytes(const struct scenario *s);
/* Bytes of the largest control message, without that trailer. */
size_t network_message_bytes(const struct scenario *s);
/* Bytes of the headers around a message, from Ethernet up. */
uint32_t network_header_bytes(const struct scenario *s);
/* Bytes that a port counts in addition: preamble, checksum and gap, as configured. A port counts them
 * whatever qos.rate is; a ROS's shaping adds them to automatic rates alone, because configured ones count
 * bytes as the kernel does (docs/shaping.md). */
uint32_t network_overhead_bytes(const struct scenario *s);
/* The share of each port that control messages may use. Unbounded without network.link-rate. */
struct budget_plan network_control_plan(const struct scenario *s);
/* Writes how the share follows from the scenario. */
void network_control_reason(const struct scenario *s, const struct budget_plan *p, char *text, size_t size);
/* -EINVAL: KeepAlive alone uses nearly all that the DFM may send into the port of an SFI, so events could not
 * be assigned; the error says what is possible. */
int network_check_control(const struct scenario *s, struct error *error);
/* Bound of all control messages into the port of a node, in bits/s; 0: none. */
uint64_t network_control_bound_bps(const struct scenario *s, enum node_role role);
/* Maximum rate of a ROS to all level-2 clients together, in bits/s with all headers; 0: nothing. */
uint64_t network_regions_rate_bps(const struct scenario *s);
/* Faults of socket number `which` of a node; each socket has its own seed. */
struct fault_config network_fault_config(const struct scenario *s, const struct scenario_node *self,
                                         unsigned which);

/* The addresses of all nodes. */
struct address_book {
        struct net_address dfm, *ros, *sfi;
        size_t n_ros, n_sfi;
};

/* Errors are logged; address_book_fini() is needed in any case. */
int address_book_init(struct address_book *b, const struct scenario *s);
void address_book_fini(struct address_book *b);
/* NULL: the scenario has no such node. */
const struct net_address *address_book_find(const struct address_book *b, enum node_role role,
                                            uint16_t index);
/* Whether `address` is that node's, whatever the port; false for an unknown node. */
bool address_book_is_host(const struct address_book *b, enum node_role role, uint16_t index,
                          const struct net_address *address);
/* Whether any ROS has this host. */
bool address_book_has_ros(const struct address_book *nodes, const struct net_address *from);
