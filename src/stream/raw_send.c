/* Sends the messages of a raw stream: UDP one by one or in super-packets, TCP, or one that comes back before
 * the next one leaves. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/util.h"
#include "net/tcp.h"
#include "raw.h"
#include "send_threads.h"
#include "sys/loop.h"

#define CONNECT_MS 5000
/* A call of send() ends soon after the stream is to end. */
#define SEND_MS 20
#define REPLY_NS (5 * NS_PER_S)
/* Largest payload of a super-packet over IPv4. */
#define SUPER_MAX_BYTES 65507u

int raw_send_init(struct send_threads *t)
{
        timing_init(&t->raw.round_trips);
        int size = (int)t->rule.payload_bytes;

        t->raw.batch = MAX(MIN(t->raw.batch, SUPER_MAX_BYTES / t->rule.payload_bytes), 1u);
        t->raw.message = calloc(t->raw.batch, t->rule.payload_bytes);
        if (!t->raw.message)
                return -ENOMEM;
        /* The kernel divides what a call of send() hands over. */
        if (t->raw.batch > 1 && setsockopt(t->endpoint->fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size) < 0)
                return -errno;
        return 0;
}

void raw_send_fini(struct send_threads *t)
{
        free(t->raw.message);
        if (t->raw.fd > 0)
                close(t->raw.fd);
        t->raw.message = NULL;
        t->raw.fd = 0;
}

int raw_send_connect(struct send_threads *t, const struct net_address *to, uint16_t port)
{
        const struct timeval wait = {.tv_usec = SEND_MS * 1000L};
        struct net_address at = *to;
        struct pollfd p = {.events = POLLOUT};
        int fd, off = 0, r;

        net_address_set_port(&at, port);
        fd = tcp_connect(NULL, &at, t->options->socket_buffer_bytes);
        if (fd < 0)
                return fd;
        t->raw.fd = p.fd = fd;
        r = poll(&p, 1, CONNECT_MS) == 1 ? tcp_connected(fd) : -ETIMEDOUT;
        /* As a program that only writes: the kernel joins small messages, and send() waits for room. */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof off);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
        if (r >= 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) < 0)
                r = -errno;
        return r;
}

static int send_tcp(struct send_threads *t, uint64_t *ret_bytes)
{
        struct raw_send *raw = &t->raw;

        while (raw->offset < t->rule.payload_bytes && !atomic_load_explicit(&t->stop, memory_order_relaxed)) {
                ssize_t n = send(raw->fd, raw->message + raw->offset, t->rule.payload_bytes - raw->offset,
                                 MSG_NOSIGNAL);

                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        return -errno;
                raw->offset += n > 0 ? (uint32_t)n : 0;
                *ret_bytes += n > 0 ? (uint64_t)n : 0;
        }
        if (raw->offset < t->rule.payload_bytes)
                return 0;
        raw->offset = 0;
        return 1;
}

static int send_udp(struct send_threads *t, uint64_t *ret_bytes)
{
        struct iovec message = {t->raw.message, t->rule.payload_bytes};
        const struct outgoing out = {.iov = &message, .n_iov = 1, .size_bytes = t->rule.payload_bytes};
        int taken = endpoint_send(t->endpoint, &out, 1);

        *ret_bytes = (uint64_t)MAX(taken, 0) * t->rule.payload_bytes;
        return taken;
}

/* A full queue, or an ICMP error of an earlier datagram. */
static bool is_passing(int error)
{
        return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ECONNREFUSED;
}

/* One call for n messages, and nothing else: no program that touches its data can be faster. */
static int send_super_packet(struct send_threads *t, uint32_t n, uint64_t *ret_bytes)
{
        struct endpoint_counts *c = &t->endpoint->counts;
        ssize_t bytes = send(t->endpoint->fd, t->raw.message, (size_t)n * t->rule.payload_bytes, 0);

        if (bytes < 0)
                return is_passing(errno) ? 0 : -errno;
        *ret_bytes = (uint64_t)bytes;
        c->sent += n;
        c->messages++;
        c->super_packets++;
        c->calls++;
        return (int)n;
}

/* Waits for the message that was sent at begin_ns. */
static int await_reply(struct send_threads *t, uint64_t begin_ns)
{
        struct pollfd p = {.fd = t->endpoint->fd, .events = POLLIN};
        struct datagram back;

        while (!atomic_load_explicit(&t->stop, memory_order_relaxed)) {
                int n = endpoint_receive(t->endpoint, &back, 1);

                if (n < 0)
                        return n;
                if (n == 1 && begin_ns < t->raw.measure.begin_ns)
                        return 0;
                if (n == 1) {
                        timing_add(&t->raw.round_trips, clock_now_ns() - begin_ns, 1);
                        return 0;
                }
                if (clock_now_ns() >= begin_ns + REPLY_NS)
                        return -ETIMEDOUT;
                (void)poll(&p, 1, SEND_MS);
        }
        return 0;
}

int raw_send_messages(struct send_threads *t, uint32_t n, uint64_t *ret_bytes)
{
        uint64_t begin_ns;
        int taken, r;

        if (t->raw.rule->tcp)
                return send_tcp(t, ret_bytes);
        if (t->raw.batch > 1)
                return send_super_packet(t, n, ret_bytes);
        begin_ns = clock_now_ns();
        taken = send_udp(t, ret_bytes);
        if (!t->raw.rule->echo)
                return taken;
        r = taken == 1 ? await_reply(t, begin_ns) : 0;
        return r < 0 ? r : taken;
}
