/* Endpoint processes: sends, receives or watches one flow, and counts, until the shared state is FLOW_END.
 * Every wait is short, so that each process notices a new state. */
#include "traffic/flow_process.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"
#include "traffic/flow_socket.h"
#include "flow_echo.h"
#include "flow_segments.h"

#define RECEIVE_BYTES 262144u
#define WAIT_MS 20
#define RECEIVE_PAUSE_NS 500000
#define WATCH_BUFFER_BYTES (32 << 20)
/* Skips acknowledgements and ARP. */
#define WATCH_LEAST_BYTES 100

static int open_socket(const struct flow_endpoint *e, struct flow_shared *shared, bool sender)
{
        int fd = socket(AF_INET, (e->kind == FLOW_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0), on = 1;
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};

        if (fd < 0)
                flow_fail(shared);
        if (e->buffer_bytes > 0)
                flow_need_buffer(fd, sender, e->buffer_bytes);
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        (void)setsockopt(fd, SOL_SOCKET, sender ? SO_SNDTIMEO : SO_RCVTIMEO, &wait, sizeof wait);
        return fd;
}

static int connect_sender(const struct flow_endpoint *e, struct flow_shared *shared)
{
        struct sockaddr_in from = flow_address(e->from, 0), to = flow_address(e->to, e->port);
        int fd = open_socket(e, shared, true);

        if (e->kind == FLOW_MULTICAST &&
            setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from.sin_addr, sizeof from.sin_addr) < 0)
                flow_fail(shared);
        if (bind(fd, (void *)&from, sizeof from) < 0)
                flow_fail(shared);
        /* A TCP receiver may start to listen a moment later. */
        for (int i = 0; connect(fd, (void *)&to, sizeof to) < 0; i++) {
                if (i == 500)
                        flow_fail(shared);
                nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
        return fd;
}

/* Waits at most 20 ms until the next message at this rate is due. Returns false if it is not due yet. */
static bool pace(uint64_t begin_ns, uint64_t done, uint64_t per_s)
{
        uint64_t due_ns = begin_ns + (uint64_t)((unsigned __int128)done * NS_PER_S / per_s),
                 now_ns = clock_now_ns();

        if (due_ns > now_ns + 50 * NS_PER_US)
                nanosleep(&(struct timespec){.tv_nsec = (long)MIN(due_ns - now_ns - 50 * NS_PER_US,
                                                                  20 * NS_PER_MS)},
                          NULL);
        while (clock_now_ns() < due_ns && clock_now_ns() - now_ns < 20 * NS_PER_MS)
                ;
        return clock_now_ns() >= due_ns;
}

static void pause_receiver(void)
{
        nanosleep(&(struct timespec){.tv_nsec = RECEIVE_PAUSE_NS}, NULL);
}

/* Whether a receiver of limited rate may take another message. It sleeps and then catches up, rather than
 * spin on a processor that the sender needs; the socket buffer holds some 5 ms of such small messages. Nor
 * does it block in recv(): each message would wake it, and three wake-ups per message halve the rate of a
 * multicast sender, which then never overloads its receivers. */
static bool may_receive(uint64_t begin_ns, uint64_t done, uint64_t per_s)
{
        uint64_t due_ns = begin_ns + (uint64_t)((unsigned __int128)done * NS_PER_S / per_s);

        if (clock_now_ns() >= due_ns)
                return true;
        pause_receiver();
        return false;
}

static void send_on(const struct flow_endpoint *e, struct flow_shared *shared, struct flow_counters *counters)
{
        uint8_t *message = calloc(1, MAX(e->message_bytes, 1u));
        uint64_t begin_ns, messages = 0;
        int fd = connect_sender(e, shared);

        flow_wait_for_start(shared);
        begin_ns = clock_now_ns();
        while (message && flow_state(shared) <= FLOW_GO) {
                size_t sent = 0;

                if (e->messages_per_s > 0 && !pace(begin_ns, messages, e->messages_per_s))
                        continue;
                while (sent < e->message_bytes && flow_state(shared) <= FLOW_GO) {
                        ssize_t n = send(fd, message + sent, e->message_bytes - sent, 0);

                        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS &&
                            errno != ECONNREFUSED)
                                flow_fail(shared);
                        sent += n > 0 ? (size_t)n : 0;
                }
                messages++;
                if (flow_state(shared) != FLOW_WARM) {
                        counters->messages += sent == e->message_bytes;
                        counters->bytes += sent;
                }
        }
        atomic_fetch_add(&shared->quiet, 1);
        close(fd);
        free(message);
}

