/* Datagrams in super-packets, which the kernel segments and joins (UDP_SEGMENT, UDP_GRO; udp(7)): one call of
 * sendmsg() or recvmsg() for each, and nothing else. No program that touches its data can be faster. */
#include "flow_segments.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "traffic/flow_socket.h"

#define WAIT_MS 20
/* Largest payload of a super-packet over IPv4, and the most segments of one up to Linux 6.8. */
#define SUPER_PACKET_MAX_BYTES 65507u
#define SEGMENTS_MAX 64u

static int open_socket(const struct flow_endpoint *e, struct flow_shared *shared, bool sender)
{
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), value = sender ? (int)e->message_bytes : 1;

        if (fd < 0)
                flow_fail(shared);
        if (e->buffer_bytes > 0)
                flow_need_buffer(fd, sender, e->buffer_bytes);
        if (setsockopt(fd, SOL_SOCKET, sender ? SO_SNDTIMEO : SO_RCVTIMEO, &wait, sizeof wait) < 0 ||
            setsockopt(fd, SOL_UDP, sender ? UDP_SEGMENT : UDP_GRO, &value, sizeof value) < 0)
                flow_fail(shared);
        return fd;
}

/* Errors of the moment: a full queue, or an ICMP error of an earlier datagram. */
static bool is_passing(int error)
{
        return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ECONNREFUSED;
}

void flow_segments_send(const struct flow_endpoint *e, struct flow_shared *shared,
                        struct flow_counters *counters)
{
        uint32_t segments = MIN(SEGMENTS_MAX, SUPER_PACKET_MAX_BYTES / e->message_bytes);
        size_t bytes = (size_t)segments * e->message_bytes;
        _cleanup_free_ uint8_t *packet = calloc(1, bytes ?: 1);
        struct sockaddr_in from = flow_address(e->from, 0), to = flow_address(e->to, e->port);
        int fd = open_socket(e, shared, true);

        errno = packet ? EMSGSIZE : ENOMEM;
        if (!packet || segments == 0 || bind(fd, (void *)&from, sizeof from) < 0 ||
            connect(fd, (void *)&to, sizeof to) < 0)
                flow_fail(shared);
        flow_wait_for_start(shared);
        while (flow_state(shared) <= FLOW_GO) {
                ssize_t n = send(fd, packet, bytes, 0);

                if (n < 0 && !is_passing(errno))
                        flow_fail(shared);
                if (n <= 0)
                        continue;
                counters->messages += segments;
                counters->bytes += (uint64_t)n;
        }
        atomic_fetch_add(&shared->quiet, 1);
        close(fd);
}

/* The number of datagrams that the kernel has joined. */
static uint64_t joined(struct msghdr *m, ssize_t bytes)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                int segment;

                if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO)
                        continue;
                memcpy(&segment, CMSG_DATA(c), sizeof segment);
                return segment > 0 ? ((uint64_t)bytes + (uint64_t)segment - 1) / (uint64_t)segment : 1;
        }
        return 1;
}

void flow_segments_receive(const struct flow_endpoint *e, struct flow_shared *shared,
                           struct flow_counters *counters)
{
        struct sockaddr_in at = flow_address(e->at, e->port);
        _cleanup_free_ uint8_t *packet = malloc(SUPER_PACKET_MAX_BYTES);
        int fd = open_socket(e, shared, false);

        errno = ENOMEM;
        if (!packet || bind(fd, (void *)&at, sizeof at) < 0)
                flow_fail(shared);
        atomic_fetch_add(&shared->ready, 1);
        while (flow_state(shared) != FLOW_END) {
                uint8_t control[64] __attribute__((aligned(16)));
                struct iovec iov = {packet, SUPER_PACKET_MAX_BYTES};
                struct msghdr m = {.msg_iov = &iov,
                                   .msg_iovlen = 1,
                                   .msg_control = control,
                                   .msg_controllen = sizeof control};
                ssize_t n = recvmsg(fd, &m, 0);

                if (n < 0 && !is_passing(errno))
                        flow_fail(shared);
                if (n <= 0)
                        continue;
                counters->messages += joined(&m, n);
                counters->bytes += (uint64_t)n;
        }
        counters->socket_drops = flow_socket_drops(fd);
        close(fd);
}
