/* Busy polling of one socket by the kernel (socket(7), SO_BUSY_POLL; Linux,
 * Documentation/networking/napi.rst). */
#pragma once

#include <stdint.h>

/* When the socket is empty, the kernel looks for packets in the queue of the network card, for `poll_ns` if
 * it may wait, instead of relying on an interrupt alone, and prefers that to interrupts
 * (SO_PREFER_BUSY_POLL). Sockets that a listening one accepts inherit it. A negative errno names in
 * `ret_refused` the option that the kernel refuses: -EPERM without CAP_NET_ADMIN, -ENOPROTOOPT if it does not
 * know the option. */
int busy_poll_set(int fd, uint64_t poll_ns, const char **ret_refused);
