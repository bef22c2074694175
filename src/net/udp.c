/* UDP endpoints. A system call moves several super-packets, which the kernel segments and joins; if the
 * kernel refuses to, it moves single datagrams. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "base/util.h"
#include "net/endpoint.h"

#define UDP_RECEIVE_BATCH 8
#define UDP_BUFFER_BYTES 65536u
/* Super-packets per call; maximum number of segments per super-packet and of gather entries. UDP_MAX_SEGMENTS
 * is 64 up to Linux 6.8. */
#define UDP_SEND_BATCH 32
#define UDP_SEGMENTS_MAX 64u
#define UDP_SUPER_IOV_MAX 1024u
#define UDP_SEND_IOV_MAX 4096u
/* Largest payload of a super-packet, over IPv4 and IPv6. */
#define UDP_SUPER_MAX_BYTES 65487u

struct udp {
        struct endpoint endpoint;
        struct net_address peer; /* of a connected socket */
        bool segments;           /* super-packets are sent */
        bool joins;              /* super-packets are received */
        uint32_t super_max_bytes;

        /* State of the last receive: messages [at, n_messages) are not yet returned, the first of them from
         * `offset`. */
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

static void udp_prepare_receive(struct udp *u)
{
        for (int i = 0; i < UDP_RECEIVE_BATCH; i++) {
                u->receive_iov[i] =
                        (struct iovec){u->buffers + (size_t)i * UDP_BUFFER_BYTES, UDP_BUFFER_BYTES};
                u->messages[i].msg_hdr = (struct msghdr){
                        .msg_name = &u->from[i].any,
                        .msg_iov = &u->receive_iov[i],
                        .msg_iovlen = 1,
                        .msg_control = u->receive_control[i],
                };
        }
}

/* A queued datagram may carry an older count than the last one recorded. Returns how many drops are new. */
static uint32_t record_overflow(struct udp *u, uint32_t overflow)
{
        uint32_t more = overflow - u->last_overflow;

        if ((int32_t)more <= 0)
                return 0;
        u->endpoint.counts.dropped += more;
        u->last_overflow = overflow;
        return more;
}

/* Reads the control messages: the segment size of a joined packet, the kernel's count of drops, and the time
 * of arrival. */
static void read_control(struct udp *u, int i)
{
        struct msghdr *h = &u->messages[i].msg_hdr;

        u->segment_bytes[i] = u->messages[i].msg_len;
        u->arrived_ns[i] = 0;
        u->dropped_before[i] = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
                if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
                        int segment;

                        memcpy(&segment, CMSG_DATA(c), sizeof segment);
                        if (segment > 0)
                                u->segment_bytes[i] = (uint32_t)segment;
                } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
                        uint32_t overflow;

                        memcpy(&overflow, CMSG_DATA(c), sizeof overflow);
                        u->dropped_before[i] = record_overflow(u, overflow);
                } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
                        struct timespec at;

                        memcpy(&at, CMSG_DATA(c), sizeof at);
                        u->arrived_ns[i] = (uint64_t)at.tv_sec * NS_PER_S + (uint64_t)at.tv_nsec;
                }
        }
}

/* Errors of this program, which would recur on every call. All others come from the network and are not
 * final. */
static bool is_final(int error)
{
        return error == EBADF || error == ENOTSOCK || error == EFAULT || error == EDESTADDRREQ;
}

/* A pending ICMP error of an earlier datagram replaces the result of a call (ip(7), "Error handling"; every
 * ICMP and ICMPv6 code has its errno). The second call succeeds. */
static int receive_messages(struct udp *u)
{
        int n = recvmmsg(u->endpoint.fd, u->messages, UDP_RECEIVE_BATCH, MSG_DONTWAIT, NULL);

        if (n < 0 && errno != EAGAIN && !is_final(errno))
                n = recvmmsg(u->endpoint.fd, u->messages, UDP_RECEIVE_BATCH, MSG_DONTWAIT, NULL);
        if (n >= 0)
                return n;
        return is_final(errno) ? -errno : -EAGAIN;
}

