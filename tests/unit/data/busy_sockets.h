/* Counts the sockets of this process that the kernel polls (network.busy-poll). */
#pragma once

#include "../test.h"

#include <sys/socket.h>

#include "base/util.h"
#include "data/socket_open.h"

/* A time that no sysctl sets by default. */
#define BUSY_US 77
#define DESCRIPTORS 256

static inline unsigned busy_sockets(void)
{
        unsigned n = 0;

        for (int fd = 0; fd < DESCRIPTORS; fd++) {
                socklen_t size = sizeof(int);
                int value = 0;

                n += getsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &value, &size) == 0 && value == BUSY_US;
        }
        return n;
}

/* Skips the test if this kernel does not let the user raise the time. */
static inline void busy_sockets_begin(void)
{
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), value = BUSY_US;
        bool permitted = setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &value, sizeof value) == 0;

        close(fd);
        if (!permitted) {
                print_message("SO_BUSY_POLL: this kernel lets only CAP_NET_ADMIN raise it, or has it not\n");
                skip();
        }
        socket_set_busy_poll(BUSY_US * NS_PER_US);
}
