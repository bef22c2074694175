/* Counts the messages of a raw stream, or sends them back; and watches its packets on the wire. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "base/util.h"
#include "net/tcp.h"
#include "raw.h"
#include "receive_threads.h"
#include "sys/loop.h"
#include "sys/thread.h"

#define RECEIVE_MAX 64u
#define BUFFER_BYTES 262144u
#define WAIT_MS 20
/* After the end of a stream, UDP messages that do not come within this time are lost; a shaped TCP connection
 * may pause longer. */
#define SILENCE_NS (300 * NS_PER_MS)
#define TCP_SILENCE_NS (5 * NS_PER_S)
/* A receiver with a limit sleeps, and then catches up. It does not wait for each message: waking it three
 * times per message halves the rate of a multicast sender on the same machine, which then overloads nobody.
 */
#define LIMIT_PAUSE_NS 500000
#define WIRE_BUFFER_BYTES (32 << 20)
/* Skips acknowledgements and ARP. */
#define WIRE_LEAST_BYTES 100

/* Counts n messages that arrived at now_ns. */
static void count(struct receive_threads *t, uint64_t now_ns, uint64_t n, uint64_t bytes)
{
        struct raw_receive *raw = &t->raw;

        if (t->first_ns == 0) {
                t->first_ns = now_ns;
                raw_measure_open(&raw->measure, raw->rule, now_ns);
        }
        t->last_ns = t->last_new_ns = now_ns;
        raw_measure_add(&raw->measure, now_ns, n, bytes);
        intervals_add(&t->intervals, now_ns - t->first_ns, n, bytes);
        atomic_fetch_add_explicit(&t->packets, n, memory_order_relaxed);
        atomic_fetch_add_explicit(&t->bytes, bytes, memory_order_relaxed);
}

static void add_gap(struct receive_threads *t, uint64_t now_ns, uint64_t arrived_ns)
{
        if (t->raw.watches)
                return;
        if (t->last_arrived_ns > 0)
                timing_add(&t->between, timing_between(now_ns - t->last_ns, t->last_arrived_ns, arrived_ns),
                           1);
        t->last_arrived_ns = arrived_ns;
}

/* The number of messages that may be received now. */
static size_t permitted(const struct receive_threads *t, uint64_t now_ns)
{
        uint64_t per_s = t->raw.packets_per_s, due;

        if (per_s == 0 || t->first_ns == 0)
                return RECEIVE_MAX;
        due = (uint64_t)((unsigned __int128)(now_ns - t->first_ns) * per_s / NS_PER_S) + 1;
        return (size_t)MIN(due - MIN(due, atomic_load_explicit(&t->packets, memory_order_relaxed)),
                           (uint64_t)RECEIVE_MAX);
}

static void wait_for_messages(const struct receive_threads *t)
{
        struct pollfd p = {.fd = t->endpoint->fd, .events = POLLIN};

        if (t->raw.packets_per_s > 0)
                nanosleep(&(struct timespec){.tv_nsec = LIMIT_PAUSE_NS}, NULL);
        else
                (void)poll(&p, 1, faults_are_holding(t->faults) ? 1 : WAIT_MS);
}

static bool is_ours(struct receive_threads *t, const struct datagram *d)
{
        if (!net_address_equal(d->from, &t->from) || d->size_bytes > t->rule.payload_bytes)
                t->foreign++;
        else if (d->size_bytes < t->rule.payload_bytes)
                t->short_ones++;
        else
                return true;
        return false;
}

static void send_back(struct receive_threads *t, const struct datagram *d)
{
        struct iovec message = {(void *)(uintptr_t)d->bytes, d->size_bytes};
        const struct outgoing out = {.iov = &message, .n_iov = 1, .size_bytes = d->size_bytes, .to = d->from};

        (void)endpoint_send(t->endpoint, &out, 1);
}

static int receive_udp(struct receive_threads *t)
{
        struct datagram in[RECEIVE_MAX];
        uint64_t now_ns = clock_now_ns();
        size_t most = permitted(t, now_ns);
        int n = most == 0   ? 0
                : t->faults ? faults_receive(t->faults, t->endpoint, in, most)
                            : endpoint_receive(t->endpoint, in, most);

        if (n <= 0) {
                if (n == 0)
                        wait_for_messages(t);
                return n;
        }
        now_ns = clock_now_ns();
        for (int i = 0; i < n; i++) {
                if (!is_ours(t, &in[i]))
                        continue;
                if (t->raw.rule->echo)
                        send_back(t, &in[i]);
                add_gap(t, now_ns, in[i].arrived_ns);
                count(t, now_ns, 1, in[i].size_bytes);
        }
        return n;
}

