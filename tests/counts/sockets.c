/* UDP sockets without a kernel: what is sent arrives at once. Super-packets stay whole where the receiver
 * asked for that (UDP_GRO), as on Linux over loopback. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "counted.h"
#include "base/util.h"

#define QUEUE_MAX 4096
#define PACKET_MAX 65536
#define CUTS_MAX 8
/* net.core.rmem_default */
#define DEFAULT_BUFFER_BYTES 212992

struct packet {
        struct buffer *buffer;
        uint32_t n, segment; /* bytes of all, and of each datagram in it */
        struct sockaddr_in from;
};

/* By descriptor. */
static struct counted_socket {
        bool joins;
        unsigned owner; /* its turn */
        struct sockaddr_in local, peer;
        uint64_t buffer_bytes, queued_bytes;
        uint32_t dropped;
        struct packet queue[QUEUE_MAX];
        uint32_t first, n;
} * sockets[COUNTED_FDS];
static int sockets_end; /* no descriptor of a socket was ever this large */

static uint64_t dropped;

/* Ways on which all datagrams are lost. */
static struct cut {
        in_addr_t from; /* 0: any */
        unsigned to;
        bool group_only;
        uint32_t least_bytes;
        uint16_t port; /* 0: any */
} cuts[CUTS_MAX];
static size_t n_cuts;
static int device_mtu_bytes = 1500;

/* Buffers for packets, so that memory is allocated only while more of them are on their way than ever before.
 */
static struct buffer {
        struct buffer *next;
        uint8_t bytes[PACKET_MAX];
} * spare;

int __real_close(int fd);

uint64_t sockets_dropped(void)
{
        return dropped;
}

uint32_t sockets_ready(int fd)
{
        if (stream_exists(fd))
                return stream_ready(fd);
        /* The sockets take everything, so each is always ready to send. */
        return (sockets[fd] && sockets[fd]->n > 0 ? EPOLLIN : 0u) | EPOLLOUT;
}

