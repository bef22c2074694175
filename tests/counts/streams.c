/* TCP sockets without a kernel, between the nodes and the test of one process: what is sent arrives at once,
 * as far as it fits into the receiver's buffer. Signals of a node come by a descriptor of the same kind. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "counted.h"
#include "base/util.h"

#define BUFFER_BYTES (256u << 10)
#define BACKLOG_MAX 64

enum stream_kind { STREAM_NEW, STREAM_LISTENER, STREAM_CONNECTED, STREAM_SIGNALS };

/* By descriptor. */
static struct stream {
        enum stream_kind kind;
        unsigned owner; /* its turn */
        struct sockaddr_in local, remote;
        int backlog[BACKLOG_MAX], n_backlog; /* connections that nobody accepted yet */
        int peer;                            /* -1: it has closed */
        bool is_reset;
        int signal; /* that waits; 0: none */
        uint32_t first, n;
        uint8_t bytes[]; /* BUFFER_BYTES that arrived, a ring */
} * streams[COUNTED_FDS];

ssize_t __real_read(int fd, void *to, size_t n);

static struct stream *find(int fd)
{
        return fd >= 0 && fd < COUNTED_FDS ? streams[fd] : NULL;
}

bool stream_exists(int fd)
{
        return find(fd);
}

uint32_t stream_waiting_bytes(int fd)
{
        return streams[fd]->n;
}

int stream_new(void)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert(fd >= 0 && fd < COUNTED_FDS && !streams[fd]);
        streams[fd] = calloc(1, sizeof *streams[fd] + BUFFER_BYTES);
        assert(streams[fd]);
        streams[fd]->owner = turns_self();
        streams[fd]->peer = -1;
        return fd;
}

/* A connection closed with unread bytes is reset, as by Linux. */
static void leave(struct stream *s)
{
        struct stream *peer = find(s->peer);

        if (!peer)
                return;
        peer->is_reset |= s->n > 0;
        peer->peer = -1;
}

void stream_closed(int fd)
{
        struct stream *s = find(fd);

        if (!s)
                return;
        for (int i = 0; i < s->n_backlog; i++) {
                stream_closed(s->backlog[i]);
                close(s->backlog[i]);
        }
        leave(s);
        free(s);
        streams[fd] = NULL;
}

uint32_t stream_ready(int fd)
{
        const struct stream *s = streams[fd], *peer = find(s->peer);

        switch (s->kind) {
        case STREAM_LISTENER:
                return s->n_backlog > 0 ? EPOLLIN : 0;
        case STREAM_SIGNALS:
                return s->signal ? EPOLLIN : 0;
        case STREAM_CONNECTED:
                return (s->n > 0 || !peer ? EPOLLIN : 0u) |
                       (!peer || peer->n < BUFFER_BYTES ? EPOLLOUT : 0u) | (peer ? 0u : EPOLLRDHUP) |
                       (s->is_reset ? EPOLLHUP | EPOLLERR : 0u);
        default:
                return 0;
        }
}

void stream_bind(int fd, const struct sockaddr_in *local)
{
        streams[fd]->local = *local;
}

struct sockaddr_in stream_local(int fd)
{
        return streams[fd]->local;
}

int __wrap_listen(int fd, int backlog)
{
        streams[fd]->kind = STREAM_LISTENER;
        return 0;
}

static struct stream *find_listener(const struct sockaddr_in *at)
{
        for (int fd = 0; fd < COUNTED_FDS; fd++) {
                struct stream *s = streams[fd];

                if (s && s->kind == STREAM_LISTENER && s->local.sin_port == at->sin_port &&
                    s->local.sin_addr.s_addr == at->sin_addr.s_addr && s->n_backlog < BACKLOG_MAX)
                        return s;
        }
        return NULL;
}

