/* The threads of a raw stream. A sender sends UDP messages singly or in super-packets, a TCP stream, or one
 * message at a time, the next one after the reply. A receiver counts messages, sends them back, or captures
 * packets on the wire. Both ends measure messages, bytes and processor time after the warm-up. */
#include "stream/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "base/util.h"
#include "net/tcp.h"
#include "receive_threads.h"
#include "send_threads.h"
#include "stream/stream.h"
#include "sys/loop.h"
#include "sys/thread.h"

void raw_measure_open(struct raw_measure *m, const struct stream_raw *raw, uint64_t now_ns)
{
        m->begin_ns = now_ns + raw->warm_up_ns;
        m->end_ns = raw->duration_ns > 0 ? m->begin_ns + raw->duration_ns : NEVER_NS;
}

void raw_measure_close(struct raw_measure *m, uint64_t now_ns)
{
        if (!atomic_load_explicit(&m->counts, memory_order_relaxed))
                return;
        m->closed_ns = MIN(now_ns, m->end_ns);
        m->used_ns = thread_used_ns() - m->used_ns;
        atomic_store_explicit(&m->counts, false, memory_order_relaxed);
}

void raw_measure_add(struct raw_measure *m, uint64_t now_ns, uint64_t packets, uint64_t bytes)
{
        if (now_ns >= m->end_ns)
                raw_measure_close(m, now_ns);
        if (now_ns < m->begin_ns || now_ns >= m->end_ns)
                return;
        if (!atomic_load_explicit(&m->counts, memory_order_relaxed)) {
                m->used_ns = thread_used_ns();
                atomic_store_explicit(&m->counts, true, memory_order_relaxed);
        }
        m->packets += packets;
        m->bytes += bytes;
}

/* Returns 0 if the thread has ended. */
static uint64_t read_used_ns(pthread_t thread)
{
        struct timespec t;
        clockid_t clock;

        if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &t) < 0)
                return 0;
        return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t raw_measure_sample(struct raw_measure *m, pthread_t thread, uint64_t now_ns)
{
        bool counts = atomic_load_explicit(&m->counts, memory_order_relaxed);
        uint64_t used_ns;

        if (now_ns < m->due_ns)
                return m->due_ns;
        used_ns = counts ? read_used_ns(thread) : 0;
        now_ns = clock_now_ns();
        if (used_ns > 0 && m->sampled_ns > 0 && m->n_samples < RAW_SAMPLES_MAX)
                m->percent[m->n_samples++] = (float)(100.0 * (double)(used_ns - m->sampled_used_ns) /
                                                     (double)(now_ns - m->sampled_ns));
        m->sampled_ns = used_ns > 0 ? now_ns : 0;
        m->sampled_used_ns = used_ns;
        m->due_ns = now_ns + RAW_SAMPLE_NS;
        return m->due_ns;
}

json_t *raw_measure_describe(const struct raw_measure *m)
{
        json_t *percent = json_array();

        for (unsigned i = 0; i < m->n_samples; i++)
                json_array_append_new(percent, json_real((double)m->percent[i]));
        return json_pack("{s:f, s:I, s:I, s:f, s:o}", "seconds",
                         m->closed_ns > m->begin_ns ? (double)(m->closed_ns - m->begin_ns) / 1e9 : 0.0,
                         "bytes", (json_int_t)m->bytes, "packets", (json_int_t)m->packets, "cpu_seconds",
                         (double)m->used_ns / 1e9, "cpu_percent", percent);
}

#define RECEIVE_MAX 64u
#define BUFFER_BYTES 262144u
#define WAIT_MS 20
/* At the end of a stream, UDP messages that do not arrive within this time are lost. For TCP, a shaped
 * connection may pause longer. */
#define SILENCE_NS (300 * NS_PER_MS)
#define TCP_SILENCE_NS (5 * NS_PER_S)
/* A receiver with a rate limit sleeps, and then catches up. It does not wait for each message: waking it
 * three times per message halves the rate of a multicast sender on the same machine, which then overloads no
 * receiver. */
