/* Nodes as threads of one process that take turns, virtual time, and sockets without a kernel, for the
 * counted run and for tests/nodes. The linker puts these functions in place of the system's, so the product's
 * own code runs in the same order, with the same batches, on every machine. */
#pragma once

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "conf/scenario.h"

#define COUNTED_FDS 1024
#define COUNTED_NODES (1 + EVB_ROS_MAX + EVB_SFI_MAX)

/* What the product asks of the kernel after its start. */
enum counted_call {
        CALL_EPOLL_CTL,
        CALL_EPOLL_WAIT,
        CALL_IOCTL,
        CALL_RECVMMSG,
        CALL_RECVMSG,
        CALL_SENDMMSG,
        CALL_SENDMSG,
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
/* No epoll instance watches the descriptor any longer, and if it is one, it watches none. */
void turns_closed(int fd);
/* The number of the calling thread's node. */
unsigned turns_self(void);

/* For a test that is a node among the others, by its own thread: begins anew, with time 1 s and this seed.
 * Nodes of before never run again. */
void turns_restart(uint64_t seed);
/* A number for another node. */
unsigned turns_add(void);
/* Leaves the turn to the others for so long. */
void turns_pass(uint64_t ns);
/* The node never runs again, as if it had been killed; its sockets close. */
void turns_kill(unsigned node);
/* The node does not run, and its sockets go on, as if it had been stopped by SIGSTOP. */
void turns_freeze(unsigned node, bool frozen);

/* Of enum EPOLL_EVENTS. */
uint32_t sockets_ready(int fd);
void sockets_close_of(unsigned node);
/* Datagrams that did not fit into a socket. */
uint64_t sockets_dropped(void);
/* From now on, datagrams from this address (0: any) of at least this size do not reach this node;
 * `group_only`: those to a multicast group; `port`: those to this port (0: any). */
void sockets_cut(in_addr_t from, unsigned to, bool group_only, uint32_t least_bytes, uint16_t port);
/* Of each node's device, instead of 1500. */
void sockets_set_mtu(int bytes);
void sockets_mend(void);
/* Sends a datagram that no socket sends. */
void sockets_inject(const struct sockaddr_in *from, const struct sockaddr_in *to, const void *bytes,
                    uint32_t n);

bool stream_exists(int fd);
uint32_t stream_waiting_bytes(int fd);
int stream_new(void);
void stream_closed(int fd);
void stream_bind(int fd, const struct sockaddr_in *local);
struct sockaddr_in stream_local(int fd);
int stream_connect(int fd, const struct sockaddr_in *to);
uint32_t stream_ready(int fd);
int streams_of(unsigned node, int *fds);
/* The node receives a signal. */
void streams_signal(unsigned node, int number);