int __wrap_socket(int family, int type, int protocol)
{
        int fd;

        assert(family == AF_INET);
        if ((type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM)
                return stream_new();
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert(fd >= 0 && fd < COUNTED_FDS);
        sockets[fd] = calloc(1, sizeof *sockets[fd]);
        assert(sockets[fd]);
        sockets_end = MAX(sockets_end, fd + 1);
        sockets[fd]->owner = turns_self();
        sockets[fd]->buffer_bytes = DEFAULT_BUFFER_BYTES;
        return fd;
}

static struct buffer *pop_buffer(void)
{
        struct buffer *b = spare ?: malloc(sizeof *b);

        assert(b);
        spare = spare ? spare->next : NULL;
        return b;
}

static void return_buffer(struct buffer *b)
{
        b->next = spare;
        spare = b;
}

static struct packet pop_first(struct counted_socket *s)
{
        struct packet p = s->queue[s->first];

        s->first = (s->first + 1) % QUEUE_MAX;
        s->n--;
        s->queued_bytes -= p.n;
        return p;
}

int __wrap_close(int fd)
{
        if (fd >= 0 && fd < COUNTED_FDS && sockets[fd]) {
                while (sockets[fd]->n > 0)
                        return_buffer(pop_first(sockets[fd]).buffer);
                free(sockets[fd]);
                sockets[fd] = NULL;
        }
        stream_closed(fd);
        turns_closed(fd);
        return __real_close(fd);
}

void sockets_close_of(unsigned node)
{
        int fds[COUNTED_FDS], n = streams_of(node, fds);

        for (int i = 0; i < n; i++) {
                if (stream_exists(fds[i]))
                        __wrap_close(fds[i]);
        }
        for (int fd = 0; fd < sockets_end; fd++) {
                if (sockets[fd] && sockets[fd]->owner == node)
                        __wrap_close(fd);
        }
}

static struct sockaddr_in address_of(const struct sockaddr *address, socklen_t size)
{
        struct sockaddr_in a = {};

        memcpy(&a, address, MIN((size_t)size, sizeof a));
        return a;
}

static bool is_bound(const struct sockaddr_in *a)
{
        for (int fd = 0; fd < sockets_end; fd++) {
                const struct counted_socket *s = sockets[fd];

                if (s && s->local.sin_port == a->sin_port && s->local.sin_addr.s_addr == a->sin_addr.s_addr)
                        return !IN_MULTICAST(ntohl(a->sin_addr.s_addr));
        }
        return false;
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size)
{
        struct sockaddr_in a = address_of(address, size);

        if (stream_exists(fd)) {
                stream_bind(fd, &a);
                return 0;
        }
        if (a.sin_port != 0 && is_bound(&a)) {
                errno = EADDRINUSE;
                return -1;
        }
        sockets[fd]->local = a;
        return 0;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
        struct sockaddr_in to = address_of(address, size);

        if (stream_exists(fd))
                return stream_connect(fd, &to);
        sockets[fd]->peer = to;
        if (sockets[fd]->local.sin_port == 0)
                sockets[fd]->local.sin_port = htons((uint16_t)(50000 + fd));
        return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size)
{
        struct sockaddr_in local = stream_exists(fd) ? stream_local(fd) : sockets[fd]->local;

        memcpy(address, &local, sizeof local);
        *size = sizeof local;
        return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
        int number = 0;

        turns_count(CALL_SOCKOPT);
        if (stream_exists(fd))
                return 0;
        memcpy(&number, value, MIN((size_t)size, sizeof number));
        if (level == SOL_UDP && name == UDP_GRO)
                sockets[fd]->joins = number;
        if (level == SOL_SOCKET && name == SO_RCVBUFFORCE)
                sockets[fd]->buffer_bytes = (uint64_t)number;
        return 0;
}

/* The sizes of buffers, which the kernel doubles, drops, and the MTU; all other figures are 0. */
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
        int number;

        turns_count(CALL_SOCKOPT);
        memset(value, 0, *size);
        if (stream_exists(fd))
                return 0;
        number = (int)(2 * sockets[fd]->buffer_bytes);
        if (level == SOL_SOCKET && name == SO_MEMINFO)
                memcpy((uint32_t *)value + SK_MEMINFO_DROPS, &sockets[fd]->dropped, sizeof(uint32_t));
        if (level == IPPROTO_IP && name == IP_MTU)
                memcpy(value, &device_mtu_bytes, sizeof device_mtu_bytes);
        if (level == SOL_SOCKET && name == SO_RCVBUF)
                memcpy(value, &number, sizeof number);
        return 0;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
        va_list arguments;

        assert(request == FIONREAD ? stream_exists(fd) || sockets[fd] : sockets[fd] && request == SIOCOUTQ);
        turns_count(CALL_IOCTL);
        va_start(arguments, request);
        *va_arg(arguments, int *) = request != FIONREAD ? 0
                                    : stream_exists(fd) ? (int)stream_waiting_bytes(fd)
                                                        : (int)sockets[fd]->queued_bytes;
        va_end(arguments);
        return 0;
}

static void put(struct counted_socket *s, const struct sockaddr_in *from, const uint8_t *bytes, uint32_t n,
                uint32_t segment)
{
        struct packet p = {.n = n, .segment = segment, .from = *from};

        if (s->n == QUEUE_MAX || s->queued_bytes + n > s->buffer_bytes) {
                dropped++;
                s->dropped++;
                return;
        }
        p.buffer = pop_buffer();
        memcpy(p.buffer->bytes, bytes, n);
        s->queue[(s->first + s->n++) % QUEUE_MAX] = p;
        s->queued_bytes += n;
}

void sockets_cut(in_addr_t from, unsigned to, bool group_only, uint32_t least_bytes, uint16_t port)
{
        assert(n_cuts < CUTS_MAX);
        cuts[n_cuts++] = (struct cut){from, to, group_only, least_bytes, port};
}

void sockets_set_mtu(int bytes)
{
        device_mtu_bytes = bytes;
}

void sockets_mend(void)
{
        n_cuts = 0;
        device_mtu_bytes = 1500;
}

