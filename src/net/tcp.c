/* TCP sockets and buffered reading. It does not interpret the bytes. */
#include "net/tcp.h"

#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/util.h"

#define BACKOFF_FIRST_NS (100 * NS_PER_MS)
#define BACKOFF_LONGEST_NS (5 * NS_PER_S)
/* Long enough to survive a few consecutive losses on a link that a measurement fills. */
#define SILENCE_MS 20000
#define PROBE_S 5
#define PROBES_MAX (SILENCE_MS / 1000 / PROBE_S - 1)
/* The kernel sends these within 20 s; a peer that lives answers the first ones. */
#define UNANSWERED_MIN 3

static void set_int(int fd, int level, int name, int value)
{
        (void)setsockopt(fd, level, name, &value, sizeof value);
}

static void set_buffer(int fd, int force_name, int name, uint64_t bytes)
{
        int value = (int)MIN(bytes, (uint64_t)INT_MAX / 2);

        if (bytes > 0 && setsockopt(fd, SOL_SOCKET, force_name, &value, sizeof value) < 0)
                set_int(fd, SOL_SOCKET, name, value);
}

void tcp_probe_idle(int fd)
{
        set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_S);
        set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_S);
        set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES_MAX);
}

void tcp_notice_silence(int fd)
{
        tcp_probe_idle(fd);
        set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENCE_MS);
}

bool tcp_info_is_silent(const struct tcp_info *info)
{
        return info->tcpi_last_ack_recv >= SILENCE_MS &&
               info->tcpi_retransmits + info->tcpi_probes >= UNANSWERED_MIN;
}

bool tcp_is_silent(int fd)
{
        struct tcp_info info = {};
        socklen_t size = sizeof info;

        return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && tcp_info_is_silent(&info);
}

uint64_t tcp_granted_bytes(int fd, bool send)
{
        socklen_t size = sizeof(int);
        int value = 0;

        getsockopt(fd, SOL_SOCKET, send ? SO_SNDBUF : SO_RCVBUF, &value, &size);
        return (uint64_t)value / 2;
}

uint64_t tcp_waiting_bytes(int fd)
{
        int n = 0;

        return ioctl(fd, FIONREAD, &n) < 0 ? 0 : (uint64_t)n;
}

int tcp_listen(const struct net_address *local, uint64_t receive_buffer_bytes)
{
        _cleanup_close_ int fd = socket(local->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, receive_buffer_bytes);
        if (bind(fd, &local->any, local->size_bytes) < 0 || listen(fd, SOMAXCONN) < 0)
                return -errno;
        return take_fd(&fd);
}

int tcp_accept(int listener, uint64_t receive_buffer_bytes, struct net_address *ret_peer)
{
        int fd;

        ret_peer->size_bytes = sizeof ret_peer->v6;
        do
                fd = accept4(listener, &ret_peer->any, &ret_peer->size_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
        if (fd < 0)
                return -errno;
        set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, receive_buffer_bytes);
        set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        return fd;
}

int tcp_connect(const struct net_address *local, const struct net_address *to, uint64_t send_buffer_bytes)
{
        _cleanup_close_ int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, send_buffer_bytes);
        set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
        if (local && bind(fd, &local->any, local->size_bytes) < 0)
                return -errno;
        if (connect(fd, &to->any, to->size_bytes) < 0 && errno != EINPROGRESS)
                return -errno;
        return take_fd(&fd);
}

void tcp_pace(int fd, uint64_t bytes_per_s)
{
        uint32_t rate = (uint32_t)MIN(MAX(bytes_per_s, UINT64_C(1)), (uint64_t)UINT32_MAX);

        (void)setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}

uint32_t tcp_segment_bytes(int fd)
{
        int bytes = 0;
        socklen_t size = sizeof bytes;

        return getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, &size) < 0 ? 0 : (uint32_t)bytes;
}

int tcp_choose_congestion(int fd, const char *name)
{
        return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) < 0 ? -errno : 0;
}

int tcp_connected(int fd)
{
        socklen_t size = sizeof(int);
        int error = 0;

        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
                return -errno;
        return -error;
}

void tcp_backoff_init(struct tcp_backoff *b, uint64_t seed)
{
        b->failures = 0;
        random_init(&b->random, seed);
}

