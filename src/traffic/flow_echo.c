/* Echoes on the control port, each beside data that fill the link: what control messages meet there. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "evb/base/util.h"
#include "evb/sys/loop.h"
#include "evb/traffic/flow_endpoint.h"

#define ANSWER_MS 5000
#define WAIT_MS 20
#define FILL_BYTES 1400u

static int open_datagrams(const struct flow_part *p, struct flow_counters *counters, const char *to,
                          uint16_t port, int flags)
{
        struct sockaddr_in from = flow_address(p->from, 0), other = flow_address(to, port);
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0);

        if (fd < 0 || bind(fd, (void *)&from, sizeof from) < 0 ||
            connect(fd, (void *)&other, sizeof other) < 0)
                flow_fail(counters);
        return fd;
}

/* Tops the queue up with data before each question. */
void flow_ask(const struct flow_part *p, struct flow_counters *counters, struct flow_end *end)
{
        static const char data[FILL_BYTES];
        int fd = open_datagrams(p, counters, p->to, p->port, 0),
            fill = open_datagrams(p, counters, p->to, (uint16_t)(p->port + 1), SOCK_NONBLOCK);

        if (p->buffer_bytes > 0)
                flow_need_buffer(fill, true, p->buffer_bytes);
        histogram_init(&end->gaps_ns);
        flow_be_ready(counters);
        while (flow_state(counters) <= FLOW_GO) {
                struct pollfd wait = {.fd = fd, .events = POLLIN};
                char back[64];
                uint64_t begin_ns;

                for (unsigned left = 2 * p->buffer_bytes / FILL_BYTES;
                     left > 0 && send(fill, data, sizeof data, 0) > 0; left--)
                        ;
                begin_ns = clock_now_ns();
                errno = ETIMEDOUT;
                if (send(fd, "echo", 4, 0) < 0 || poll(&wait, 1, ANSWER_MS) != 1 ||
                    recv(fd, back, sizeof back, 0) != 4)
                        flow_fail(counters);
                histogram_add(&end->gaps_ns, clock_now_ns() - begin_ns, 1);
                end->messages++;
        }
        atomic_fetch_add(&counters->quiet, 1);
        close(fill);
        close(fd);
}

/* The data go to a port of their own, where nobody takes them: an unreachable port would be answered. */
void flow_answer(const struct flow_part *p, struct flow_counters *counters)
{
        struct sockaddr_in here = flow_address(p->to, p->port), from,
                           data = flow_address(p->to, (uint16_t)(p->port + 1));
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
            sink = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        char message[64];

        if (fd < 0 || sink < 0 || bind(fd, (void *)&here, sizeof here) < 0 ||
            bind(sink, (void *)&data, sizeof data) < 0)
                flow_fail(counters);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        atomic_fetch_add(&counters->ready, 1);
        while (flow_state(counters) != FLOW_END) {
                socklen_t size = sizeof from;
                ssize_t n = recvfrom(fd, message, sizeof message, 0, (void *)&from, &size);

                if (n > 0)
                        (void)sendto(fd, message, (size_t)n, 0, (void *)&from, size);
        }
        close(sink);
        close(fd);
}