/* The number of messages that the kernel has joined; 0: another size. */
static uint64_t count_joined(const struct receive_threads *t, struct msghdr *m, size_t bytes)
{
        int size = (int)bytes;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO)
                        memcpy(&size, CMSG_DATA(c), sizeof size);
        }
        return size == (int)t->rule.payload_bytes && bytes % t->rule.payload_bytes == 0
                       ? bytes / t->rule.payload_bytes
                       : 0;
}

/* Messages of a batch come as a super-packet: one call for all. */
static int receive_super_packet(struct receive_threads *t, uint8_t *buffer)
{
        struct net_address from = {.size_bytes = sizeof from.v6};
        uint8_t control[128] __attribute__((aligned(16)));
        struct iovec iov = {buffer, BUFFER_BYTES};
        struct msghdr m = {.msg_name = &from.any,
                           .msg_namelen = sizeof from.v6,
                           .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
        ssize_t n = recvmsg(t->endpoint->fd, &m, 0);
        uint64_t messages;

        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
                return -errno;
        if (n < 0) {
                wait_for_messages(t);
                return 0;
        }
        from.size_bytes = m.msg_namelen;
        messages = net_address_equal(&from, &t->from) ? count_joined(t, &m, (size_t)n) : 0;
        t->foreign += messages == 0;
        t->endpoint->counts.calls++;
        if (messages > 0)
                count(t, clock_now_ns(), messages, (uint64_t)n);
        return 0;
}

/* Returns 1 while there is no connection. */
static int accept_sender(struct receive_threads *t)
{
        const struct timeval wait = {.tv_usec = WAIT_MS * 1000L};
        struct pollfd p = {.fd = t->raw.listener, .events = POLLIN};
        struct net_address from;
        int fd;

        (void)poll(&p, 1, WAIT_MS);
        fd = tcp_accept(t->raw.listener, t->options->socket_buffer_bytes, &from);
        if (fd < 0)
                return fd == -EAGAIN ? 1 : fd;
        if (!net_address_same_host(&from, &t->from) ||
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) < 0 ||
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0) {
                close(fd);
                return 1;
        }
        t->raw.fd = fd;
        return 0;
}

/* The messages of a byte stream are those that it has passed completely. */
static int receive_tcp(struct receive_threads *t, uint8_t *buffer)
{
        uint64_t before = t->bytes, size = t->rule.payload_bytes;
        ssize_t n;

        if (t->raw.fd <= 0)
                return MIN(accept_sender(t), 0);
        n = recv(t->raw.fd, buffer, BUFFER_BYTES, 0);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        t->raw.at_end = n == 0;
        if (n == 0)
                nanosleep(&(struct timespec){.tv_nsec = LIMIT_PAUSE_NS}, NULL);
        else
                count(t, clock_now_ns(), (before + (uint64_t)n) / size - before / size, (uint64_t)n);
        return 0;
}

/* The sender has announced its end, or is gone, and nothing more comes. */
static bool is_over(struct receive_threads *t)
{
        uint64_t now_ns = clock_now_ns();

        if (!atomic_load_explicit(&t->ending, memory_order_acquire))
                return false;
        t->raw.ending_ns = t->raw.ending_ns ?: now_ns;
        if (t->raw.rule->tcp ? t->raw.at_end || t->bytes >= t->total_bytes : t->packets >= t->total_packets)
                return true;
        return now_ns >=
               MAX(t->raw.ending_ns, t->last_new_ns) + (t->raw.rule->tcp ? TCP_SILENCE_NS : SILENCE_NS);
}

/* What is missing, and what the socket dropped of it. */
static void conclude(struct receive_threads *t)
{
        uint64_t dropped = endpoint_counts(t->endpoint)->dropped - t->raw.dropped_before;

        t->account.received = t->account.end = t->packets;
        if (t->total_packets != PACKETS_UNKNOWN)
                t->account.given_up = t->total_packets - MIN(t->total_packets, t->account.received);
        t->socket_lost = MIN(t->account.given_up, dropped * t->drop_packets);
        raw_measure_close(&t->raw.measure, t->last_ns);
}