/* `n`: bytes of each datagram. */
static bool is_cut(const struct sockaddr_in *from, const struct sockaddr_in *to,
                   const struct counted_socket *s, uint32_t n)
{
        for (size_t i = 0; i < n_cuts; i++) {
                if (cuts[i].to == s->owner && n >= cuts[i].least_bytes &&
                    (cuts[i].port == 0 || cuts[i].port == ntohs(to->sin_port)) &&
                    (cuts[i].from == 0 || cuts[i].from == from->sin_addr.s_addr) &&
                    (!cuts[i].group_only || IN_MULTICAST(ntohl(to->sin_addr.s_addr))))
                        return true;
        }
        return false;
}

static void deliver(const struct sockaddr_in *from, const struct sockaddr_in *to, const uint8_t *bytes,
                    uint32_t n, uint32_t segment)
{
        for (int fd = 0; fd < sockets_end; fd++) {
                struct counted_socket *s = sockets[fd];

                if (!s || s->local.sin_port != to->sin_port ||
                    s->local.sin_addr.s_addr != to->sin_addr.s_addr || is_cut(from, to, s, MIN(segment, n)))
                        continue;
                if (s->joins) {
                        put(s, from, bytes, n, segment);
                        continue;
                }
                for (uint32_t at = 0; at == 0 || at < n; at += segment)
                        put(s, from, bytes + at, MIN(segment, n - at), segment);
        }
}

void sockets_inject(const struct sockaddr_in *from, const struct sockaddr_in *to, const void *bytes,
                    uint32_t n)
{
        deliver(from, to, bytes, n, MAX(n, 1u));
}

static uint32_t segment_of(struct msghdr *h, uint32_t n)
{
        uint16_t segment;

        for (struct cmsghdr *c = h->msg_controllen > 0 ? CMSG_FIRSTHDR(h) : NULL; c; c = CMSG_NXTHDR(h, c)) {
                if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_SEGMENT)
                        continue;
                memcpy(&segment, CMSG_DATA(c), sizeof segment);
                return segment;
        }
        return MAX(n, 1u);
}

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags)
{
        static uint8_t bytes[PACKET_MAX];

        turns_count(CALL_SENDMMSG);
        for (unsigned i = 0; i < n; i++) {
                struct msghdr *h = &messages[i].msg_hdr;
                uint32_t size = 0;

                for (size_t k = 0; k < h->msg_iovlen; k++) {
                        assert(size + h->msg_iov[k].iov_len <= sizeof bytes);
                        memcpy(bytes + size, h->msg_iov[k].iov_base, h->msg_iov[k].iov_len);
                        size += (uint32_t)h->msg_iov[k].iov_len;
                }
                deliver(&sockets[fd]->local, h->msg_name ? h->msg_name : &sockets[fd]->peer, bytes, size,
                        segment_of(h, size));
                messages[i].msg_len = size;
        }
        return (int)n;
}

static void fill(struct mmsghdr *m, const struct packet *p, bool joins)
{
        struct msghdr *h = &m->msg_hdr;
        struct cmsghdr *c = h->msg_control;
        int segment = (int)p->segment;

        assert(p->n <= h->msg_iov->iov_len);
        memcpy(h->msg_iov->iov_base, p->buffer->bytes, p->n);
        memcpy(h->msg_name, &p->from, sizeof p->from);
        h->msg_namelen = sizeof p->from;
        m->msg_len = p->n;
        if (!joins || p->segment >= p->n) {
                h->msg_controllen = 0;
                return;
        }
        h->msg_controllen = CMSG_SPACE(sizeof segment);
        *c = (struct cmsghdr){CMSG_LEN(sizeof segment), SOL_UDP, UDP_GRO};
        memcpy(CMSG_DATA(c), &segment, sizeof segment);
}

int __wrap_recvmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout)
{
        struct counted_socket *s = sockets[fd];
        unsigned k = 0;

        turns_count(CALL_RECVMMSG);
        for (; k < n && s->n > 0; k++) {
                struct packet p = pop_first(s);

                fill(&messages[k], &p, s->joins);
                return_buffer(p.buffer);
        }
        if (k > 0)
                return (int)k;
        errno = EAGAIN;
        return -1;
}
