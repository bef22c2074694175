/* Shared by the files of the UDP endpoint. */
#pragma once

#include "net/endpoint.h"

#define UDP_RECEIVE_BATCH 8
#define UDP_BUFFER_BYTES 65536u
/* Super-packets per call; segments and gather entries of all of them. UDP_MAX_SEGMENTS is 64 up to Linux 6.8.
 */
#define UDP_SEND_BATCH 32
#define UDP_SEGMENTS_MAX 64u
#define UDP_SUPER_IOV_MAX 1024u
#define UDP_SEND_IOV_MAX 4096u
/* Largest payload of a super-packet, over IPv4 and IPv6. */
#define UDP_SUPER_MAX_BYTES 65487u

struct udp {
        struct endpoint endpoint;
        bool connected;
        bool segments; /* super-packets are sent */
        bool joins;    /* super-packets are received */
        uint32_t super_max_bytes;

        /* Of the last receive: messages [at, n) are not yet returned, the first one from `offset`. */
        uint8_t *buffers;
        int n_messages, at;
        uint32_t offset;
        struct net_address from[UDP_RECEIVE_BATCH];
        struct iovec receive_iov[UDP_RECEIVE_BATCH];
        struct mmsghdr messages[UDP_RECEIVE_BATCH];
        uint8_t receive_control[UDP_RECEIVE_BATCH][128] __attribute__((aligned(16)));
        uint32_t segment_bytes[UDP_RECEIVE_BATCH];
        uint64_t arrived_ns[UDP_RECEIVE_BATCH];
        uint32_t dropped_before[UDP_RECEIVE_BATCH];
        uint32_t last_overflow; /* the kernel's count of drops, which wraps */

        struct iovec send_iov[UDP_SEND_IOV_MAX];
        struct mmsghdr send_messages[UDP_SEND_BATCH];
        uint8_t send_control[UDP_SEND_BATCH][32] __attribute__((aligned(16)));
        uint32_t datagrams_of[UDP_SEND_BATCH];
};

void udp_prepare_receive(struct udp *u);
int udp_receive(struct endpoint *e, struct datagram *out, size_t n);
int udp_send(struct endpoint *e, const struct outgoing *out, size_t n);
void udp_counts(struct endpoint *e);
uint64_t udp_unsent(struct endpoint *e);
