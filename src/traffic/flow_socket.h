/* Addresses and buffers of the sockets that flows use. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct sockaddr_in flow_address(const char *text, uint16_t port);
/* Sets a socket's buffer as large as the kernel grants. Returns false if that is less than requested. */
bool flow_set_buffer(int fd, bool send, uint32_t bytes);
/* Does the same, and logs a warning if the kernel grants less: the flow may then be slower than intended. */
void flow_need_buffer(int fd, bool send, uint32_t bytes);
/* Messages that the full buffer of a datagram socket dropped (socket(7), SO_MEMINFO); a super-packet counts
 * once. */
uint64_t flow_socket_drops(int fd);
