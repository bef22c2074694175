/* How a node opens the sockets that it is reached at: it waits for an address that is not there yet, as at
 * boot, and says in plain words what is wrong otherwise. */
#pragma once

#include "evb/net/endpoint.h"

/* From now on an address that is not there is an error at once: a check does not wait. */
void socket_open_at_once(void);
/* `what` names the purpose: "control messages". An error is logged and returned; -ECANCELED: a stop signal
 * came while the address was waited for. Stop signals are blocked before (loop_catch_signals()). Under `evb
 * run` nothing is waited for. */
int socket_open_udp(struct endpoint **ret, const struct udp_config *config, const char *what);
/* The descriptor of a listening TCP socket. */
int socket_open_listener(const struct net_address *local, uint64_t receive_buffer_bytes, const char *what);

/* Logs once for each `what` and direction that the kernel granted less than was asked for: as a warning where
 * the scenario sets the size (`configured`), else as information. */
enum socket_direction { SOCKET_RECEIVE, SOCKET_SEND };
void socket_note_buffer(enum socket_direction direction, const char *what, bool configured,
                        uint64_t asked_bytes, uint64_t granted_bytes);
