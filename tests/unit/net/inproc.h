/* Endpoints linked within this process, for tests in one thread. */
#pragma once

#include "net/endpoint.h"

/* A datagram sent to the `local` address of an endpoint arrives there. At most `capacity` datagrams of at
 * most 64 KiB wait; more are dropped and counted. */
int endpoint_new_inproc(struct endpoint **ret, const struct net_address *local, uint32_t capacity);