uint64_t tcp_backoff_next_ns(struct tcp_backoff *b)
{
        uint64_t pause = MIN(BACKOFF_FIRST_NS << MIN(b->failures, 10u), BACKOFF_LONGEST_NS);

        b->failures++;
        return pause - random_below(&b->random, pause / 4);
}

void tcp_backoff_reset(struct tcp_backoff *b)
{
        b->failures = 0;
}

int tcp_reader_init(struct tcp_reader *r, int fd, size_t staging_bytes)
{
        *r = (struct tcp_reader){.fd = fd, .size_bytes = staging_bytes, .staging = malloc(staging_bytes)};
        return r->staging ? 0 : -ENOMEM;
}

void tcp_reader_fini(struct tcp_reader *r)
{
        if (!r)
                return;
        free(r->staging);
        *r = (struct tcp_reader){.fd = -1};
}

/* Receives up to `left` bytes into `iov`, and stages at most `staged_max` more. Returns the sum. */
static ssize_t receive(struct tcp_reader *r, struct iovec *iov, size_t n_iov, size_t left, size_t staged_max)
{
        struct msghdr h = {.msg_iov = iov, .msg_iovlen = n_iov + 1};
        ssize_t got;

        iov[n_iov] = (struct iovec){r->staging + r->end, MIN(staged_max, r->size_bytes - r->end)};
        do
                got = recvmsg(r->fd, &h, MSG_DONTWAIT);
        while (got < 0 && errno == EINTR);
        r->drained = got < (ssize_t)(left + iov[n_iov].iov_len);
        if (got == 0)
                return -EPIPE;
        if (got < 0)
                return errno == EAGAIN ? 0 : -errno;
        if ((size_t)got > left)
                r->end += (size_t)got - left;
        return got;
}

ssize_t tcp_reader_fill(struct tcp_reader *r)
{
        struct iovec iov;

        if (r->begin > 0 && r->end > r->size_bytes / 2) {
                memmove(r->staging, r->staging + r->begin, r->end - r->begin);
                r->end -= r->begin;
                r->begin = 0;
        }
        return r->end == r->size_bytes ? 0 : receive(r, &iov, 0, 0, r->size_bytes);
}

void tcp_reader_consume(struct tcp_reader *r, size_t n)
{
        r->begin += n;
        if (r->begin == r->end)
                r->begin = r->end = 0;
}

/* Fills the first bytes of `iov` from the staging buffer, and takes them out of it. */
static size_t read_staged(struct tcp_reader *r, struct iovec *iov, size_t n_iov)
{
        size_t read = 0;

        for (size_t i = 0; i < n_iov && r->begin < r->end; i++) {
                size_t n = MIN(iov[i].iov_len, r->end - r->begin);

                memcpy(iov[i].iov_base, r->staging + r->begin, n);
                iov[i] = (struct iovec){(uint8_t *)iov[i].iov_base + n, iov[i].iov_len - n};
                tcp_reader_consume(r, n);
                read += n;
        }
        return read;
}

ssize_t tcp_reader_readv(struct tcp_reader *r, struct iovec *iov, size_t n_iov)
{
        size_t staged = read_staged(r, iov, n_iov), left = 0;
        ssize_t got;

        for (size_t i = 0; i < n_iov; i++)
                left += iov[i].iov_len;
        if (left == 0)
                return (ssize_t)staged;
        /* What follows is usually there, too. After many bytes, only a head is worth its second copy. */
        got = receive(r, iov, n_iov, left, left < r->size_bytes / 8 ? r->size_bytes : r->size_bytes / 16);
        if (got < 0)
                return staged > 0 ? (ssize_t)staged : got;
        return (ssize_t)(staged + MIN((size_t)got, left));
}

ssize_t tcp_reader_read(struct tcp_reader *r, void *to, size_t n)
{
        struct iovec iov[2] = {{to, n}};

        return tcp_reader_readv(r, iov, 1);
}

ssize_t tcp_send(int fd, const struct iovec *iov, size_t n_iov)
{
        struct msghdr h = {.msg_iov = (struct iovec *)iov, .msg_iovlen = MIN(n_iov, (size_t)IOV_MAX)};
        ssize_t sent;

        do
                sent = sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        return sent < 0 ? -errno : sent;
}
