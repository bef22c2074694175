/* Opens a node's sockets. While an address is missing, as at boot, it waits; it explains other failures. */
#pragma once

#include "net/endpoint.h"

/* From now on a missing address is an error, because a check does not wait. */
void socket_open_at_once(void);
/* From now on, the kernel polls sockets opened here for `poll_ns` (network.busy-poll; 0: no polling). */
void socket_set_busy_poll(uint64_t poll_ns);
/* The same for a socket that was opened elsewhere, or for those that a listening socket accepts. If the
 * kernel refuses, that is logged once and has no other effect. */
void socket_poll_busily(int fd);
/* `what` names the purpose: "control messages". Errors are logged; -ECANCELED: a stop signal arrived during
 * the wait, for which the caller must have called loop_catch_signals(). Under `evb run` nothing waits. */
int socket_open_udp(struct endpoint **ret, const struct udp_config *config, const char *what);
/* Returns the descriptor of a listening TCP socket, or an error as above. */
int socket_open_listener(const struct net_address *local, uint64_t receive_buffer_bytes, const char *what);

/* Logs, once per `what` and direction, that the kernel granted less than requested: a warning if the scenario
 * sets the size (`configured`), otherwise information. */
enum socket_direction { SOCKET_RECEIVE, SOCKET_SEND };
void socket_log_buffer(enum socket_direction direction, const char *what, bool configured,
                       uint64_t requested_bytes, uint64_t granted_bytes);
