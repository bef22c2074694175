/* Stream connections: listened for, made, read through a staging buffer, written by gather lists. Framing is
 * for those above. Nothing blocks; one thread. Negative errno is the connection's end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "evb/base/random.h"
#include "evb/net/address.h"

/* A listening socket on `local`; its descriptor, to poll for EPOLLIN. */
int tcp_listen(const struct net_address *local, uint64_t receive_buffer_bytes);
/* The next connection that waits: its descriptor, or -EAGAIN. */
int tcp_accept(int listener, uint64_t receive_buffer_bytes, struct net_address *ret_peer);
/* Begins a connection from `local` (its port is any): the descriptor, writable once it stands or has failed.
 */
int tcp_connect(const struct net_address *local, const struct net_address *to, uint64_t send_buffer_bytes);
/* After EPOLLOUT: 0 where the connection stands, or why it does not. */
int tcp_connected(int fd);
/* The connection ends by itself, -ETIMEDOUT, where the other side has not been there for some 20 s: also one
 * that says nothing, and one that is only being made. Its machine may have gone without a word (tcp(7),
 * TCP_USER_TIMEOUT). */
void tcp_notice_silence(int fd);
/* What the kernel granted: half of what it reports. */
uint64_t tcp_granted_bytes(int fd, bool send);

/* Growing pauses before the next try: 100 ms doubled each time up to 5 s, each shortened by up to a quarter
 * at random so that many do not come at once. */
struct tcp_backoff {
        uint32_t failures;
        struct random random;
};

void tcp_backoff_init(struct tcp_backoff *b, uint64_t seed);
uint64_t tcp_backoff_next_ns(struct tcp_backoff *b);
void tcp_backoff_reset(struct tcp_backoff *b);

/* Bytes received and not yet understood. */
struct tcp_reader {
        int fd; /* borrowed */
        uint8_t *staging;
        size_t size_bytes, begin, end;
};

int tcp_reader_init(struct tcp_reader *r, int fd, size_t staging_bytes); /* -ENOMEM */
void tcp_reader_fini(struct tcp_reader *r);
/* Receives what is there into the free part of the staging buffer: bytes, 0 (none now, or no free part),
 * -EPIPE at the end of the stream. */
ssize_t tcp_reader_fill(struct tcp_reader *r);
static inline const uint8_t *tcp_reader_bytes(const struct tcp_reader *r, size_t *ret_n)
{
        *ret_n = r->end - r->begin;
        return r->staging + r->begin;
}
void tcp_reader_consume(struct tcp_reader *r, size_t n);
/* Up to n bytes to `to`: from the staging buffer first, then straight from the socket. Bytes, 0 (none now),
 * -EPIPE. */
ssize_t tcp_reader_read(struct tcp_reader *r, void *to, size_t n);

/* Bytes taken; -EAGAIN: none now. */
ssize_t tcp_send(int fd, const struct iovec *iov, size_t n_iov);
