/* Accepts the connections of consumers, reads their requests, and ends them. */
#include "live_server.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/util.h"
#include "live_internal.h"
#include "net/tcp.h"

#define ACCEPTS_MAX 8
#define RECEIVES_MAX 16
/* Enough for the receive buffer of a connection that has ended. */
#define LAST_RECEIVES_MAX 4096
/* Time for the events on their way over TCP when the server ends, and the interval of looking for their
 * arrival. */
#define END_NS (5 * NS_PER_S)
#define END_LOOK_MS 1

static uint32_t index_of(const struct connection *c)
{
        return (uint32_t)(c - c->server->connections);
}

static void drop(struct connection *c)
{
        struct live_server *s = c->server;

        loop_remove(s->loop, &c->io);
        pthread_mutex_lock(&s->mutex);
        if (c->consumer->group != LIVE_NO_GROUP)
                live_groups_leave(&s->core, index_of(c), clock_utc_ns());
        /* The other thread may wake a member of the group until it has left. */
        close(take_fd(&c->io.fd));
        pthread_mutex_unlock(&s->mutex);
        c->line_bytes = 0;
}

/* If the buffer of the client's socket is full, the client gets no answer. */
static void refuse(int fd, const char *why)
{
        char line[LIVE_LINE_MAX];
        int n = snprintf(line, sizeof line, "error %.450s\n", why);

        (void)send(fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool send_line(struct connection *c, const char *text)
{
        char line[LIVE_LINE_MAX];
        size_t n = live_lines_format(&c->lines, text, line);

        return send(c->io.fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

static bool answer_remote(struct connection *c)
{
        char text[LIVE_LINE_MAX / 2];

        snprintf(text, sizeof text, LIVE_GREETING " ring=%llu",
                 (unsigned long long)c->consumer->ring.data_bytes);
        return send_line(c, text);
}

/* Sends the answer with the ring; the connection is new, so its buffer has room. */
static int send_ring(int to, int fd)
{
        static const char answer[] = LIVE_GREETING "\n";
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = {};
        struct iovec text = {(void *)(uintptr_t)answer, sizeof answer - 1};
        struct msghdr m = {
                .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
        return sendmsg(to, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof answer - 1 ? 0 : -EPIPE;
}

static uint64_t count_ring_bytes(const struct live_server *s)
{
        uint64_t bytes = 0;

        for (const struct connection *c = s->connections; c < s->connections + LIVE_CONSUMERS_MAX; c++)
                bytes += c->consumer->ring.data_bytes;
        return bytes;
}

/* Returns the bytes that new rings may have. Dead consumers lose events if this makes room for `bytes`. */
static uint64_t make_room(struct live_server *s, uint64_t bytes)
{
        uint64_t left;

        pthread_mutex_lock(&s->mutex);
        while ((left = LIVE_RINGS_MAX_BYTES - count_ring_bytes(s)) < bytes &&
               live_groups_bury_oldest(&s->core) >= 0)
                continue;
        pthread_mutex_unlock(&s->mutex);
        return left;
}

static int make_ring(struct live_ring *ret, struct live_server *s, uint64_t bytes, int *ret_fd,
                     struct error *e)
{
        uint64_t left = make_room(s, bytes);
        int r;

        if (bytes > left)
                return error_set(
                        e, -ENOBUFS,
                        "ring: the rings of an SFI have at most 256MiB together, of which %lluKiB are left",
                        (unsigned long long)left >> 10);
        r = live_ring_new(ret, bytes, ret_fd);
        return r < 0 ? error_set(e, r, "no memory for the ring: %m") : 0;
}

static bool has_selection(const struct live_request *r)
{
        return r->stride > 1 || r->fraction < 1 || r->n_types > 0 || r->status != LIVE_ANY;
}

static int join(struct connection *c, const struct live_request *request, const struct live_ring *ring,
                struct error *e)
{
        int r;

        pthread_mutex_lock(&c->server->mutex);
        r = live_groups_join(&c->server->core, index_of(c), request, ring);
        pthread_mutex_unlock(&c->server->mutex);
        if (r == -ENOMEM)
                return error_set(e, r, "no memory for the ring");
        return r < 0 ? error_set(e, r, "group: another consumer of this group has other options") : 0;
}

/* False: the connection must end. */
static bool begin(struct connection *c, struct live_request request)
{
        _cleanup_close_ int fd = -1;
        struct live_ring ring = {};
        struct error e = {};
        int r = 0;

        if (request.mode == LIVE_ALL && !c->server->allows_all)
                r = error_set(&e, -EPERM,
                              "mode: all is not allowed at this SFI; expected newest or skip, or live.all = "
                              "yes there");
        else if (request.mode == LIVE_ALL && c->server->core.n_tags > 0 && has_selection(&request))
                r = error_set(&e, -EINVAL,
                              "mode: with sfi.output = live, consumers in mode all get each event; expected "
                              "no stride, fraction, trigger-type and status");
        if (r >= 0)
                r = make_ring(&ring, c->server, request.ring_bytes, &fd, &e);
        if (r >= 0)
                r = join(c, &request, &ring, &e);
        if (r >= 0) {
                if (live_is_remote(c->server))
                        return answer_remote(c) && live_send_events(c);
                return send_ring(c->io.fd, fd) >= 0;
        }
        if (ring.head)
                live_ring_free(&ring);
        refuse(c->io.fd, e.message);
        return false;
}

/* A position says which events the consumer has finished. False: the connection must end. */
static bool accept_position(struct connection *c, uint64_t position)
{
        uint64_t before = atomic_load_explicit(&c->consumer->ring.head->read, memory_order_relaxed);

        if (position < before || position > c->sent || position % 64 != 0)
                return false;
        atomic_store_explicit(&c->consumer->ring.head->read, position, memory_order_release);
        return true;
}

static bool accept_line(struct connection *c, char *line, size_t n)
{
        struct live_line accepted;
        struct error e = {};
        char text[AUTH_LINE_TEXT_BYTES + 8];

        /* Over a Unix socket, a consumer sends nothing after its request. */
        if (c->consumer->group != LIVE_NO_GROUP && !live_is_remote(c->server))
                return false;
        if (live_lines_accept(&c->lines, line, n, &accepted, &e) < 0) {
                refuse(c->io.fd, e.message);
                return false;
        }
        if (accepted.kind == LIVE_LINE_REQUEST)
                return begin(c, accepted.request);
        if (accepted.kind == LIVE_LINE_READ)
                return accept_position(c, accepted.position);
        auth_nonce_format(c->lines.nonce, text + snprintf(text, sizeof text, "key "));
        snprintf(line, LIVE_LINE_MAX, "%s\n", text);
        return send(c->io.fd, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)strlen(line);
}

/* Accepts the whole lines that have come. False: the connection must end. */
static bool accept_lines(struct connection *c)
{
        size_t done = 0;
        char *end;

        while ((end = memchr(c->line + done, '\n', c->line_bytes - done))) {
                char line[LIVE_LINE_MAX];
                size_t n = (size_t)(end - c->line) - done;

                memcpy(line, c->line + done, n);
                done += n + 1;
                if (!accept_line(c, line, n))
                        return false;
        }
        c->line_bytes -= done;
        memmove(c->line, c->line + done, c->line_bytes);
        if (c->line_bytes == sizeof c->line - 1)
                refuse(c->io.fd, "the request is too long");
        return c->line_bytes < sizeof c->line - 1 &&
               (c->line_bytes == 0 || c->consumer->group == LIVE_NO_GROUP || live_is_remote(c->server));
}

/* False: the connection must end. */
static bool receive(struct connection *c)
{
        ssize_t n = recv(c->io.fd, c->line + c->line_bytes, sizeof c->line - 1 - c->line_bytes, MSG_DONTWAIT);

        if (n <= 0)
                return n < 0 && (errno == EAGAIN || errno == EINTR);
        c->line_bytes += (size_t)n;
        return accept_lines(c);
}

/* Ends a consumer to which nothing can be sent. It may have reported events before its end. */
static void drop_unreachable(struct connection *c)
{
        for (int i = 0; i < LAST_RECEIVES_MAX && receive(c); i++)
                continue;
        drop(c);
}

static void consumer_is_ready(void *ctx, uint32_t events)
{
        struct connection *c = ctx;

        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !receive(c))
                drop(c);
        else if (events & EPOLLOUT && c->consumer->group != LIVE_NO_GROUP && !live_send_events(c))
                drop_unreachable(c);
}

/* Events have been written to the ring of a consumer over TCP that had been sent all events. */
static void wake_is_ready(void *ctx, uint32_t events)
{
        struct live_server *s = ctx;
        uint64_t count;

        (void)events;
        (void)!read(s->wake.fd, &count, sizeof count);
        for (struct connection *c = s->connections; c < s->connections + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd >= 0 && c->consumer->group != LIVE_NO_GROUP && !(c->io.events & EPOLLOUT) &&
                    !live_send_events(c))
                        drop_unreachable(c);
        }
}

static struct connection *find_free(struct live_server *s)
{
        for (struct connection *c = s->connections; c < s->connections + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd < 0 && !c->consumer->is_dead)
                        return c;
        }
        return NULL;
}

static struct connection *find_silent(struct live_server *s)
{
        struct connection *oldest = NULL;

        for (struct connection *c = s->connections; c < s->connections + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd >= 0 && c->consumer->group == LIVE_NO_GROUP &&
                    (!oldest || c->consumer->number < oldest->consumer->number))
                        oldest = c;
        }
        return oldest;
}

/* Returns a free entry, or the entry of the oldest client without a request, or of a dead consumer, whose
 * events are lost then. NULL: there is none. */
static struct connection *find_place(struct live_server *s)
{
        struct connection *c;
        int dead;

        pthread_mutex_lock(&s->mutex);
        c = find_free(s);
        if (!c && !find_silent(s) && (dead = live_groups_bury_oldest(&s->core)) >= 0)
                c = &s->connections[dead];
        pthread_mutex_unlock(&s->mutex);
        if (!c && (c = find_silent(s)))
                drop(c);
        return c;
}

/* Negative errno: there are no random bytes for a nonce. */
static int begin_connection(struct connection *c, int fd)
{
        struct live_server *s = c->server;
        uint8_t nonce[AUTH_NONCE_BYTES] = {};

        if (s->has_key && getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
                return -errno;
        live_lines_init(&c->lines, s->has_key ? &s->key : NULL, nonce);
        if (live_is_remote(s))
                tcp_probe_idle(fd);
        c->consumer->number = s->accepted++;
        c->sent = 0;
        c->line_bytes = 0;
        return 0;
}

static void listener_is_ready(void *ctx, uint32_t events)
{
        struct live_server *s = ctx;

        (void)events;
        for (int i = 0; i < ACCEPTS_MAX; i++) {
                struct net_address peer;
                int fd = live_is_remote(s) ? tcp_accept(s->io.fd, 0, &peer)
                                           : accept4(s->io.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                struct connection *c;

                if (fd < 0)
                        return;
                c = find_place(s);
                if (!c) {
                        refuse(fd, "this SFI has as many consumers as it can serve");
                        close(fd);
                        continue;
                }
                if (begin_connection(c, fd) < 0) {
                        close(fd);
                        continue;
                }
                c->io = (struct loop_io){.fd = fd, .events = EPOLLIN, .ready = consumer_is_ready, .ctx = c};
                if (loop_add(s->loop, &c->io) < 0)
                        drop(c);
                else
                        /* The next client may replace a client that has not sent its request. */
                        consumer_is_ready(c, EPOLLIN);
        }
}

static int watch(struct live_server *s, struct loop_io *io, int fd, void (*ready)(void *, uint32_t))
{
        int r;

        *io = (struct loop_io){.fd = fd, .events = EPOLLIN, .ready = ready, .ctx = s};
        r = fd < 0 ? -errno : loop_add(s->loop, io);
        if (r < 0 && fd >= 0)
                close(take_fd(&io->fd));
        return r;
}

static int listen_locally(struct live_server *s, const char *path, struct error *e)
{
        int r = local_listener_open(&s->listener, path, e);

        if (r >= 0 && chmod(path, 0660) < 0)
                r = error_set(e, -errno, "cannot change its mode: %m");
        if (r < 0)
                return r;
        s->io = (struct loop_io){
                .fd = s->listener.fd, .events = EPOLLIN, .ready = listener_is_ready, .ctx = s};
        r = loop_add(s->loop, &s->io);
        if (r < 0)
                s->io.fd = -1;
        return r < 0 ? error_set(e, r, "cannot watch the socket: %m") : 0;
}

static int listen_remotely(struct live_server *s, const struct live_settings *settings, struct error *e)
{
        int r;

        if (htole32(1) != 1) {
                close(settings->listener);
                return error_set(e, -EINVAL, "this processor is big-endian; expected unix:PATH");
        }
        if (settings->key)
                s->key = *settings->key;
        s->has_key = settings->key;
        r = watch(s, &s->io, settings->listener, listener_is_ready);
        if (r >= 0)
                r = watch(s, &s->wake, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), wake_is_ready);
        return r < 0 ? error_set(e, r, "cannot watch the port: %m") : 0;
}

/* ---- The thread that builds events ---- */

/* The loop detects the end of the connection. */
static void end_connection(void *ctx, uint32_t i)
{
        struct live_server *s = ctx;

        shutdown(s->connections[i].io.fd, SHUT_RDWR);
}

static void wake_consumer(void *ctx, uint32_t i)
{
        struct live_server *s = ctx;

        live_wake(&s->connections[i]);
}

static void record_full(void *ctx, uint32_t i)
{
        struct live_server *s = ctx;

        live_notice_silence(&s->connections[i]);
}

static const struct live_contact contact = {
        .wake = wake_consumer, .end = end_connection, .record_full = record_full};

bool live_server_is_wanted(const struct live_server *s)
{
        return s && atomic_load_explicit(&((struct live_server *)(uintptr_t)s)->core.wanted,
                                         memory_order_relaxed) > 0;
}

/* All under one mutex: what has room must still have it when the event is given. */
struct live_outcome live_server_offer(struct live_server *s, const struct live_event *event, bool may_wait,
                                      live_encode_fn encode, void *ctx)
{
        struct live_outcome outcome;

        pthread_mutex_lock(&s->mutex);
        outcome = live_groups_offer(&s->core, event, may_wait, clock_utc_ns(), encode, ctx);
        pthread_mutex_unlock(&s->mutex);
        return outcome;
}

void live_server_wake(struct live_server *s)
{
        pthread_mutex_lock(&s->mutex);
        live_groups_wake(&s->core);
        pthread_mutex_unlock(&s->mutex);
}

size_t live_server_collect(struct live_server *s, struct live_end *ends, size_t n)
{
        pthread_mutex_lock(&s->mutex);
        n = live_groups_collect(&s->core, clock_utc_ns(), ends, n);
        pthread_mutex_unlock(&s->mutex);
        return n;
}

void live_server_end_holders(struct live_server *s, uint32_t tag)
{
        pthread_mutex_lock(&s->mutex);
        live_groups_end_holders(&s->core, tag);
        pthread_mutex_unlock(&s->mutex);
}

bool live_server_is_settled(struct live_server *s)
{
        bool is_settled;

        if (!s)
                return true;
        pthread_mutex_lock(&s->mutex);
        is_settled = live_groups_is_settled(&s->core, clock_utc_ns());
        pthread_mutex_unlock(&s->mutex);
        return is_settled;
}

uint64_t live_server_end_groups(struct live_server *s)
{
        uint64_t lost;

        if (!s)
                return 0;
        pthread_mutex_lock(&s->mutex);
        lost = live_groups_end(&s->core, clock_utc_ns());
        pthread_mutex_unlock(&s->mutex);
        return lost;
}

/* ---- Creation and end ---- */

int live_server_new(struct live_server **ret, const struct live_settings *settings, struct loop *loop,
                    struct error *e)
{
        struct live_server *s = calloc(1, sizeof *s);
        int r, memory;

        if (!s) {
                if (!settings->path)
                        close(settings->listener);
                return error_set(e, -ENOMEM, "out of memory");
        }
        s->loop = loop;
        s->allows_all = settings->allows_all;
        s->listener.fd = s->io.fd = s->wake.fd = -1;
        pthread_mutex_init(&s->mutex, NULL);
        for (size_t i = 0; i < LIVE_CONSUMERS_MAX; i++)
                s->connections[i] =
                        (struct connection){.server = s, .consumer = &s->core.consumers[i], .io.fd = -1};
        memory = live_groups_init(&s->core, settings->n_tags, &contact, s);
        r = settings->path ? listen_locally(s, settings->path, e) : listen_remotely(s, settings, e);
        if (r >= 0 && memory < 0)
                r = error_set(e, memory, "out of memory");
        if (r < 0) {
                live_server_free(s, false);
                return r;
        }
        *ret = s;
        return 0;
}

/* Passes on what fits of the events of consumers that have ended, even if the loop has not seen the end. */
static void finish_groups(struct live_server *s)
{
        for (struct connection *c = s->connections; c < s->connections + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd >= 0 && c->consumer->group != LIVE_NO_GROUP && !receive(c))
                        drop(c);
        }
        (void)live_groups_end(&s->core, clock_utc_ns());
}

static void tell_end(struct connection *c, const struct live_counts *counts, bool ended)
{
        struct live_ring_head *head = c->consumer->ring.head;

        head->offered = counts->offered;
        head->given = counts->given;
        head->skipped = counts->skipped;
        atomic_store(&head->ended, ended);
}

/* Returns whether nothing is left to do. The input is read, because the kernel resets a connection that is
 * closed with unread input, and would drop what it has not sent yet. */
static bool finish_remote(struct connection *c)
{
        for (int i = 0; i < RECEIVES_MAX; i++) {
                if (!receive(c))
                        return true;
        }
        return live_send_rest(c);
}

/* Waits until all events in the rings have arrived. Returns how many in mode all have not. */
static uint64_t finish_all_remote(struct live_server *s)
{
        uint64_t deadline_ns = clock_now_ns() + END_NS;
        bool is_done[LIVE_CONSUMERS_MAX] = {}, all_done;
        uint64_t missed = 0;

        do {
                all_done = true;
                for (size_t i = 0; i < LIVE_CONSUMERS_MAX; i++) {
                        struct connection *c = &s->connections[i];

                        is_done[i] |= c->io.fd < 0 || c->consumer->group == LIVE_NO_GROUP || finish_remote(c);
                        all_done &= is_done[i];
                }
        } while (!all_done && clock_now_ns() < deadline_ns && poll(NULL, 0, END_LOOK_MS) == 0);
        for (size_t i = 0; i < LIVE_CONSUMERS_MAX; i++) {
                const struct connection *c = &s->connections[i];

                if (!is_done[i] && s->core.groups[c->consumer->group].request.mode == LIVE_ALL)
                        missed += live_count_missed(c);
        }
        return missed;
}

uint64_t live_server_finish(struct live_server *s, bool ended)
{
        if (!s || s->is_finished)
                return 0;
        s->is_finished = true;
        finish_groups(s);
        for (struct connection *c = s->connections; c < s->connections + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd >= 0 && c->consumer->group != LIVE_NO_GROUP)
                        tell_end(c, &s->core.groups[c->consumer->group].counts, ended);
        }
        return live_is_remote(s) ? finish_all_remote(s) : 0;
}

struct live_server *live_server_free(struct live_server *s, bool ended)
{
        if (!s)
                return NULL;
        (void)live_server_finish(s, ended);
        for (struct connection *c = s->connections; c < s->connections + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd >= 0) {
                        loop_remove(s->loop, &c->io);
                        close(c->io.fd);
                }
        }
        if (s->io.fd >= 0)
                loop_remove(s->loop, &s->io);
        if (live_is_remote(s)) {
                loop_remove(s->loop, &s->wake);
                close(s->wake.fd);
        }
        if (s->io.fd >= 0 && s->listener.fd < 0)
                close(s->io.fd);
        local_listener_close(&s->listener);
        auth_forget(&s->key);
        live_groups_fini(&s->core);
        pthread_mutex_destroy(&s->mutex);
        free(s);
        return NULL;
}