#define LIMIT_PAUSE_NS 500000
#define WIRE_BUFFER_BYTES (32 << 20)

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
        const bool first = t->stamps.last_ns == 0;
        const uint64_t gap_ns = stamps_gap(&t->stamps, now_ns - t->last_ns, t->read_ns, arrived_ns);

        if (!first && !t->raw.watches)
                timing_add(&t->between, gap_ns, 1);
}

/* Number of messages that the limit permits now. */
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
        t->read_ns = clock_utc_ns();
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

/* Number of messages that the kernel has joined; 0: the size does not match. */
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

/* Receives a batch of messages as a super-packet, with one call. */
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

/* Returns 1 until the sender has connected. */
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

/* In a byte stream, only complete messages are counted. */
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

/* The sender has announced its end, or has disconnected, and the last look at the socket, which began after
 * the silence, found no more messages. */
static bool is_over(struct receive_threads *t)
{
        if (!atomic_load_explicit(&t->ending, memory_order_acquire))
                return false;
        t->raw.ending_ns = t->raw.ending_ns ?: clock_now_ns();
        if (t->raw.rule->tcp ? t->raw.at_end || t->bytes >= t->total_bytes : t->packets >= t->total_packets)
                return true;
        return t->asked_ns >=
               MAX(t->raw.ending_ns, t->last_new_ns) + (t->raw.rule->tcp ? TCP_SILENCE_NS : SILENCE_NS);
}

/* Counts the missing messages, and how many of them the socket dropped. */
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

        while (r >= 0 && !is_over(t) && !atomic_load_explicit(&t->aborted, memory_order_relaxed)) {
                t->asked_ns = clock_now_ns();
                r = t->raw.rule->tcp ? receive_tcp(t, buffer)
                    : joined         ? receive_super_packet(t, buffer)
                                     : receive_udp(t);
        }
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

/* False for the control connection's packets and for acknowledgements. The later pieces of a datagram have no
 * port; GRO's longest packets, no length. */
static bool carries_data(const struct receive_threads *t, const uint8_t *head, size_t bytes)
{
        const size_t at = ETH_HLEN + (head[ETH_HLEN] & 0xfu) * 4;
        struct tcphdr tcp; /* a UDP header has its port at the same place */
        struct iphdr ip;

        memcpy(&ip, head + ETH_HLEN, sizeof ip);
        memcpy(&tcp, head + at, sizeof tcp);
        if (ip.protocol != (t->raw.rule->tcp ? IPPROTO_TCP : IPPROTO_UDP))
                return false;
        if ((ntohs(ip.frag_off) & IP_OFFMASK) != 0)
                return true;
        if (ip.tot_len != 0)
                bytes = ETH_HLEN + ntohs(ip.tot_len);
        return ntohs(tcp.dest) == t->raw.port && (!t->raw.rule->tcp || bytes > at + tcp.doff * 4u);
}

/* Sets *ret_ns to the time at which the next packet reached the device, before any socket received it; 0:
 * none has arrived for a while. Returns whether it is one of the stream. */
static bool next_on_wire(const struct receive_threads *t, uint64_t *ret_ns)
{
        uint8_t head[ETH_HLEN + 60 + sizeof(struct tcphdr)] = {}, control[128] __attribute__((aligned(16)));
        struct iovec iov = {head, sizeof head};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(t->raw.wire, &m, MSG_TRUNC);

        *ret_ns = n < 0 ? 0 : stamp_ns(&m);
        return n > 0 && carries_data(t, head, (size_t)n);
}

/* Only the times at the device count, whenever this thread and the network thread get a processor: after the
 * network thread has ended, packets that had arrived are read. */
static void *watch(void *ctx)
{
        struct receive_threads *t = ctx;
        const struct stream_raw *rule = t->raw.rule;
        uint64_t at_ns, begin_ns = 0, last_ns = 0, closed_ns = 0;

        while (!atomic_load(&t->aborted)) {
                bool running = atomic_load(&t->running) > 0, ours;

                closed_ns = running ? 0 : closed_ns ?: clock_utc_ns();
                ours = next_on_wire(t, &at_ns);
                if (!running && (at_ns == 0 || at_ns > closed_ns))
                        break;
                if (!ours)
                        continue;
                begin_ns = begin_ns ?: at_ns + rule->warm_up_ns;
                if (at_ns < begin_ns || (rule->duration_ns > 0 && at_ns >= begin_ns + rule->duration_ns))
                        continue;
                if (last_ns > 0 && at_ns > last_ns)
                        timing_add(&t->between, at_ns - last_ns, 1);
                last_ns = at_ns;
        }
        return NULL;
}

