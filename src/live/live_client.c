/* Connects to an SFI, maps the ring that it sends or makes a copy of it, and waits for events. */
#include "live_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/util.h"
#include "net/tcp.h"
#include "sys/loop.h"

#define UNIX_PREFIX "unix:"
#define ANSWER_MS 60000

static bool is_local(const char *address)
{
        return strncmp(address, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0;
}

static int connect_remotely(const char *address, struct error *e)
{
        _cleanup_close_ int fd = -1;
        struct net_address to;
        struct pollfd p = {.events = POLLOUT};
        int r = 0;

        if (net_address_parse_with_port(&to, address) < 0)
                return error_set(e, -EINVAL,
                                 "invalid address \"%.100s\"; expected unix:PATH or HOST:PORT with a numeric "
                                 "address, as in live.listen",
                                 address);
        p.fd = fd = tcp_connect(NULL, &to, 0);
        if (fd >= 0) {
                tcp_notice_silence(fd);
                r = poll(&p, 1, ANSWER_MS);
                r = r < 0 ? -errno : r == 0 ? -ETIMEDOUT : tcp_connected(fd);
        }
        r = MIN(fd, r);
        if (r < 0)
                return error_set(e, r, "%.100s: %m; does an SFI run there, with live.listen?", address);
        return take_fd(&fd);
}

static int connect_locally(const char *address, struct error *e)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        const char *path = address + strlen(UNIX_PREFIX);
        _cleanup_close_ int fd = -1;

        if (!*path || strlen(path) >= sizeof a.sun_path)
                return error_set(e, -EINVAL,
                                 "invalid address \"%.100s\"; expected unix:PATH or HOST:PORT, as in "
                                 "live.listen",
                                 address);
        strcpy(a.sun_path, path);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a) < 0)
                return error_set(e, -errno, "%.100s: %m; does an SFI run there, with live.listen?", address);
        return take_fd(&fd);
}

/* In ms, for poll(); negative: without limit. */
static int time_left_ms(uint64_t deadline_ns)
{
        uint64_t now_ns = clock_now_ns();

        if (deadline_ns == NEVER_NS)
                return -1;
        return now_ns < deadline_ns ? (int)DIV_ROUND_UP(deadline_ns - now_ns, NS_PER_MS) : 0;
}

/* Receives the answer and its descriptor. */
static int receive_answer(int fd, char line[static LIVE_LINE_MAX], int *ret_ring)
{
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        uint64_t deadline_ns = clock_now_ns() + ANSWER_MS * NS_PER_MS;
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
                int ready = poll(&p, 1, time_left_ms(deadline_ns));

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
        /* It may go to a terminal. */
        for (char *each = line; *each; each++) {
                if ((unsigned char)*each < ' ' || *each == 0x7f)
                        *each = '?';
        }
        return 0;
}

/* Over TCP, the answer has the size of the ring. */
static int make_copy(struct live_client *c, const char *answer)
{
        static const char begin[] = LIVE_GREETING " ring=";
        _cleanup_close_ int fd = -1;
        unsigned long long bytes;
        char *end;

        if (strncmp(answer, begin, strlen(begin)) != 0)
                return -EPROTO;
        bytes = strtoull(answer + strlen(begin), &end, 10);
        if (*end || bytes < LIVE_RECORD_BYTES || bytes > LIVE_RINGS_MAX_BYTES || bytes % 64 != 0)
                return -EPROTO;
        c->received = c->reported = c->n_out = 0;
        return live_ring_new(&c->ring, bytes, &fd);
}

/* Makes a line of `text`, with its tag if there is a key, and its end. Returns its size. */
static size_t make_line(const struct live_client_key *key, const char *text, size_t size, char *line)
{
        char tag[AUTH_LINE_TEXT_BYTES] = "";
        int n;

        if (key)
                key->seal(key->ctx, text, strlen(text), tag);
        n = snprintf(line, size, "%s%s%s\n", tag, tag[0] ? " " : "", text);
        return MIN((size_t)n, size - 1);
}

