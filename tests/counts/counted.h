/* Shared by the files of the counted run: nodes as threads of one process that take turns, virtual time, and
 * sockets without a kernel. The linker puts these functions in place of the system's, so the product's own
 * code runs in the same order, with the same batches, on every machine. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "evb/conf/scenario.h"

#define COUNTED_FDS 256
#define COUNTED_NODES (1 + EVB_ROS_MAX + EVB_SFI_MAX)

/* What the product asks of the kernel after its start. */
enum counted_call {
        CALL_EPOLL_CTL,
        CALL_EPOLL_WAIT,
        CALL_IOCTL,
        CALL_RECVMMSG,
        CALL_SENDMMSG,
        CALL_SOCKOPT,
        CALLS,
};

extern uint64_t counted_calls[ROLE_SFI + 1][CALLS];

void turns_init(unsigned n);
/* Waits for the node's first turn; turns_end() leaves all others to the rest. */
void turns_begin(unsigned node, enum node_role role);
void turns_end(void);
uint64_t turns_now_ns(void);
void turns_count(enum counted_call call);

bool sockets_are_ready(int fd);
/* Datagrams that did not fit into a socket. */
uint64_t sockets_dropped(void);
