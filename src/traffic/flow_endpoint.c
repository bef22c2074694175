/* What the processes of a stream do until they are told to end. Every wait is bounded, so that they see it.
 */
#include "evb/traffic/flow_endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <linux/if_ether.h>
#include <linux/sock_diag.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "evb/base/log.h"
#include "evb/base/util.h"
#include "evb/net/tcp.h"
#include "evb/sys/loop.h"

#define PART_BYTES 262144u
#define WAIT_MS 20
#define WATCH_BUFFER_BYTES (32 << 20)
/* Shorter packets are acknowledgements and ARP. */
#define WATCH_LEAST_BYTES 100

enum flow_state flow_state(const struct flow_counters *counters)
{
        return (enum flow_state)atomic_load_explicit(&counters->state, memory_order_relaxed);
}

_Noreturn void flow_fail(struct flow_counters *counters)
{
        atomic_store(&counters->failed, (unsigned)errno);
        atomic_fetch_add(&counters->ready, 1);
        atomic_fetch_add(&counters->quiet, 1);
        _exit(1);
}

void flow_be_ready(struct flow_counters *counters)
{
        atomic_fetch_add(&counters->ready, 1);
        while (flow_state(counters) == FLOW_WAIT)
                nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

struct sockaddr_in flow_address(const char *text, uint16_t port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

        inet_pton(AF_INET, text, &a.sin_addr);
        return a;
}

bool flow_set_buffer(int fd, bool send, uint32_t bytes)
{
        int value = (int)MIN(bytes, (uint32_t)INT_MAX / 2);

        /* More than net.core.wmem_max and rmem_max needs CAP_NET_ADMIN. */
        if (setsockopt(fd, SOL_SOCKET, send ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, &value, sizeof value) < 0)
                (void)setsockopt(fd, SOL_SOCKET, send ? SO_SNDBUF : SO_RCVBUF, &value, sizeof value);
        return tcp_granted_bytes(fd, send) >= (uint64_t)value;
}

void flow_need_buffer(int fd, bool send, uint32_t bytes)
{
        if (!flow_set_buffer(fd, send, bytes))
                log_warning("lab: requested a socket buffer of %u bytes, the kernel grants %llu; raise "
                            "net.core.%s, or use CAP_NET_ADMIN",
                            bytes, (unsigned long long)tcp_granted_bytes(fd, send),
                            send ? "wmem_max" : "rmem_max");
}

static int open_socket(const struct flow_part *p, struct flow_counters *counters, bool sender)
{
        int fd = socket(AF_INET, (p->kind == FLOW_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0), on = 1;
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};

        if (fd < 0)
                flow_fail(counters);
        if (p->buffer_bytes > 0)
                flow_need_buffer(fd, sender, p->buffer_bytes);
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        (void)setsockopt(fd, SOL_SOCKET, sender ? SO_SNDTIMEO : SO_RCVTIMEO, &wait, sizeof wait);
        return fd;
}

static int connect_sender(const struct flow_part *p, struct flow_counters *counters)
{
        struct sockaddr_in from = flow_address(p->from, 0), to = flow_address(p->to, p->port);
        int fd = open_socket(p, counters, true);

        if (p->kind == FLOW_MULTICAST &&
            setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from.sin_addr, sizeof from.sin_addr) < 0)
                flow_fail(counters);
        if (bind(fd, (void *)&from, sizeof from) < 0)
                flow_fail(counters);
        /* A TCP receiver may listen a moment later than we ask. */
        for (int i = 0; connect(fd, (void *)&to, sizeof to) < 0; i++) {
                if (i == 500)
                        flow_fail(counters);
                nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
        return fd;
}

/* Waits, for 20 ms at most, until the next of so many in a second is due; false: it is not yet. */
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

static void send_on(const struct flow_part *p, struct flow_counters *counters, struct flow_end *end)
{
        uint8_t *message = calloc(1, MAX(p->message_bytes, 1u));
        uint64_t begin_ns, messages = 0;
        int fd = connect_sender(p, counters);

        flow_be_ready(counters);
        begin_ns = clock_now_ns();
        while (message && flow_state(counters) <= FLOW_GO) {
                size_t sent = 0;

                if (p->messages_per_s > 0 && !pace(begin_ns, messages, p->messages_per_s))
                        continue;
                while (sent < p->message_bytes && flow_state(counters) <= FLOW_GO) {
                        ssize_t n = send(fd, message + sent, p->message_bytes - sent, 0);

                        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS &&
                            errno != ECONNREFUSED)
                                flow_fail(counters);
                        sent += n > 0 ? (size_t)n : 0;
                }
                messages++;
                if (flow_state(counters) != FLOW_WARM) {
                        end->messages += sent == p->message_bytes;
                        end->bytes += sent;
                }
        }
        atomic_fetch_add(&counters->quiet, 1);
        close(fd);
        free(message);
}

