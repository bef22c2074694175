/* Connects to an SFI, maps the ring that it sends, and waits for events. */
#include "live_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/util.h"
#include "sys/loop.h"

#define UNIX_PREFIX "unix:"
#define ANSWER_MS 60000

static int connect_to(const char *address, struct error *e)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        const char *path = address + strlen(UNIX_PREFIX);
        _cleanup_close_ int fd = -1;

        if (strncmp(address, UNIX_PREFIX, strlen(UNIX_PREFIX)) != 0 || !*path ||
            strlen(path) >= sizeof a.sun_path)
                return error_set(e, -EINVAL,
                                 "invalid address \"%.100s\"; expected unix:PATH, as in live.listen",
                                 address);
        strcpy(a.sun_path, path);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a) < 0)
                return error_set(e, -errno, "%.100s: %m; does an SFI run there, with live.listen?", address);
        return take_fd(&fd);
}

/* Receives the answer and its descriptor. */
static int receive_answer(int fd, char line[static LIVE_LINE_MAX], int *ret_ring)
{
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        size_t n = 0;

        *ret_ring = -1;
        while (n == 0 || line[n - 1] != '\n') {
                struct iovec text = {line + n, 1};
                struct msghdr m = {.msg_iov = &text,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen = sizeof control};
                struct cmsghdr *c;
                int ready = poll(&p, 1, ANSWER_MS);

                if (ready <= 0)
                        return ready < 0 ? -errno : -ETIMEDOUT;
                if (n == LIVE_LINE_MAX - 1 || recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != 1)
                        return -EPROTO;
                n++;
                c = CMSG_FIRSTHDR(&m);
                if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && *ret_ring < 0)
                        memcpy(ret_ring, CMSG_DATA(c), sizeof *ret_ring);
        }
        line[n - 1] = '\0';
        return 0;
}

int live_client_open(struct live_client *ret, const char *address, const char *request, struct error *e)
{
        char line[LIVE_LINE_MAX];
        _cleanup_close_ int fd = -1, ring = -1;
        int r = fd = connect_to(address, e);
        size_t n;

        if (r < 0)
                return r;
        n = (size_t)snprintf(line, sizeof line, "%.500s\n", request);
        if (send(fd, line, n, MSG_NOSIGNAL) != (ssize_t)n)
                return error_set(e, -EPIPE, "%.100s: the SFI ended the connection", address);
        r = receive_answer(fd, line, &ring);
        if (r < 0)
                return error_set(e, r, "%.100s: no answer: %m", address);
        if (strncmp(line, "error ", 6) == 0)
                return error_set(e, -EINVAL, "%s", line + 6);
        r = strcmp(line, LIVE_GREETING) == 0 && ring >= 0 ? live_ring_map(&ret->ring, ring) : -EPROTO;
        if (r < 0)
                return error_set(e, r, "%.100s: the answer is not that of an SFI of this version", address);
        ret->fd = take_fd(&fd);
        ret->has_ended = false;
        return 0;
}

void live_client_close(struct live_client *c)
{
        if (c->fd < 0)
                return;
        live_ring_free(&c->ring);
        close(take_fd(&c->fd));
}

/* In ms, for poll(); negative: without limit. */
static int time_left_ms(uint64_t deadline_ns)
{
        uint64_t now_ns = clock_now_ns();

        if (deadline_ns == NEVER_NS)
                return -1;
        return now_ns < deadline_ns ? (int)DIV_ROUND_UP(deadline_ns - now_ns, NS_PER_MS) : 0;
}

const uint8_t *live_client_next(struct live_client *c, int wait_ms, struct live_record *ret, int *ret_error)
{
        uint64_t deadline_ns = wait_ms < 0 ? NEVER_NS : clock_now_ns() + (uint64_t)wait_ms * NS_PER_MS;
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        bool at_end = false, has_waited = false;
        char woken[64];

        live_ring_release(&c->ring);
        for (;;) {
                const uint8_t *event = live_ring_next(&c->ring, ret, ret_error);
                ssize_t n;
                int ready;

                if (event || *ret_error < 0)
                        return event;
                if (at_end) {
                        c->has_ended = atomic_load(&c->ring.head->ended);
                        *ret = (struct live_record){.offered = c->ring.head->offered,
                                                    .given = c->ring.head->given,
                                                    .skipped = c->ring.head->skipped};
                        return NULL;
                }
                if (!live_ring_prepare_sleep(&c->ring))
                        continue;
                wait_ms = time_left_ms(deadline_ns);
                /* An SFI that only wakes does not extend the time. */
                ready = has_waited && wait_ms == 0 ? 0 : poll(&p, 1, wait_ms);
                if (ready <= 0) {
                        *ret_error = ready < 0 ? -errno : -EAGAIN;
                        return NULL;
                }
                has_waited = true;
                n = recv(c->fd, woken, sizeof woken, MSG_DONTWAIT);
                /* Events that were written before the end are still in the ring. */
                at_end = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
        }
}
