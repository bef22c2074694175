/* Measures the latency of control messages: echo requests on the control port, beside data that fill the
 * link. */
#include "flow_echo.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"
#include "traffic/flow_socket.h"

#define REPLY_MS 5000
#define WAIT_MS 20
#define FILL_BYTES 1400u

static int open_datagrams(const struct flow_endpoint *e, struct flow_shared *shared, const char *to,
                          uint16_t port, int flags)
{
        struct sockaddr_in from = flow_address(e->from, 0), other = flow_address(to, port);
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0);

        if (fd < 0 || bind(fd, (void *)&from, sizeof from) < 0 ||
            connect(fd, (void *)&other, sizeof other) < 0)
                flow_fail(shared);
        return fd;
}

/* Fills the send queue with data before each request. */
void flow_echo_request(const struct flow_endpoint *e, struct flow_shared *shared,
                       struct flow_counters *counters)
{
        static const char data[FILL_BYTES];
        int fd = open_datagrams(e, shared, e->to, e->port, 0),
            fill = open_datagrams(e, shared, e->to, (uint16_t)(e->port + 1), SOCK_NONBLOCK);

        if (e->buffer_bytes > 0)
                flow_need_buffer(fill, true, e->buffer_bytes);
        histogram_init(&counters->gaps_ns);
        flow_wait_for_start(shared);
        while (flow_state(shared) <= FLOW_GO) {
                struct pollfd wait = {.fd = fd, .events = POLLIN};
                char back[64];
                uint64_t begin_ns;

                for (unsigned left = 2 * e->buffer_bytes / FILL_BYTES;
                     left > 0 && send(fill, data, sizeof data, 0) > 0; left--)
                        ;
                begin_ns = clock_now_ns();
                errno = ETIMEDOUT;
                if (send(fd, "echo", 4, 0) < 0 || poll(&wait, 1, REPLY_MS) != 1 ||
                    recv(fd, back, sizeof back, 0) != 4)
                        flow_fail(shared);
                histogram_add(&counters->gaps_ns, clock_now_ns() - begin_ns, 1);
                counters->messages++;
        }
        atomic_fetch_add(&shared->quiet, 1);
        close(fill);
        close(fd);
}

/* Binds a second socket for the data but never reads it: a closed port would answer with ICMP errors. */
void flow_echo_reply(const struct flow_endpoint *e, struct flow_shared *shared)
{
        struct sockaddr_in here = flow_address(e->to, e->port), from,
                           data = flow_address(e->to, (uint16_t)(e->port + 1));
        struct timeval wait = {.tv_usec = WAIT_MS * 1000};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
            sink = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        char message[64];

        if (fd < 0 || sink < 0 || bind(fd, (void *)&here, sizeof here) < 0 ||
            bind(sink, (void *)&data, sizeof data) < 0)
                flow_fail(shared);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        atomic_fetch_add(&shared->ready, 1);
        while (flow_state(shared) != FLOW_END) {
                socklen_t size = sizeof from;
                ssize_t n = recvfrom(fd, message, sizeof message, 0, (void *)&from, &size);

                if (n > 0)
                        (void)sendto(fd, message, (size_t)n, 0, (void *)&from, size);
        }
        close(sink);
        close(fd);
}