int raw_receive_all(struct receive_threads *t)
{
        _cleanup_free_ uint8_t *buffer = malloc(BUFFER_BYTES);
        bool joined = t->drop_packets > 1 && !t->faults && t->raw.packets_per_s == 0;
        int r = buffer ? 0 : -ENOMEM;

        while (r >= 0 && !is_over(t) && !atomic_load_explicit(&t->aborted, memory_order_relaxed))
                r = t->raw.rule->tcp ? receive_tcp(t, buffer)
                    : joined         ? receive_super_packet(t, buffer)
                                     : receive_udp(t);
        conclude(t);
        return MIN(r, 0);
}

static uint64_t stamp_ns(struct msghdr *m)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                struct timespec at;

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS)
                        continue;
                memcpy(&at, CMSG_DATA(c), sizeof at);
                return (uint64_t)at.tv_sec * NS_PER_S + (uint64_t)at.tv_nsec;
        }
        return 0;
}

/* The time of the next packet of the sender at the device, before any socket receives it; 0: another one, or
 * none for a while. */
static uint64_t next_on_wire(const struct receive_threads *t)
{
        const struct in_addr *from = &t->from.v4.sin_addr;
        uint8_t head[64], control[128] __attribute__((aligned(16)));
        struct iovec iov = {head, sizeof head};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(t->raw.wire, &m, MSG_TRUNC);

        if (n < WIRE_LEAST_BYTES ||
            memcmp(head + ETH_HLEN + offsetof(struct iphdr, saddr), from, sizeof *from) != 0)
                return 0;
        return stamp_ns(&m);
}

static void *watch(void *ctx)
{
        struct receive_threads *t = ctx;
        uint64_t last_ns = 0;

        while (!atomic_load(&t->aborted) && atomic_load(&t->running) > 0) {
                uint64_t at_ns = next_on_wire(t);

                if (at_ns == 0 || !atomic_load_explicit(&t->raw.measure.counts, memory_order_relaxed))
                        continue;
                if (last_ns > 0 && at_ns > last_ns)
                        timing_add(&t->between, at_ns - last_ns, 1);
                last_ns = at_ns;
        }
        return NULL;
}

static int start_watcher(struct receive_threads *t)
{
        const struct timeval wait = {.tv_usec = WAIT_MS * 1000L};
        int on = 1, buffer = WIRE_BUFFER_BYTES;

        if (t->from.any.sa_family != AF_INET)
                return -EAFNOSUPPORT;
        t->raw.wire = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP));
        if (t->raw.wire < 0 || setsockopt(t->raw.wire, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 ||
            setsockopt(t->raw.wire, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0)
                return -errno;
        if (setsockopt(t->raw.wire, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) < 0)
                (void)setsockopt(t->raw.wire, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
        return 0;
}

int raw_receive_open(struct receive_threads *t, const struct net_address *local, uint16_t *ret_port)
{
        struct net_address at = *local;
        socklen_t size = sizeof at.v6;

        t->raw.dropped_before = endpoint_counts(t->endpoint)->dropped;
        if (t->raw.watches) {
                int r = start_watcher(t);

                if (r < 0)
                        return r;
        }
        *ret_port = net_address_port(&t->endpoint->local);
        if (!t->raw.rule->tcp)
                return 0;
        net_address_set_port(&at, 0);
        t->raw.listener = tcp_listen(&at, t->options->socket_buffer_bytes);
        if (t->raw.listener < 0)
                return t->raw.listener;
        if (getsockname(t->raw.listener, &at.any, &size) < 0)
                return -errno;
        *ret_port = net_address_port(&at);
        return 0;
}

int raw_receive_watch(struct receive_threads *t)
{
        int r = t->raw.watches ? thread_start(&t->raw.watcher, "evb-wire", NULL, 0, watch, t) : 0;

        t->raw.started_watcher = t->raw.watches && r >= 0;
        return r;
}

void raw_receive_join(struct receive_threads *t)
{
        if (t->raw.started_watcher)
                pthread_join(t->raw.watcher, NULL);
        t->raw.started_watcher = false;
}

void raw_receive_fini(struct receive_threads *t)
{
        int *const all[] = {&t->raw.listener, &t->raw.fd, &t->raw.wire};

        raw_receive_join(t);
        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                if (*all[i] > 0)
                        close(*all[i]);
                *all[i] = 0;
        }
}