/* Only the packets between these two hosts: others would fill the buffer. */
static int set_filter(int fd, const struct net_address *from, const struct net_address *to)
{
        struct sock_filter steps[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ETH_HLEN + offsetof(struct iphdr, saddr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(from->v4.sin_addr.s_addr), 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ETH_HLEN + offsetof(struct iphdr, daddr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(to->v4.sin_addr.s_addr), 0, 1),
                BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
                BPF_STMT(BPF_RET | BPF_K, 0),
        };
        const struct sock_fprog filter = {ARRAY_SIZE(steps), steps};

        return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) < 0 ? -errno : 0;
}

/* `to` is the address to which the data is sent. */
static int start_watcher(struct receive_threads *t, const struct net_address *to)
{
        /* The socket receives nothing before it is bound to a protocol. */
        const struct sockaddr_ll all = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
        const struct timeval wait = {.tv_usec = WAIT_MS * 1000L};
        int on = 1, buffer = WIRE_BUFFER_BYTES, r;

        if (t->from.any.sa_family != AF_INET)
                return -EAFNOSUPPORT;
        t->raw.wire = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
        if (t->raw.wire < 0 || setsockopt(t->raw.wire, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 ||
            setsockopt(t->raw.wire, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0)
                return -errno;
        if (setsockopt(t->raw.wire, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) < 0)
                (void)setsockopt(t->raw.wire, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
        r = set_filter(t->raw.wire, &t->from, to);
        if (r >= 0 && bind(t->raw.wire, (const struct sockaddr *)(const void *)&all, sizeof all) < 0)
                r = -errno;
        return r;
}

int raw_receive_open(struct receive_threads *t, const struct net_address *local, uint16_t *ret_port)
{
        struct net_address at = *local;
        socklen_t size = sizeof at.v6;

        t->raw.dropped_before = endpoint_counts(t->endpoint)->dropped;
        if (t->raw.watches) {
                int r = start_watcher(t, t->raw.rule->grouped ? &t->raw.rule->group : local);

                if (r < 0)
                        return r;
        }
        t->raw.port = *ret_port = net_address_port(&t->endpoint->local);
        if (!t->raw.rule->tcp)
                return 0;
        net_address_set_port(&at, 0);
        t->raw.listener = tcp_listen(&at, t->options->socket_buffer_bytes);
        if (t->raw.listener < 0)
                return t->raw.listener;
        if (getsockname(t->raw.listener, &at.any, &size) < 0)
                return -errno;
        t->raw.port = *ret_port = net_address_port(&at);
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

#define CONNECT_MS 5000
/* Maximum duration of a send() call, so that it ends soon after the stream must end. */
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
        /* The kernel divides the data of each send() into datagrams. */
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
        /* Like a program that only writes: the kernel combines small messages, and send() waits for room. */
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

/* The error is a full queue, or an ICMP error caused by an earlier datagram. */
static bool is_passing(int error)
{
        return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ECONNREFUSED;
}

/* Makes one call for n messages, and nothing else, so no program that reads or writes its data can be
 * faster. */
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

/* The first message begins the warm-up. */
static bool is_warming_up(const struct send_threads *t, uint64_t sent_ns)
{
        return t->raw.measure.end_ns == 0 ? t->raw.rule->warm_up_ns > 0 : sent_ns < t->raw.measure.begin_ns;
}

/* Waits for the reply to the message that was sent at begin_ns. */
static int await_reply(struct send_threads *t, uint64_t begin_ns)
{
        struct pollfd p = {.fd = t->endpoint->fd, .events = POLLIN};
        struct datagram back;

        while (!atomic_load_explicit(&t->stop, memory_order_relaxed)) {
                int n = endpoint_receive(t->endpoint, &back, 1);

                if (n < 0)
                        return n;
                if (n == 1 && is_warming_up(t, begin_ns))
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
