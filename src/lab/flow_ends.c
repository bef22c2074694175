/* What the processes of a stream do until they are told to end. Every wait is bounded, so that they see it. */
#include "flow_ends.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "evb/sys/loop.h"

#define PART_BYTES 262144u
#define WAIT_MS 20
#define WATCH_BUFFER_BYTES (32 << 20)
/* Shorter packets are acknowledgements and ARP. */
#define WATCH_LEAST_BYTES 100

static enum flow_state state(const struct flow_page *p)
{
        return (enum flow_state)atomic_load_explicit(&p->state, memory_order_relaxed);
}

static _Noreturn void fail(struct flow_page *p)
{
        atomic_store(&p->failed, (unsigned)errno);
        atomic_fetch_add(&p->ready, 1);
        _exit(1);
}

static void be_ready(struct flow_page *p)
{
        atomic_fetch_add(&p->ready, 1);
        while (state(p) == FLOW_WAIT)
                nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static struct sockaddr_in address(const char *text, uint16_t port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

        inet_pton(AF_INET, text, &a.sin_addr);
        return a;
}

static int open_socket(const struct flow *f, struct flow_page *p, bool sender)
{
        int fd = socket(AF_INET, (f->kind == FLOW_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0), on = 1;
        int bytes = (int)f->buffer_bytes;
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};

        if (fd < 0)
                fail(p);
        if (bytes > 0)
                (void)setsockopt(fd, SOL_SOCKET, sender ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, &bytes, sizeof bytes);
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        (void)setsockopt(fd, SOL_SOCKET, sender ? SO_SNDTIMEO : SO_RCVTIMEO, &wait, sizeof wait);
        return fd;
}

static int connect_sender(const struct flow *f, struct flow_page *p)
{
        struct sockaddr_in from = address(f->source, 0), to = address(f->destination, f->port);
        int fd = open_socket(f, p, true);

        if (f->kind == FLOW_MULTICAST && setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from.sin_addr, sizeof from.sin_addr) < 0)
                fail(p);
        if (bind(fd, (void *)&from, sizeof from) < 0)
                fail(p);
        /* A TCP receiver may listen a moment later than we ask. */
        for (int i = 0; connect(fd, (void *)&to, sizeof to) < 0; i++) {
                if (i == 500)
                        fail(p);
                nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
        return fd;
}

static void pace(uint64_t begin_ns, uint64_t done, uint64_t per_s)
{
        uint64_t due_ns = begin_ns + (uint64_t)((unsigned __int128)done * NS_PER_S / per_s), now_ns = clock_now_ns();

        if (due_ns > now_ns + 50 * NS_PER_US)
                nanosleep(&(struct timespec){.tv_nsec = (long)MIN(due_ns - now_ns - 50 * NS_PER_US, 20 * NS_PER_MS)}, NULL);
        while (clock_now_ns() < due_ns && clock_now_ns() - now_ns < 20 * NS_PER_MS)
                ;
}

void flow_send(const struct flow *f, struct flow_page *p, struct flow_end *end, unsigned which)
{
        uint8_t *message = calloc(1, MAX(f->message_bytes, 1u));
        uint64_t begin_ns, messages = 0;
        int fd = connect_sender(f, p);

        (void)which;
        be_ready(p);
        begin_ns = clock_now_ns();
        while (message && state(p) <= FLOW_GO) {
                size_t sent = 0;

                if (f->messages_per_s > 0)
                        pace(begin_ns, messages, f->messages_per_s);
                while (sent < f->message_bytes && state(p) <= FLOW_GO) {
                        ssize_t n = send(fd, message + sent, f->message_bytes - sent, 0);

                        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ECONNREFUSED)
                                fail(p);
                        sent += n > 0 ? (size_t)n : 0;
                }
                messages++;
                if (state(p) != FLOW_WARM) {
                        end->messages += sent == f->message_bytes;
                        end->bytes += sent;
                }
        }
        close(fd);
        free(message);
}

static void listen_at(const struct flow *f, struct flow_page *p, int fd)
{
        struct sockaddr_in to = address(f->destination, f->port);

        if (bind(fd, (void *)&to, sizeof to) < 0)
                fail(p);
        if (f->kind == FLOW_MULTICAST) {
                struct ip_mreqn group = {.imr_multiaddr = to.sin_addr, .imr_ifindex = (int)if_nametoindex("eth0")};

                if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) < 0)
                        fail(p);
        }
        if (f->kind == FLOW_TCP && listen(fd, 1) < 0)
                fail(p);
}

static int accept_one(const struct flow_page *p, int fd)
{
        while (state(p) != FLOW_END) {
                struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

                if (poll(&poll_fd, 1, WAIT_MS) == 1)
                        return accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        }
        return -1;
}

void flow_receive(const struct flow *f, struct flow_page *p, struct flow_end *end, unsigned which)
{
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        uint8_t *part = malloc(PART_BYTES);
        uint64_t begin_ns = 0, messages = 0;
        int fd = open_socket(f, p, false);

        (void)which;
        listen_at(f, p, fd);
        atomic_fetch_add(&p->ready, 1);
        if (f->kind == FLOW_TCP) {
                fd = accept_one(p, fd);
                if (fd < 0)
                        return;
                (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        }
        while (part && state(p) != FLOW_END) {
                ssize_t n;

                if (f->receiver_packets_per_s > 0 && begin_ns > 0)
                        pace(begin_ns, messages, f->receiver_packets_per_s);
                n = recv(fd, part, PART_BYTES, 0);
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        fail(p);
                if (n == 0 && f->kind == FLOW_TCP)
                        break;
                if (n <= 0)
                        continue;
                begin_ns = begin_ns ?: clock_now_ns();
                messages++;
                /* Of TCP what still arrives when nothing is sent any more came too late for the time that is measured. */
                if (state(p) == FLOW_WARM || (f->kind == FLOW_TCP && state(p) != FLOW_GO))
                        continue;
                end->messages++;
                end->bytes += (uint64_t)n;
        }
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

/* Every packet that arrives at the device, before any socket has it. */
void flow_watch(const struct flow *f, struct flow_page *p, struct flow_end *end, unsigned which)
{
        int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP)), on = 1, bytes = WATCH_BUFFER_BYTES;
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        uint64_t last_ns = 0;

        (void)which;
        (void)f;
        if (fd < 0)
                fail(p);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
        histogram_init(&end->gaps_ns);
        atomic_fetch_add(&p->ready, 1);
        while (state(p) != FLOW_END) {
                uint8_t head[64], control[128];
                struct iovec iov = {head, sizeof head};
                struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
                ssize_t n = recvmsg(fd, &m, MSG_TRUNC);
                uint64_t at_ns = n >= WATCH_LEAST_BYTES ? stamp_ns(&m) : 0;

                if (at_ns == 0 || state(p) != FLOW_GO)
                        continue;
                if (last_ns > 0 && at_ns > last_ns)
                        histogram_add(&end->gaps_ns, at_ns - last_ns, 1);
                last_ns = at_ns;
                end->messages++;
                end->bytes += (uint64_t)n;
        }
        close(fd);
}
