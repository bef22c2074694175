/* Translates a scenario's network keys for the layer net: addresses, datagram size, faults. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "conf/scenario.h"
#include "net/address.h"
#include "net/injected_faults.h"
#include "protocol/budget.h"

/* Size of the largest IP packet that evb sends. */
#define NETWORK_MTU_MAX_BYTES 65535

/* Address of a node's port. Errors are logged. */
int network_node_address(struct net_address *ret, const struct scenario_node *n, uint16_t port);
/* The address at which a ROS with a front-end receives, or from which it connects; the port is 0. This is the
 * node's own address, unless the source names another one. It is also another address if the node's own is a
 * loopback address, which a front-end on another machine cannot reach. Errors are logged. */
int network_front_end_address(struct net_address *ret, const struct scenario_node *n);
/* The group to which the trigger box sends; -ENOENT: to the DFM alone. */
int network_trigger_group(struct net_address *ret, const struct scenario *s);
/* Number of bytes of UDP payload in a packet of this size, and in one that each path must carry. */
size_t network_payload_bytes(const struct scenario *s, uint64_t mtu_bytes);
size_t network_datagram_bytes(const struct scenario *s);
/* Size of the largest datagram that a Probe may fill. */
size_t network_probe_bytes(const struct scenario *s);
/* Bytes of the trailer of each control message, if network.key-file is set; otherwise 0. */
uint32_t network_trailer_bytes(const struct scenario *s);
/* Size of the largest control message, without the trailer. */
size_t network_message_bytes(const struct scenario *s);
/* Bytes of the headers around a message, starting with Ethernet. */
uint32_t network_header_bytes(const struct scenario *s);
/* Number of bytes that a port counts for each packet in addition to the packet: preamble, checksum and gap,
 * as configured. A port counts them whatever qos.rate is. A ROS's shaping adds them only to automatic rates,
 * because configured rates count bytes as the kernel does (docs/shaping.md). */
uint32_t network_overhead_bytes(const struct scenario *s);
/* The share of each port that control messages may use. Without network.link-rate, there is no limit. */
struct budget_plan network_control_plan(const struct scenario *s);
/* Explains how the share follows from the scenario. */
void network_control_reason(const struct scenario *s, const struct budget_plan *p, char *text, size_t size);
/* -EINVAL: KeepAlive alone uses nearly all of the rate that the DFM may send into the port of an SFI, so
 * events could not be assigned; the error suggests possible values. */
int network_check_control(const struct scenario *s, struct error *error);
/* Limit of all control messages into the port of a node, in bits/s; 0: none. */
uint64_t network_control_bound_bps(const struct scenario *s, enum node_role role);
/* Maximum rate of a ROS to all level-2 clients together, in bits/s, including all headers; 0: not used. */
uint64_t network_regions_rate_bps(const struct scenario *s);
/* Faults of socket number `which` of a node; each socket has its own seed. */
struct fault_config network_fault_config(const struct scenario *s, const struct scenario_node *self,
                                         unsigned which);

/* The addresses of all nodes. */
struct address_book {
        struct net_address dfm, *ros, *sfi;
        size_t n_ros, n_sfi;
};

/* Errors are logged; call address_book_fini() even after a failure. */
int address_book_init(struct address_book *b, const struct scenario *s);
void address_book_fini(struct address_book *b);
/* NULL: the scenario does not contain the node. */
const struct net_address *address_book_find(const struct address_book *b, enum node_role role,
                                            uint16_t index);
/* Whether `address` belongs to this node, regardless of the port; false for an unknown node. */
bool address_book_is_host(const struct address_book *b, enum node_role role, uint16_t index,
                          const struct net_address *address);
/* Whether any ROS has this host address. */
bool address_book_has_ros(const struct address_book *nodes, const struct net_address *from);
