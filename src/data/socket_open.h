/* Opens a node's sockets. While an address is missing, for example at boot, this waits for it; other failures
 * are explained. */
#pragma once

#include "net/endpoint.h"
#include "net/local_listener.h"

/* Makes a missing address an error instead of a reason to wait, for a check. */
void socket_open_at_once(void);
/* Makes the kernel poll sockets that are opened here for `poll_ns` (network.busy-poll; 0: no polling). */
void socket_set_busy_poll(uint64_t poll_ns);
/* Makes the kernel poll a socket that was opened elsewhere, or the sockets that a listening socket accepts.
 * If the kernel refuses this, it is logged once, and has no other effect. */
void socket_poll_busily(int fd);
/* Sets the DSCP of what a socket sends, and as its priority, which egress-qos-map of a VLAN device sees, the
 * first three bits, at most 6: 7 needs a privilege. Accepted connections inherit only the DSCP. 0: leaves
 * both as they are. If the kernel refuses this, it is logged once, and has no other effect. */
void socket_mark(int fd, uint8_t dscp);
/* `what` names the purpose: "control messages". Errors are logged. -ECANCELED: a stop signal arrived during
 * the wait, which requires an earlier call of loop_catch_signals(). Under `evb run`, these functions do not
 * wait. */
int socket_open_udp(struct endpoint **ret, const struct udp_config *config, const char *what);
/* Returns the descriptor of a listening TCP socket, or an error as above. */
int socket_open_listener(const struct net_address *local, uint64_t receive_buffer_bytes, const char *what);
/* Listens at a Unix socket, the value of `key`; NULL: only checks whether it could. Returns 0, or the error
 * of local_listener_node_error(), logged. */
int socket_open_local(struct local_listener *ret, const char *path, const char *key);

/* Logs, once per `what` and direction, that the kernel granted less than requested: a warning if the scenario
 * sets the size (`configured`), otherwise information. */
enum socket_direction { SOCKET_RECEIVE, SOCKET_SEND };
void socket_log_buffer(enum socket_direction direction, const char *what, bool configured,
                       uint64_t requested_bytes, uint64_t granted_bytes);
