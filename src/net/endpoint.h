/* Datagram endpoints behind a small table of functions: UDP sockets, and in tests links within a process.
 * They move batches: several datagrams per system call, and several per super-packet, which the kernel
 * segments and joins (UDP_SEGMENT, UDP_GRO; udp(7)). One thread per endpoint; nothing is allocated after
 * creation. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "net/address.h"

/* A received datagram. Bytes and address are valid until the next receive. */
struct datagram {
        const uint8_t *bytes;
        uint32_t size_bytes;
        const struct net_address *from;
        uint64_t arrived_ns; /* CLOCK_REALTIME, by the kernel; 0: unknown */
        /* Dropped by the full buffer since the previous datagram; a super-packet counts once. */
        uint32_t dropped_before;
};

/* A datagram to send, gathered from an iovec. */
struct outgoing {
        const struct iovec *iov;
        uint32_t n_iov;
        uint32_t size_bytes;
        const struct net_address *to; /* NULL if the endpoint is connected */
        /* When the qdisc should send it, on the clock of the socket's SO_TXTIME (0: at once). */
        uint64_t leave_ns;
};

struct endpoint_counts {
        uint64_t sent, received; /* datagrams */
        uint64_t send_failed;    /* datagrams that the kernel refused to send; not part of `sent` */
        uint64_t send_failed_bytes;
        int send_error;    /* errno of the last refusal */
        uint64_t dropped;  /* dropped by this endpoint's full receive buffer; a super-packet counts once */
        uint64_t messages; /* messages sent; a super-packet counts once */
        uint64_t super_packets;    /* super-packets sent, each of several datagrams */
        uint64_t calls;            /* system calls that moved datagrams */
        bool segmentation_refused; /* the kernel refuses to segment here, so datagrams are sent one by one */
};

struct endpoint;

struct endpoint_ops {
        int (*receive)(struct endpoint *e, struct datagram *out, size_t n);
        int (*send)(struct endpoint *e, const struct outgoing *out, size_t n);
        void (*counts)(struct endpoint *e);
        uint64_t (*unsent)(struct endpoint *e);
        void (*free)(struct endpoint *e);
        uint32_t (*mtu)(const struct endpoint *e); /* NULL: unknown */
};

struct endpoint {
        const struct endpoint_ops *ops;
        int fd; /* for polling; owned */
        struct net_address local;
        /* Usable sizes: half of those that the kernel reports. */
        uint64_t granted_receive_bytes, granted_send_bytes;
        /* The last receive returned all datagrams that had arrived, so the caller need not ask again before
         * the descriptor is ready. False: unknown. */
        bool drained;
        struct endpoint_counts counts;
};

enum segmentation { SEGMENTATION_AUTO, SEGMENTATION_OFF };

struct udp_config {
        struct net_address local;          /* address to bind; port 0: any */
        const struct net_address *connect; /* the only peer, or NULL */
        /* Multicast group to bind to instead, joined on the device of `local`; or NULL. */
        const struct net_address *group;
        uint64_t receive_buffer_bytes, send_buffer_bytes; /* 0: the system's default */
        enum segmentation segmentation;
        uint32_t super_packet_max_bytes; /* 0: the kernel's maximum */
        const char *device;              /* device to bind to; NULL or "": none */
        bool timestamps;                 /* record when each datagram arrived */
};

/* Negative errno. */
int endpoint_new_udp(struct endpoint **ret, const struct udp_config *config);
struct endpoint *endpoint_free(struct endpoint *e);

/* Receives up to n waiting datagrams. Returns their number, 0 (none), or negative errno. */
static inline int endpoint_receive(struct endpoint *e, struct datagram *out, size_t n)
{
        return e->ops->receive(e, out, n);
}

/* Sends datagrams in order. Returns how many the kernel processed, including those it refused (send_failed);
 * fewer than n: the send buffer is full, wait for EPOLLOUT. No network error ends an endpoint: an ICMP error
 * costs at most one datagram. A negative errno is a programming error. */
static inline int endpoint_send(struct endpoint *e, const struct outgoing *out, size_t n)
{
        return e->ops->send(e, out, n);
}

/* Updates `counts.dropped`. */
static inline const struct endpoint_counts *endpoint_counts(struct endpoint *e)
{
        e->ops->counts(e);
        return &e->counts;
}

/* Memory of sent datagrams that the kernel still holds for this endpoint (udp(7), SIOCOUTQ), e.g. in a qdisc.
 * A super-packet counts until its last segment has left. */
static inline uint64_t endpoint_unsent_bytes(struct endpoint *e)
{
        return e->ops->unsent(e);
}

/* The largest IP packet that this machine sends to the peer of a connected endpoint as a whole, by device and
 * route (ip(7), IP_MTU); 0: unknown. */
static inline uint32_t endpoint_mtu_bytes(const struct endpoint *e)
{
        return e->ops->mtu ? e->ops->mtu(e) : 0;
}