int stream_connect(int fd, const struct sockaddr_in *to)
{
        static uint16_t port = 50000;
        struct stream *s = streams[fd], *listener = find_listener(to), *other;

        if (!listener) {
                errno = ECONNREFUSED;
                return -1;
        }
        if (s->local.sin_family == 0)
                s->local = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        if (s->local.sin_port == 0)
                s->local.sin_port = htons(++port > 60000 ? port = 50000 : port);
        s->remote = *to;
        s->peer = stream_new();
        s->kind = STREAM_CONNECTED;
        other = streams[s->peer];
        other->kind = STREAM_CONNECTED;
        other->owner = listener->owner;
        other->peer = fd;
        other->local = *to;
        other->remote = s->local;
        listener->backlog[listener->n_backlog++] = s->peer;
        return 0;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
        struct stream *s = streams[fd];
        int accepted;

        if (s->n_backlog == 0) {
                errno = EAGAIN;
                return -1;
        }
        accepted = s->backlog[0];
        memmove(s->backlog, s->backlog + 1, (size_t)--s->n_backlog * sizeof s->backlog[0]);
        memcpy(address, &streams[accepted]->remote, sizeof streams[accepted]->remote);
        *size = sizeof streams[accepted]->remote;
        return accepted;
}

static uint32_t take(struct stream *s, uint8_t *to, size_t n)
{
        uint32_t k = (uint32_t)MIN(n, (size_t)s->n), before = MIN(k, BUFFER_BYTES - s->first);

        memcpy(to, s->bytes + s->first, before);
        memcpy(to + before, s->bytes, k - before);
        s->first = (s->first + k) % BUFFER_BYTES;
        s->n -= k;
        return k;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *h, int flags)
{
        struct stream *s = streams[fd];
        ssize_t n = 0;

        turns_count(CALL_RECVMSG);
        if (s->n == 0 && s->peer < 0 && !s->is_reset)
                return 0;
        if (s->n == 0) {
                errno = s->is_reset ? ECONNRESET : EAGAIN;
                return -1;
        }
        for (size_t i = 0; i < h->msg_iovlen; i++)
                n += take(s, h->msg_iov[i].iov_base, h->msg_iov[i].iov_len);
        return n;
}

static uint32_t append(struct stream *s, const uint8_t *from, size_t n)
{
        uint32_t k = (uint32_t)MIN(n, (size_t)(BUFFER_BYTES - s->n)), at = (s->first + s->n) % BUFFER_BYTES;
        uint32_t before = MIN(k, BUFFER_BYTES - at);

        memcpy(s->bytes + at, from, before);
        memcpy(s->bytes, from + before, k - before);
        s->n += k;
        return k;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *h, int flags)
{
        struct stream *s = streams[fd], *peer = find(s->peer);
        size_t sent = 0, wished = 0;

        turns_count(CALL_SENDMSG);
        if (!peer) {
                s->is_reset = true;
                errno = EPIPE;
                return -1;
        }
        for (size_t i = 0; i < h->msg_iovlen; i++) {
                wished += h->msg_iov[i].iov_len;
                sent += append(peer, h->msg_iov[i].iov_base, h->msg_iov[i].iov_len);
                if (sent < wished)
                        break;
        }
        if (sent > 0 || wished == 0)
                return (ssize_t)sent;
        errno = EAGAIN;
        return -1;
}

/* ---- Signals ---- */

int __wrap_signalfd(int fd, const sigset_t *set, int flags)
{
        fd = stream_new();
        streams[fd]->kind = STREAM_SIGNALS;
        return fd;
}

void streams_signal(unsigned turn, int number)
{
        for (int fd = 0; fd < COUNTED_FDS; fd++) {
                if (streams[fd] && streams[fd]->kind == STREAM_SIGNALS && streams[fd]->owner == turn)
                        streams[fd]->signal = number;
        }
}

ssize_t __wrap_read(int fd, void *to, size_t n)
{
        struct signalfd_siginfo info = {};
        struct stream *s = find(fd);

        if (!s)
                return __real_read(fd, to, n);
        assert(s->kind == STREAM_SIGNALS && n == sizeof info);
        if (s->signal == 0) {
                errno = EAGAIN;
                return -1;
        }
        info.ssi_signo = (uint32_t)s->signal;
        s->signal = 0;
        memcpy(to, &info, sizeof info);
        return (ssize_t)n;
}

int streams_of(unsigned turn, int *fds)
{
        int n = 0;

        for (int fd = 0; fd < COUNTED_FDS; fd++) {
                if (streams[fd] && streams[fd]->owner == turn)
                        fds[n++] = fd;
        }
        return n;
}