static void listen_at(const struct flow_endpoint *e, struct flow_shared *shared, int fd)
{
        struct sockaddr_in to = flow_address(e->to, e->port);

        if (bind(fd, (void *)&to, sizeof to) < 0)
                flow_fail(shared);
        if (e->kind == FLOW_MULTICAST) {
                struct ip_mreqn group = {.imr_multiaddr = to.sin_addr,
                                         .imr_address = flow_address(e->at, 0).sin_addr};

                if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) < 0)
                        flow_fail(shared);
        }
        if (e->kind == FLOW_TCP && listen(fd, 1) < 0)
                flow_fail(shared);
}

static int accept_one(const struct flow_shared *shared, int fd)
{
        while (flow_state(shared) != FLOW_END) {
                struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

                if (poll(&poll_fd, 1, WAIT_MS) == 1)
                        return accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        }
        return -1;
}

static void receive_on(const struct flow_endpoint *e, struct flow_shared *shared,
                       struct flow_counters *counters)
{
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        uint8_t *buffer = malloc(RECEIVE_BYTES);
        uint64_t begin_ns = 0, messages = 0;
        int fd = open_socket(e, shared, false);

        listen_at(e, shared, fd);
        atomic_fetch_add(&shared->ready, 1);
        if (e->kind == FLOW_TCP) {
                fd = accept_one(shared, fd);
                if (fd < 0)
                        return;
                (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        }
        while (buffer && flow_state(shared) != FLOW_END) {
                ssize_t n;

                if (e->receiver_packets_per_s > 0 && begin_ns > 0 &&
                    !may_receive(begin_ns, messages, e->receiver_packets_per_s))
                        continue;
                n = recv(fd, buffer, RECEIVE_BYTES, e->receiver_packets_per_s > 0 ? MSG_DONTWAIT : 0);
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        flow_fail(shared);
                if (n < 0 && e->receiver_packets_per_s > 0)
                        pause_receiver();
                if (n == 0 && e->kind == FLOW_TCP)
                        break;
                if (n <= 0)
                        continue;
                begin_ns = begin_ns ?: clock_now_ns();
                messages++;
                /* TCP data that arrive after the senders stop do not belong to the measured time. */
                if (flow_state(shared) == FLOW_WARM || (e->kind == FLOW_TCP && flow_state(shared) != FLOW_GO))
                        continue;
                counters->messages++;
                counters->bytes += (uint64_t)n;
        }
        if (e->kind != FLOW_TCP)
                counters->socket_drops = flow_socket_drops(fd);
        close(fd);
        free(buffer);
}

static uint64_t stamp_ns(struct msghdr *m)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                struct timespec t;

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS)
                        continue;
                memcpy(&t, CMSG_DATA(c), sizeof t);
                return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
        }
        return 0;
}

/* Counts packets from the sender when they arrive at the device, before any socket receives them. */
static void watch(const struct flow_endpoint *e, struct flow_shared *shared, struct flow_counters *counters)
{
        int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP)), on = 1;
        struct in_addr from = flow_address(e->from, 0).sin_addr;
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        uint64_t last_ns = 0;

        if (fd < 0)
                flow_fail(shared);
        flow_need_buffer(fd, false, WATCH_BUFFER_BYTES);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
        histogram_init(&counters->gaps_ns);
        atomic_fetch_add(&shared->ready, 1);
        while (flow_state(shared) != FLOW_END) {
                uint8_t head[64], control[128];
                struct iovec iov = {head, sizeof head};
                struct msghdr m = {.msg_iov = &iov,
                                   .msg_iovlen = 1,
                                   .msg_control = control,
                                   .msg_controllen = sizeof control};
                ssize_t n = recvmsg(fd, &m, MSG_TRUNC);
                bool matches =
                        n >= WATCH_LEAST_BYTES &&
                        memcmp(head + ETH_HLEN + offsetof(struct iphdr, saddr), &from, sizeof from) == 0;
                uint64_t at_ns = matches ? stamp_ns(&m) : 0;

                if (at_ns == 0 || flow_state(shared) != FLOW_GO)
                        continue;
                if (last_ns > 0 && at_ns > last_ns)
                        histogram_add(&counters->gaps_ns, at_ns - last_ns, 1);
                last_ns = at_ns;
                counters->messages++;
                counters->bytes += (uint64_t)n;
        }
        close(fd);
}

void flow_process_run(const struct flow_endpoint *e, struct flow_shared *shared,
                      struct flow_counters *counters)
{
        if (e->role == FLOW_WATCHER)
                watch(e, shared, counters);
        else if (e->kind == FLOW_ECHO && e->role == FLOW_SENDER)
                flow_echo_request(e, shared, counters);
        else if (e->kind == FLOW_ECHO)
                flow_echo_reply(e, shared);
        else if (e->kind == FLOW_SEGMENTS && e->role == FLOW_SENDER)
                flow_segments_send(e, shared, counters);
        else if (e->kind == FLOW_SEGMENTS)
                flow_segments_receive(e, shared, counters);
        else if (e->role == FLOW_SENDER)
                send_on(e, shared, counters);
        else
                receive_on(e, shared, counters);
}