static int refill(struct udp *u)
{
        u->at = u->n_messages = 0;
        u->offset = 0;
        for (int i = 0; i < UDP_RECEIVE_BATCH; i++) {
                u->messages[i].msg_hdr.msg_namelen = sizeof(struct sockaddr_in6);
                u->messages[i].msg_hdr.msg_controllen = sizeof u->receive_control[i];
        }
        int n = receive_messages(u);

        if (n < 0)
                return n == -EAGAIN ? 0 : n;
        u->n_messages = n;
        u->endpoint.counts.calls++;
        for (int i = 0; i < n; i++) {
                u->from[i].size_bytes = u->messages[i].msg_hdr.msg_namelen;
                read_control(u, i);
        }
        return 0;
}

static int udp_receive(struct endpoint *e, struct datagram *out, size_t n)
{
        struct udp *u = (struct udp *)e;
        size_t given = 0;
        int r;

        if (u->at == u->n_messages && (r = refill(u)) < 0)
                return r;
        while (given < n && u->at < u->n_messages) {
                uint32_t all = u->messages[u->at].msg_len,
                         size = MIN(u->segment_bytes[u->at], all - u->offset);

                out[given++] = (struct datagram){
                        .bytes = (uint8_t *)u->receive_iov[u->at].iov_base + u->offset,
                        .size_bytes = size,
                        .from = &u->from[u->at],
                        .arrived_ns = u->arrived_ns[u->at],
                        .dropped_before = u->offset == 0 ? u->dropped_before[u->at] : 0,
                };
                u->offset += size;
                if (u->offset >= all) {
                        u->at++;
                        u->offset = 0;
                }
        }
        /* The kernel fills the batch if it can (recvmmsg(2)). */
        e->drained = u->at == u->n_messages && u->n_messages < UDP_RECEIVE_BATCH;
        e->counts.received += given;
        return (int)given;
}

static void set_control(struct msghdr *h, uint8_t *control, int level, int type, const void *value, size_t n)
{
        struct cmsghdr *c = (struct cmsghdr *)control;

        h->msg_control = control;
        h->msg_controllen = CMSG_SPACE(n);
        c->cmsg_level = level;
        c->cmsg_type = type;
        c->cmsg_len = CMSG_LEN(n);
        memcpy(CMSG_DATA(c), value, n);
}

static bool may_join(const struct udp *u, const struct outgoing *first, const struct outgoing *last,
                     const struct outgoing *next, uint32_t joined, uint32_t bytes, uint32_t n_iov)
{
        return u->segments && joined < UDP_SEGMENTS_MAX && next->to == first->to && next->size_bytes > 0 &&
               first->leave_ns == 0 && next->leave_ns == 0 && last->size_bytes == first->size_bytes &&
               next->size_bytes <= first->size_bytes && bytes + next->size_bytes <= u->super_max_bytes &&
               n_iov + next->n_iov <= UDP_SUPER_IOV_MAX;
}

/* Joins as many datagrams as possible into message `i`, with their gather lists at `iov`. Returns the number
 * of gather entries. */
static uint32_t make_message(struct udp *u, int i, struct iovec *iov, const struct outgoing *out, size_t n)
{
        struct msghdr *h = &u->send_messages[i].msg_hdr;
        uint32_t joined = 0, bytes = 0, n_iov = 0;
        uint16_t segment_bytes;

        do {
                memcpy(iov + n_iov, out[joined].iov, out[joined].n_iov * sizeof *iov);
                n_iov += out[joined].n_iov;
                bytes += out[joined].size_bytes;
                joined++;
        } while (joined < n && may_join(u, out, &out[joined - 1], &out[joined], joined, bytes, n_iov));

        *h = (struct msghdr){.msg_iov = iov, .msg_iovlen = n_iov};
        if (out->to) {
                h->msg_name = (void *)&out->to->any;
                h->msg_namelen = out->to->size_bytes;
        }
        segment_bytes = (uint16_t)out->size_bytes;
        if (joined > 1)
                set_control(h, u->send_control[i], SOL_UDP, UDP_SEGMENT, &segment_bytes,
                            sizeof segment_bytes);
        else if (out->leave_ns > 0)
                set_control(h, u->send_control[i], SOL_SOCKET, SCM_TXTIME, &out->leave_ns,
                            sizeof out->leave_ns);
        u->datagrams_of[i] = joined;
        return n_iov;
}

static int make_messages(struct udp *u, const struct outgoing *out, size_t n)
{
        uint32_t n_iov = 0;
        int messages = 0;

        for (size_t k = 0;
             k < n && messages < UDP_SEND_BATCH && n_iov + UDP_SUPER_IOV_MAX <= UDP_SEND_IOV_MAX;
             messages++) {
                n_iov += make_message(u, messages, u->send_iov + n_iov, out + k, n - k);
                k += u->datagrams_of[messages];
        }
        return messages;
}

