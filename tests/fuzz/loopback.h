/* Addresses of this process alone among 127.0.0.0/8, and connections between them. */
#pragma once

#include <assert.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* `host` is 1 to 63. */
static inline void loopback_address(char *text, size_t size_bytes, unsigned host)
{
        unsigned pid = (unsigned)getpid();

        snprintf(text, size_bytes, "127.%u.%u.%u", 64 + (pid >> 10) % 64, (pid >> 2) & 255,
                 (pid & 3) << 6 | host);
}

/* Closes at once, so that no closed connection keeps its port for a minute. */
static inline void loopback_close(int fd)
{
        const struct linger now = {.l_onoff = 1};

        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(fd);
}