static int send_all(int fd, const char *line, size_t n)
{
        return send(fd, line, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -EPIPE;
}

/* Exchanges nonces. The answer of an SFI without this key is an error, which is left in `line`. */
static int introduce(int fd, const struct live_client_key *key, char line[static LIVE_LINE_MAX])
{
        char nonce[AUTH_LINE_TEXT_BYTES];
        int ring, r;

        key->introduce(key->ctx, nonce);
        r = send_all(fd, line, (size_t)snprintf(line, LIVE_LINE_MAX, LIVE_NONCE_LINE "%s\n", nonce));
        if (r >= 0)
                r = receive_answer(fd, line, &ring);
        if (r < 0 || strncmp(line, "error ", 6) == 0)
                return r;
        if (strncmp(line, LIVE_NONCE_LINE, strlen(LIVE_NONCE_LINE)) != 0 ||
            !key->begin(key->ctx, line + strlen(LIVE_NONCE_LINE)))
                return -EPROTO;
        line[0] = '\0';
        return 0;
}

/* Sends the request, and receives the answer; only errors have no tag. */
static int ask(int fd, const struct live_client_key *key, const char *request,
               char line[static LIVE_LINE_MAX], int *ret_ring)
{
        const char *text;
        int r = -EMSGSIZE;

        if (strlen(request) + AUTH_LINE_TEXT_BYTES + 2 <= LIVE_LINE_MAX)
                r = send_all(fd, line, make_line(key, request, LIVE_LINE_MAX, line));

        if (r >= 0)
                r = receive_answer(fd, line, ret_ring);
        if (r < 0 || !key || strncmp(line, "error ", 6) == 0)
                return r;
        text = key->open(key->ctx, line, strlen(line));
        if (!text)
                return -EKEYREJECTED;
        memmove(line, text, strlen(text) + 1);
        return 0;
}

int live_client_open(struct live_client *ret, const char *address, const char *request,
                     const struct live_client_key *key, struct error *e)
{
        char line[LIVE_LINE_MAX] = "";
        _cleanup_close_ int fd = -1, ring = -1;
        int r;

        if (key && is_local(address))
                return error_set(e, -EINVAL, "a key is for an address HOST:PORT only");
        r = fd = (is_local(address) ? connect_locally : connect_remotely)(address, e);
        if (r < 0)
                return r;
        r = key ? introduce(fd, key, line) : 0;
        if (r >= 0 && !line[0])
                r = ask(fd, key, request, line, &ring);
        if (r == -EPIPE)
                return error_set(e, r, "%.100s: the SFI ended the connection", address);
        if (r == -EKEYREJECTED)
                return error_set(e, r, "%.100s: the SFI has another key (network.key-file)", address);
        if (r < 0)
                return error_set(e, r, "%.100s: no answer: %m", address);
        if (strncmp(line, "error ", 6) == 0)
                return error_set(e, -EINVAL, "%s", line + 6);
        if (is_local(address))
                r = strcmp(line, LIVE_GREETING) == 0 && ring >= 0 ? live_ring_map(&ret->ring, ring) : -EPROTO;
        else
                r = make_copy(ret, line);
        if (r < 0)
                return error_set(e, r, "%.100s: the answer is not that of an SFI of this version", address);
        ret->key = key;
        ret->is_remote = !is_local(address);
        ret->shares = strstr(request, " group=") || strstr(request, " mode=all");
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

/* ---- Over TCP ---- */

/* Sends the position of what is no longer used, as far as there is room. */
static void report(struct live_client *c)
{
        uint64_t read = atomic_load(&c->ring.head->read);

        while (c->is_remote && (c->n_out > 0 || c->reported != read)) {
                ssize_t n;

                if (c->n_out == 0) {
                        char text[LIVE_POSITION_MAX];

                        snprintf(text, sizeof text, "read %llu", (unsigned long long)read);
                        c->n_out = make_line(c->key, text, sizeof c->out, c->out);
                        c->reported = read;
                }
                n = send(c->fd, c->out, c->n_out, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (n <= 0)
                        return;
                c->n_out -= (size_t)n;
                memmove(c->out, c->out + n, c->n_out);
        }
}

/* Makes the records available that are whole. Returns whether the last one has come, or -EPROTO. */
static int accept_records(struct live_client *c)
{
        struct live_ring_head *head = c->ring.head;

        while (c->received - c->ring.written >= LIVE_RECORD_BYTES) {
                uint64_t at = c->ring.written % c->ring.data_bytes;
                struct live_record record;

                memcpy(&record, c->ring.data + at, sizeof record);
                if (record.record_bytes == 0) {
                        head->offered = record.offered;
                        head->given = record.given;
                        head->skipped = record.skipped;
                        atomic_store(&head->ended, 1);
                        return 1;
                }
                if (record.record_bytes % 64 != 0 || record.record_bytes > c->ring.data_bytes - at)
                        return -EPROTO;
                if (c->received - c->ring.written < record.record_bytes)
                        return 0;
                c->ring.written += record.record_bytes;
                atomic_store(&head->written, c->ring.written);
        }
        return 0;
}

/* Receives what has come. Returns whether the connection has ended, or -EPROTO. */
static int receive_remote(struct live_client *c)
{
        uint64_t at = c->received % c->ring.data_bytes;
        uint64_t room = MIN(c->ring.data_bytes - at,
                            atomic_load(&c->ring.head->read) + c->ring.data_bytes - c->received);
        ssize_t n;

        /* Without room, there are events in the ring, so the caller does not wait. */
        n = recv(c->fd, c->ring.data + at, room, MSG_DONTWAIT);
        if (n <= 0)
                return n == 0 || (errno != EAGAIN && errno != EINTR);
        c->received += (uint64_t)n;
        return accept_records(c);
}

/* A group passes on the events that are not reported, and with sfi.output = live, they are not complete.
 * Otherwise, a quarter of the ring is soon enough. */
static bool must_report(const struct live_client *c)
{
        return c->shares || c->ring.released - c->reported > c->ring.data_bytes / 4;
}

/* Returns whether the connection has ended, or -EPROTO. */
static int receive_wake(struct live_client *c)
{
        char woken[64];
        ssize_t n = recv(c->fd, woken, sizeof woken, MSG_DONTWAIT);

        return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void live_client_release(struct live_client *c)
{
        live_ring_release(&c->ring);
        report(c);
}

/* ---- Both ---- */

const uint8_t *live_client_next(struct live_client *c, int wait_ms, struct live_record *ret, int *ret_error)
{
        uint64_t deadline_ns = NEVER_NS;
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        bool has_waited = false;
        int at_end = 0;

        live_ring_release(&c->ring);
        if (must_report(c))
                report(c);
        for (;;) {
                const uint8_t *event = live_ring_next(&c->ring, ret, ret_error);
                int ready;

                if (event || *ret_error < 0)
                        return event;
                /* Over TCP, the last record may have come together with events. */
                if (at_end || (c->is_remote && atomic_load(&c->ring.head->ended))) {
                        c->has_ended = atomic_load(&c->ring.head->ended);
                        *ret = (struct live_record){.offered = c->ring.head->offered,
                                                    .given = c->ring.head->given,
                                                    .skipped = c->ring.head->skipped};
                        return NULL;
                }
                if (!live_ring_prepare_sleep(&c->ring))
                        continue;
                if (has_waited)
                        wait_ms = time_left_ms(deadline_ns);
                else if (wait_ms >= 0)
                        deadline_ns = clock_now_ns() + (uint64_t)wait_ms * NS_PER_MS;
                report(c);
                p.events = c->n_out > 0 ? POLLIN | POLLOUT : POLLIN;
                /* An SFI that only wakes does not extend the time. */
                ready = has_waited && wait_ms == 0 ? 0 : poll(&p, 1, wait_ms);
                if (ready <= 0) {
                        *ret_error = ready < 0 ? -errno : -EAGAIN;
                        return NULL;
                }
                has_waited = true;
                /* Events that were written before the end are still in the ring. */
                at_end = c->is_remote ? receive_remote(c) : receive_wake(c);
                if (at_end < 0) {
                        *ret_error = at_end;
                        return NULL;
                }
        }
}