/* A super-packet as a whole is never too large: EMSGSIZE means that a segment is larger than a packet (EINVAL
 * in older kernels). */
static bool is_segmentation_refusal(int error)
{
        return error == EINVAL || error == EMSGSIZE || error == EIO || error == EOPNOTSUPP ||
               error == ENOPROTOOPT;
}

/* The first message failed twice, so the error is its own: disables segmentation to send its datagrams one by
 * one, or counts them as failed. */
static void fail_first(struct udp *u, const struct outgoing *out, int error, uint32_t *taken)
{
        struct endpoint_counts *c = &u->endpoint.counts;

        if (u->datagrams_of[0] > 1 && is_segmentation_refusal(error)) {
                u->segments = false;
                c->segmentation_refused = true;
                return;
        }
        for (uint32_t i = 0; i < u->datagrams_of[0]; i++)
                c->send_failed_bytes += out[i].size_bytes;
        c->send_failed += u->datagrams_of[0];
        c->send_error = error;
        *taken += u->datagrams_of[0];
}

static void count_sent(struct udp *u, int messages, uint32_t *datagrams)
{
        u->endpoint.counts.calls++;
        u->endpoint.counts.messages += (uint64_t)messages;
        for (int i = 0; i < messages; i++) {
                *datagrams += u->datagrams_of[i];
                u->endpoint.counts.sent += u->datagrams_of[i];
                u->endpoint.counts.super_packets += u->datagrams_of[i] > 1;
        }
}

static int udp_send(struct endpoint *e, const struct outgoing *out, size_t n)
{
        struct udp *u = (struct udp *)e;
        uint32_t taken = 0;
        bool again = false;

        while (taken < n) {
                int messages = make_messages(u, out + taken, n - taken);
                int sent = sendmmsg(e->fd, u->send_messages, (unsigned)messages, MSG_DONTWAIT | MSG_NOSIGNAL);

                if (sent > 0) {
                        count_sent(u, sent, &taken);
                        again = false;
                        continue;
                }
                if (errno == EAGAIN)
                        break;
                if (is_final(errno))
                        return -errno;
                /* The first error may be a pending ICMP error of an earlier datagram. */
                if (again)
                        fail_first(u, out + taken, errno, &taken);
                again = !again;
        }
        return (int)taken;
}

/* The kernel's count of datagrams dropped by the full receive buffer, which wraps. */
static uint32_t read_dropped(const struct endpoint *e)
{
        uint32_t memory[9] = {}; /* SK_MEMINFO_VARS of linux/sock_diag.h; the last one is SK_MEMINFO_DROPS */
        socklen_t size = sizeof memory;

        if (getsockopt(e->fd, SOL_SOCKET, SO_MEMINFO, memory, &size) < 0 || size != sizeof memory)
                return 0;
        return memory[8];
}

static void udp_counts(struct endpoint *e)
{
        /* The count in control messages (SO_RXQ_OVFL) does not include drops after the last received
         * datagram. */
        (void)record_overflow((struct udp *)e, read_dropped(e));
}

static uint64_t udp_unsent(struct endpoint *e)
{
        int bytes;

        return ioctl(e->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (uint64_t)bytes : 0;
}

static uint32_t udp_mtu(const struct endpoint *e)
{
        const struct net_address *peer = &((const struct udp *)e)->peer;
        bool v6 = e->local.any.sa_family == AF_INET6;
        int bytes;
        socklen_t size = sizeof bytes;

        /* The socket has the route of its last connect(), without what routers have reported since. */
        if (connect(e->fd, &peer->any, peer->size_bytes) < 0 ||
            getsockopt(e->fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &bytes, &size) < 0)
                return 0;
        return bytes > 0 ? (uint32_t)bytes : 0;
}

static int set_int(int fd, int level, int name, int value)
{
        return setsockopt(fd, level, name, &value, sizeof value) < 0 ? -errno : 0;
}

/* Requests a buffer size, beyond the system's limit if permitted, and returns the granted size. The kernel
 * doubles the request for its own bookkeeping (socket(7)). */
static uint64_t set_buffer(int fd, int force_name, int name, uint64_t bytes)
{
        socklen_t size = sizeof(int);
        int value = (int)MIN(bytes, (uint64_t)INT32_MAX / 2);

        if (bytes > 0 && set_int(fd, SOL_SOCKET, force_name, value) < 0)
                set_int(fd, SOL_SOCKET, name, value);
        if (getsockopt(fd, SOL_SOCKET, name, &value, &size) < 0)
                return 0;
        return (uint64_t)value / 2;
}

static int join(int fd, const struct net_address *group, const struct net_address *local)
{
        unsigned device = net_address_device(local);

        if (group->any.sa_family == AF_INET6) {
                struct ipv6_mreq m = {.ipv6mr_multiaddr = group->v6.sin6_addr, .ipv6mr_interface = device};

                return setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof m) < 0 ? -errno : 0;
        }
        struct ip_mreqn m = {
                .imr_multiaddr = group->v4.sin_addr,
                .imr_address = local->v4.sin_addr,
                .imr_ifindex = (int)device,
        };
        return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m) < 0 ? -errno : 0;
}

