/* Sets socket buffers, beyond the machine's limits if the process has the privilege. */
#include "traffic/flow_socket.h"

#include <arpa/inet.h>
#include <limits.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/util.h"
#include "net/tcp.h"

struct sockaddr_in flow_address(const char *text, uint16_t port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

        inet_pton(AF_INET, text, &a.sin_addr);
        return a;
}

bool flow_set_buffer(int fd, bool send, uint32_t bytes)
{
        int value = (int)MIN(bytes, (uint32_t)INT_MAX / 2);

        /* Exceeding net.core.wmem_max and rmem_max requires CAP_NET_ADMIN. */
        if (setsockopt(fd, SOL_SOCKET, send ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, &value, sizeof value) < 0)
                (void)setsockopt(fd, SOL_SOCKET, send ? SO_SNDBUF : SO_RCVBUF, &value, sizeof value);
        return tcp_granted_bytes(fd, send) >= (uint64_t)value;
}

void flow_need_buffer(int fd, bool send, uint32_t bytes)
{
        if (!flow_set_buffer(fd, send, bytes))
                log_warning("lab: the kernel grants %llu bytes of socket buffer instead of %u; raise "
                            "net.core.%s or grant CAP_NET_ADMIN",
                            (unsigned long long)tcp_granted_bytes(fd, send), bytes,
                            send ? "wmem_max" : "rmem_max");
}

uint64_t flow_socket_drops(int fd)
{
        uint32_t memory[SK_MEMINFO_VARS] = {};
        socklen_t size = sizeof memory;

        return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size) < 0 ? 0 : memory[SK_MEMINFO_DROPS];
}
