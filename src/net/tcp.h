/* TCP connections: listen, connect, read through a staging buffer, write gather lists. Callers do the
 * framing. Nothing blocks; one thread. A negative errno ends the connection. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/random.h"
#include "net/address.h"

/* Opens a listening socket on `local`. Returns its descriptor, for EPOLLIN. */
int tcp_listen(const struct net_address *local, uint64_t receive_buffer_bytes);
/* Accepts the next connection. Returns its descriptor, or -EAGAIN. */
int tcp_accept(int listener, uint64_t receive_buffer_bytes, struct net_address *ret_peer);
/* Starts a connection from `local` (any port). Returns its descriptor, which becomes writable once the
 * connection is established or has failed. */
int tcp_connect(const struct net_address *local, const struct net_address *to, uint64_t send_buffer_bytes);
/* Sets the congestion control by its name (tcp(7), TCP_CONGESTION). -ENOENT: the kernel does not have it;
 * -EPERM: the user is not permitted to use it. */
int tcp_choose_congestion(int fd, const char *name);
/* Limits the rate at which the kernel sends, by spacing packets (socket(7), SO_MAX_PACING_RATE). The
 * kernel counts payload. */
void tcp_pace(int fd, uint64_t bytes_per_s);
/* Payload bytes of a full packet of an established connection (tcp(7), TCP_MAXSEG). */
uint32_t tcp_segment_bytes(int fd);
/* After EPOLLOUT: 0 if the connection is established, otherwise its error. */
int tcp_connected(int fd);
/* Ends a connection with -ETIMEDOUT if the peer does not answer for about 20 s, even if the connection is
 * idle or still being established: the peer may have died silently (tcp(7), TCP_USER_TIMEOUT). */
void tcp_notice_silence(int fd);
/* tcp_notice_silence() also ends a connection whose peer lives, but has not read for 20 s. This function does
 * not: it ends idle connections only. While data are to be sent, use tcp_is_silent(). */
void tcp_probe_idle(int fd);
/* Whether the peer's kernel has not answered for 20 s, although there were data to send. */
bool tcp_is_silent(int fd);
struct tcp_info;
bool tcp_info_is_silent(const struct tcp_info *info);
/* Number of received bytes that wait in the socket. */
uint64_t tcp_waiting_bytes(int fd);
/* The granted buffer size: half of what the kernel reports. */
uint64_t tcp_granted_bytes(int fd, bool send);

/* Growing pauses between attempts: 100 ms, doubled each time up to 5 s. Each pause is shortened at random by
 * up to a quarter, so that peers do not retry at the same time. */
struct tcp_backoff {
        uint32_t failures;
        struct random random;
};

void tcp_backoff_init(struct tcp_backoff *b, uint64_t seed);
uint64_t tcp_backoff_next_ns(struct tcp_backoff *b);
void tcp_backoff_reset(struct tcp_backoff *b);

/* Received bytes that are not yet consumed. */
struct tcp_reader {
        int fd; /* borrowed */
        uint8_t *staging;
        size_t size_bytes, begin, end;
        /* The last read of the socket returned all bytes that had arrived, so the caller need not read again
         * before the descriptor is ready. */
        bool drained;
};

int tcp_reader_init(struct tcp_reader *r, int fd, size_t staging_bytes); /* -ENOMEM */
void tcp_reader_fini(struct tcp_reader *r);
/* Receives available bytes into the free part of the staging buffer. Returns their number, 0 (none available,
 * or no space), or -EPIPE at the end of the stream. */
ssize_t tcp_reader_fill(struct tcp_reader *r);
static inline const uint8_t *tcp_reader_bytes(const struct tcp_reader *r, size_t *ret_n)
{
        *ret_n = r->end - r->begin;
        return r->staging + r->begin;
}
void tcp_reader_consume(struct tcp_reader *r, size_t n);
/* Reads up to n bytes, first from the staging buffer, then directly from the socket, and stages what follows.
 * Returns the number of read bytes, 0 (none available), or -EPIPE. */
ssize_t tcp_reader_read(struct tcp_reader *r, void *to, size_t n);
/* The same, into several places. `iov` has room for one more entry, and changes. */
ssize_t tcp_reader_readv(struct tcp_reader *r, struct iovec *iov, size_t n_iov);

/* Returns the number of bytes sent; -EAGAIN: none at the moment. */
ssize_t tcp_send(int fd, const struct iovec *iov, size_t n_iov);
