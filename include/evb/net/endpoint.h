/* Datagram endpoints behind a small table of functions: UDP sockets, and links within one process for tests.
 * They move batches: several datagrams to a system call, and several to a super-packet where the kernel cuts
 * and joins them itself (UDP_SEGMENT, UDP_GRO; udp(7)). One thread an endpoint; nothing is allocated after it
 * is made. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "evb/net/address.h"

/* One datagram received. Bytes and address stay until the next receive. */
struct datagram {
        const uint8_t *bytes;
        uint32_t size_bytes;
        const struct net_address *from;
};

/* One datagram to send, gathered from pieces. */
struct outgoing {
        const struct iovec *iov;
        uint32_t n_iov;
        uint32_t size_bytes;
        const struct net_address *to; /* NULL where the endpoint is connected */
};

struct endpoint_counts {
        uint64_t sent, received; /* datagrams */
        uint64_t send_failed;    /* datagrams that the kernel finally refused; not part of `sent` */
        uint64_t send_failed_bytes;
        int send_error;            /* errno of the last refusal */
        uint64_t dropped;          /* datagrams lost at this endpoint's full receive buffer */
        uint64_t super_packets;    /* sent, each of several datagrams */
        uint64_t calls;            /* system calls that moved something */
        bool segmentation_refused; /* the kernel does not cut super-packets here: datagrams go one by one */
};

struct endpoint;

struct endpoint_ops {
        int (*receive)(struct endpoint *e, struct datagram *out, size_t n);
        int (*send)(struct endpoint *e, const struct outgoing *out, size_t n);
        void (*counts)(struct endpoint *e);
        void (*free)(struct endpoint *e);
};

struct endpoint {
        const struct endpoint_ops *ops;
        int fd; /* to poll; owned */
        struct net_address local;
        uint64_t granted_receive_bytes,
                granted_send_bytes; /* what the kernel counts as usable: half of what it reports */
        struct endpoint_counts counts;
};

enum segmentation { SEGMENTATION_AUTO, SEGMENTATION_ON, SEGMENTATION_OFF };

struct udp_config {
        struct net_address local;          /* to bind; port 0: any */
        const struct net_address *connect; /* send to and take from this peer alone; or NULL */
        const struct net_address
                *group; /* bind to this multicast group instead, joined on the device of `local` */
        uint64_t receive_buffer_bytes, send_buffer_bytes; /* 0: the system's default */
        enum segmentation segmentation;
        uint32_t super_packet_max_bytes; /* 0: as large as the kernel takes */
        const char *device;              /* bind to it; NULL or "": not */
};

/* Negative errno. */
int endpoint_new_udp(struct endpoint **ret, const struct udp_config *config);
/* A link in this process: what is sent to `local` of one arrives at the other that has that address. At most
 * `capacity` datagrams of at most 64 KiB wait; more are dropped and counted. For tests, in one thread. */
int endpoint_new_inproc(struct endpoint **ret, const struct net_address *local, uint32_t capacity);
struct endpoint *endpoint_free(struct endpoint *e);

/* Up to n datagrams that are there now: their number, 0 (none), or negative errno. */
static inline int endpoint_receive(struct endpoint *e, struct datagram *out, size_t n)
{
        return e->ops->receive(e, out, n);
}

/* Sends in order. Returns how many datagrams the kernel took, refused ones (send_failed) included; fewer than
 * n: the send buffer is full, wait for EPOLLOUT. Nothing from the network ends an endpoint: an ICMP error
 * costs at most one datagram. A negative errno is a programming error. */
static inline int endpoint_send(struct endpoint *e, const struct outgoing *out, size_t n)
{
        return e->ops->send(e, out, n);
}

/* Brings `counts.dropped` up to date. */
static inline const struct endpoint_counts *endpoint_counts(struct endpoint *e)
{
        e->ops->counts(e);
        return &e->counts;
}