static void listen_at(const struct flow_part *p, struct flow_counters *counters, int fd)
{
        struct sockaddr_in to = flow_address(p->to, p->port);

        if (bind(fd, (void *)&to, sizeof to) < 0)
                flow_fail(counters);
        if (p->kind == FLOW_MULTICAST) {
                struct ip_mreqn group = {.imr_multiaddr = to.sin_addr,
                                         .imr_address = flow_address(p->at, 0).sin_addr};

                if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) < 0)
                        flow_fail(counters);
        }
        if (p->kind == FLOW_TCP && listen(fd, 1) < 0)
                flow_fail(counters);
}

static int accept_one(const struct flow_counters *counters, int fd)
{
        while (flow_state(counters) != FLOW_END) {
                struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

                if (poll(&poll_fd, 1, WAIT_MS) == 1)
                        return accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        }
        return -1;
}

static uint64_t socket_drops(int fd)
{
        uint32_t memory[SK_MEMINFO_VARS] = {};
        socklen_t size = sizeof memory;

        return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size) < 0 ? 0 : memory[SK_MEMINFO_DROPS];
}

static void receive_on(const struct flow_part *p, struct flow_counters *counters, struct flow_end *end)
{
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        uint8_t *part = malloc(PART_BYTES);
        uint64_t begin_ns = 0, messages = 0;
        int fd = open_socket(p, counters, false);

        listen_at(p, counters, fd);
        atomic_fetch_add(&counters->ready, 1);
        if (p->kind == FLOW_TCP) {
                fd = accept_one(counters, fd);
                if (fd < 0)
                        return;
                (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        }
        while (part && flow_state(counters) != FLOW_END) {
                ssize_t n;

                if (p->receiver_packets_per_s > 0 && begin_ns > 0 &&
                    !pace(begin_ns, messages, p->receiver_packets_per_s))
                        continue;
                n = recv(fd, part, PART_BYTES, 0);
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        flow_fail(counters);
                if (n == 0 && p->kind == FLOW_TCP)
                        break;
                if (n <= 0)
                        continue;
                begin_ns = begin_ns ?: clock_now_ns();
                messages++;
                /* Of TCP what still arrives when nothing is sent any more came too late for the time that is
                 * measured. */
                if (flow_state(counters) == FLOW_WARM ||
                    (p->kind == FLOW_TCP && flow_state(counters) != FLOW_GO))
                        continue;
                end->messages++;
                end->bytes += (uint64_t)n;
        }
        if (p->kind != FLOW_TCP)
                end->socket_drops = socket_drops(fd);
        close(fd);
        free(part);
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

/* Packets as they arrive from the sender at the device, before any socket has them. */
static void watch(const struct flow_part *p, struct flow_counters *counters, struct flow_end *end)
{
        int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP)), on = 1;
        struct in_addr from = flow_address(p->from, 0).sin_addr;
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        uint64_t last_ns = 0;

        if (fd < 0)
                flow_fail(counters);
        flow_need_buffer(fd, false, WATCH_BUFFER_BYTES);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
        histogram_init(&end->gaps_ns);
        atomic_fetch_add(&counters->ready, 1);
        while (flow_state(counters) != FLOW_END) {
                uint8_t head[64], control[128];
                struct iovec iov = {head, sizeof head};
                struct msghdr m = {.msg_iov = &iov,
                                   .msg_iovlen = 1,
                                   .msg_control = control,
                                   .msg_controllen = sizeof control};
                ssize_t n = recvmsg(fd, &m, MSG_TRUNC);
                bool meant = n >= WATCH_LEAST_BYTES &&
                             memcmp(head + ETH_HLEN + offsetof(struct iphdr, saddr), &from, sizeof from) == 0;
                uint64_t at_ns = meant ? stamp_ns(&m) : 0;

                if (at_ns == 0 || flow_state(counters) != FLOW_GO)
                        continue;
                if (last_ns > 0 && at_ns > last_ns)
                        histogram_add(&end->gaps_ns, at_ns - last_ns, 1);
                last_ns = at_ns;
                end->messages++;
                end->bytes += (uint64_t)n;
        }
        close(fd);
}

void flow_end_run(const struct flow_part *p, struct flow_counters *counters, struct flow_end *end)
{
        if (p->role == FLOW_WATCHER)
                watch(p, counters, end);
        else if (p->kind == FLOW_ECHO && p->role == FLOW_SENDER)
                flow_ask(p, counters, end);
        else if (p->kind == FLOW_ECHO)
                flow_answer(p, counters);
        else if (p->role == FLOW_SENDER)
                send_on(p, counters, end);
        else
                receive_on(p, counters, end);
}
