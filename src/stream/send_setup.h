/* What a sender prepares before it connects: source, socket, size and spacing of packets. */
#pragma once

#include "send_threads.h"
#include "rules/setup.h"

/* Opens the source, and fills what it determines in the offer and in `threads`. Both log what is wrong, and
 * return the exit status. The caller releases source and endpoint in any case. */
int send_setup_source(const struct stream_send_config *c, struct stream_source **ret,
                      struct stream_offer *offer, struct send_threads *threads);
/* Opens the socket to a receiver, from the address that it knows (its port is not used; NULL: it will see the
 * one that the routes choose), and fills the rest. */
int send_setup_path(const struct stream_send_config *c, const struct net_address *local,
                    const struct net_address *to, struct endpoint **ret, struct stream_offer *offer,
                    struct send_threads *threads);
/* Connects the socket to another port of the receiver. Negative errno. */
int send_setup_aim(struct endpoint *e, const struct net_address *to, uint16_t port);