/* Sends multicast from the device of the local address, and also to nodes on this machine. */
static void set_multicast_out(int fd, const struct net_address *local)
{
        int device = (int)net_address_device(local);

        if (local->any.sa_family == AF_INET6) {
                set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, device);
                return;
        }
        struct ip_mreqn m = {.imr_address = local->v4.sin_addr, .imr_ifindex = device};

        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof m);
}

static int set_up(struct udp *u, const struct udp_config *config)
{
        const struct net_address *bind_to = config->group ?: &config->local;
        int fd = u->endpoint.fd, r = 0;

        u->endpoint.granted_receive_bytes =
                set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, config->receive_buffer_bytes);
        u->endpoint.granted_send_bytes = set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, config->send_buffer_bytes);
        set_int(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
        if (config->device && config->device[0] &&
            setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, config->device, (socklen_t)strlen(config->device)) <
                    0 &&
            errno != EPERM)
                return -errno;
        if (config->timestamps)
                set_int(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
        if (config->group)
                r = set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        if (r < 0 || bind(fd, &bind_to->any, bind_to->size_bytes) < 0)
                return r < 0 ? r : -errno;
        if (config->group)
                return join(fd, config->group, &config->local);
        set_multicast_out(fd, &config->local);
        if (config->connect && connect(fd, &config->connect->any, config->connect->size_bytes) < 0)
                return -errno;
        u->endpoint.local.size_bytes = sizeof u->endpoint.local.v6;
        if (getsockname(fd, &u->endpoint.local.any, &u->endpoint.local.size_bytes) < 0)
                return -errno;
        if (config->segmentation != SEGMENTATION_OFF)
                u->joins = set_int(fd, SOL_UDP, UDP_GRO, 1) == 0;
        return 0;
}

static void udp_free(struct endpoint *e)
{
        struct udp *u = (struct udp *)e;

        if (e->fd >= 0)
                close(e->fd);
        free(u->buffers);
        free(u);
}

static const struct endpoint_ops udp_ops = {
        .receive = udp_receive,
        .send = udp_send,
        .counts = udp_counts,
        .unsent = udp_unsent,
        .mtu = udp_mtu,
        .free = udp_free,
};

int endpoint_new_udp(struct endpoint **ret, const struct udp_config *config)
{
        struct udp *u = calloc(1, sizeof *u);
        int r;

        if (!u)
                return -ENOMEM;
        u->endpoint.ops = &udp_ops;
        u->endpoint.local = config->local;
        if (config->connect)
                u->peer = *config->connect;
        u->segments = config->segmentation != SEGMENTATION_OFF;
        u->super_max_bytes = config->super_packet_max_bytes ?: UDP_SUPER_MAX_BYTES;
        u->super_max_bytes = MIN(u->super_max_bytes, UDP_SUPER_MAX_BYTES);
        u->buffers = malloc((size_t)UDP_RECEIVE_BATCH * UDP_BUFFER_BYTES);
        u->endpoint.fd = socket(config->local.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        r = !u->buffers ? -ENOMEM : u->endpoint.fd < 0 ? -errno : set_up(u, config);
        if (r < 0) {
                udp_free(&u->endpoint);
                return r;
        }
        udp_prepare_receive(u);
        *ret = &u->endpoint;
        return 0;
}

struct endpoint *endpoint_free(struct endpoint *e)
{
        if (e)
                e->ops->free(e);
        return NULL;
}
