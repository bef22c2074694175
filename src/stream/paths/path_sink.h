/* A device that discards every packet. Private to src/stream/paths. */
#pragma once

/* Moves the calling thread into a network namespace of its own, which ends with the process, and makes a UDP
 * socket there that is connected to an address behind such a device. Returns the socket, or a negative errno
 * with the call that the kernel refused. Requires CAP_SYS_ADMIN. */
int path_sink_open(const char **ret_what);
