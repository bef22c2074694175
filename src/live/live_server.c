/* Accepts consumers in the event loop, and writes events to their rings in the thread that builds events. */
#include "live_server.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/util.h"
#include "live_ring.h"
#include "net/local_listener.h"

#define ACCEPTS_MAX 8
#define NO_GROUP UINT32_MAX

/* Consumers that share events; a consumer without a group name has a group of its own. */
struct group {
        struct live_request request;
        struct live_counts counts;
        unsigned members; /* 0: unused */
        uint32_t next;    /* the consumer to which the next event is offered first */
};

struct consumer {
        struct live_server *server;
        struct loop_io io; /* fd -1: unused */
        uint32_t group;    /* NO_GROUP: no request received yet */
        char line[LIVE_LINE_MAX];
        size_t line_bytes;
        uint64_t number; /* serial number of its connection */
        struct live_ring ring;
};

struct live_server {
        struct loop *loop;
        struct local_listener listener;
        struct loop_io io;
        uint64_t connections;
        /* The loop's thread changes groups, and consumers that have a group, only while it holds the mutex.
         */
        pthread_mutex_t mutex;
        _Atomic unsigned wanted; /* consumers that have a group */
        struct consumer consumers[LIVE_CONSUMERS_MAX];
        struct group groups[LIVE_CONSUMERS_MAX];
};

/* ---- The thread of the loop ---- */

static void leave_group(struct consumer *c)
{
        struct live_server *s = c->server;

        if (c->group == NO_GROUP)
                return;
        pthread_mutex_lock(&s->mutex);
        s->groups[c->group].members--;
        c->group = NO_GROUP;
        atomic_fetch_sub(&s->wanted, 1);
        pthread_mutex_unlock(&s->mutex);
}

static void drop(struct consumer *c)
{
        struct live_server *s = c->server;

        leave_group(c);
        loop_remove(s->loop, &c->io);
        close(c->io.fd);
        live_ring_free(&c->ring);
        /* The other thread may be using the group. */
        c->io.fd = -1;
        c->line_bytes = 0;
}

/* If the buffer of the client's socket is full, the client gets no answer. */
static void refuse(int fd, const char *why)
{
        char line[LIVE_LINE_MAX];
        int n = snprintf(line, sizeof line, "error %.450s\n", why);

        (void)send(fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Returns the group of this name, or an unused one. There are as many groups as consumers, so one is free. */
static struct group *find_group(struct live_server *s, const struct live_request *request)
{
        struct group *free_one = NULL;

        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX; g++) {
                if (g->members == 0)
                        free_one = free_one ?: g;
                else if (request->group[0] && strcmp(g->request.group, request->group) == 0)
                        return g;
        }
        return free_one;
}

static int join_group(struct consumer *c, const struct live_request *request, const struct live_ring *ring)
{
        struct live_server *s = c->server;
        struct group *g = find_group(s, request);

        assert(g);
        if (g->members > 0 && !live_request_equals(&g->request, request))
                return -EINVAL;
        pthread_mutex_lock(&s->mutex);
        if (g->members++ == 0)
                *g = (struct group){.request = *request, .members = 1};
        c->ring = *ring;
        c->group = (uint32_t)(g - s->groups);
        atomic_fetch_add(&s->wanted, 1);
        pthread_mutex_unlock(&s->mutex);
        return 0;
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

        for (const struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++)
                bytes += c->ring.data_bytes;
        return bytes;
}

static int make_ring(struct live_ring *ret, const struct live_server *s, uint64_t bytes, int *ret_fd,
                     struct error *e)
{
        uint64_t used = count_ring_bytes(s);
        int r;

        if (bytes > LIVE_RINGS_MAX_BYTES - used)
                return error_set(e, -ENOBUFS,
                                 "ring: the rings of an SFI have at most 256MiB together, of which "
                                 "%lluKiB are left",
                                 (unsigned long long)(LIVE_RINGS_MAX_BYTES - used) >> 10);
        r = live_ring_new(ret, bytes, ret_fd);
        return r < 0 ? error_set(e, r, "no memory for the ring: %m") : 0;
}

/* False: the connection must end. */
static bool begin(struct consumer *c)
{
        _cleanup_close_ int fd = -1;
        struct live_request request;
        struct live_ring ring = {};
        struct error e = {};
        int r = live_request_parse(&request, c->line, &e);

        if (r >= 0)
                r = make_ring(&ring, c->server, request.ring_bytes, &fd, &e);
        if (r >= 0) {
                r = join_group(c, &request, &ring);
                if (r < 0)
                        error_set(&e, r, "group: another consumer of this group has other options");
        }
        if (r >= 0)
                return send_ring(c->io.fd, fd) >= 0;
        if (ring.head)
                live_ring_free(&ring);
        refuse(c->io.fd, e.message);
        return false;
}

/* False: the connection must end. */
static bool receive(struct consumer *c)
{
        char *end;
        ssize_t n;

        /* A consumer sends nothing after its request. */
        if (c->group != NO_GROUP)
                return recv(c->io.fd, c->line, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
        n = recv(c->io.fd, c->line + c->line_bytes, sizeof c->line - 1 - c->line_bytes, MSG_DONTWAIT);
        if (n <= 0)
                return n < 0 && (errno == EAGAIN || errno == EINTR);
        c->line_bytes += (size_t)n;
        c->line[c->line_bytes] = '\0';
        end = strchr(c->line, '\n');
        if (end) {
                *end = '\0';
                return begin(c);
        }
        if (c->line_bytes == sizeof c->line - 1)
                refuse(c->io.fd, "the request is too long");
        return c->line_bytes < sizeof c->line - 1;
}

static void consumer_is_ready(void *ctx, uint32_t events)
{
        struct consumer *c = ctx;

        (void)events;
        if (!receive(c))
                drop(c);
}

/* Returns a free entry, or the entry of the oldest client without a request. */
static struct consumer *find_place(struct live_server *s)
{
        struct consumer *oldest = NULL;

        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd < 0)
                        return c;
                if (c->group == NO_GROUP && (!oldest || c->number < oldest->number))
                        oldest = c;
        }
        if (oldest)
                drop(oldest);
        return oldest;
}

static void listener_is_ready(void *ctx, uint32_t events)
{
        struct live_server *s = ctx;

        (void)events;
        for (int i = 0; i < ACCEPTS_MAX; i++) {
                int fd = accept4(s->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                struct consumer *c;

                if (fd < 0)
                        return;
                c = find_place(s);
                if (!c) {
                        refuse(fd, "this SFI has as many consumers as it can serve");
                        close(fd);
                        continue;
                }
                c->number = s->connections++;
                c->io = (struct loop_io){.fd = fd, .events = EPOLLIN, .ready = consumer_is_ready, .ctx = c};
                if (loop_add(s->loop, &c->io) < 0)
                        drop(c);
                else
                        /* The next client may replace a client that has not sent its request. */
                        consumer_is_ready(c, 0);
        }
}

int live_server_new(struct live_server **ret, const char *path, struct loop *loop, struct error *e)
{
        struct live_server *s = calloc(1, sizeof *s);
        int r;

        if (!s)
                return error_set(e, -ENOMEM, "out of memory");
        s->loop = loop;
        s->listener.fd = -1;
        pthread_mutex_init(&s->mutex, NULL);
        for (size_t i = 0; i < LIVE_CONSUMERS_MAX; i++)
                s->consumers[i] = (struct consumer){.server = s, .io.fd = -1, .group = NO_GROUP};
        r = local_listener_open(&s->listener, path, e);
        if (r >= 0 && chmod(path, 0660) < 0)
                r = error_set(e, -errno, "cannot change its mode: %m");
        if (r >= 0) {
                s->io = (struct loop_io){
                        .fd = s->listener.fd, .events = EPOLLIN, .ready = listener_is_ready, .ctx = s};
                r = loop_add(loop, &s->io);
                if (r < 0)
                        error_set(e, r, "cannot watch the socket: %m");
        }
        if (r < 0) {
                s->io.fd = -1;
                live_server_free(s, false);
                return r;
        }
        *ret = s;
        return 0;
}

struct live_server *live_server_free(struct live_server *s, bool ended)
{
        if (!s)
                return NULL;
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd < 0)
                        continue;
                if (c->group != NO_GROUP)
                        atomic_store(&c->ring.head->ended, ended);
                drop(c);
        }
        if (s->io.fd >= 0)
                loop_remove(s->loop, &s->io);
        local_listener_close(&s->listener);
        pthread_mutex_destroy(&s->mutex);
        free(s);
        return NULL;
}

/* ---- The thread that builds events ---- */

bool live_server_is_wanted(const struct live_server *s)
{
        return s &&
               atomic_load_explicit(&((struct live_server *)(uintptr_t)s)->wanted, memory_order_relaxed) > 0;
}

/* An event that is being offered; its bytes are encoded for the first consumer that has room. */
struct offer {
        int (*encode)(void *ctx, const struct iovec **iov, size_t *n_iov, size_t *size_bytes);
        void *ctx;
        const struct iovec *iov; /* NULL: not encoded */
        size_t n_iov, size_bytes;
        int error;
};

static bool encode(struct offer *o)
{
        if (!o->iov && o->error >= 0)
                o->error = o->encode(o->ctx, &o->iov, &o->n_iov, &o->size_bytes);
        return o->error >= 0;
}

static bool give(struct consumer *c, const struct group *g, struct offer *o)
{
        struct live_record record = {
                .offered = g->counts.offered,
                .given = g->counts.given + 1,
                .skipped = g->counts.skipped,
                .utc_ns = clock_utc_ns(),
        };
        int64_t unread = live_ring_unread_bytes(&c->ring);
        int r = (int)MIN(unread, 0);

        if (unread >= 0) {
                if ((g->request.mode == LIVE_NEWEST && unread > 0) || !encode(o))
                        return false;
                r = live_ring_write(&c->ring, &record, o->iov, o->n_iov, o->size_bytes);
        }
        if (r < 0) {
                /* The loop detects the end of the connection. */
                shutdown(c->io.fd, SHUT_RDWR);
                return false;
        }
        if (r == LIVE_RING_WRITTEN && live_ring_needs_wake(&c->ring))
                (void)send(c->io.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        return r == LIVE_RING_WRITTEN;
}

static bool give_to_group(struct live_server *s, struct group *g, struct offer *o)
{
        uint32_t group = (uint32_t)(g - s->groups);

        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX; i++) {
                uint32_t at = (g->next + i) % LIVE_CONSUMERS_MAX;

                if (s->consumers[at].group == group && give(&s->consumers[at], g, o)) {
                        g->next = at + 1;
                        return true;
                }
        }
        return false;
}

struct live_outcome live_server_offer(struct live_server *s, const struct live_event *event,
                                      int (*encode_event)(void *ctx, const struct iovec **iov, size_t *n_iov,
                                                          size_t *size_bytes),
                                      void *ctx)
{
        struct offer o = {.encode = encode_event, .ctx = ctx};
        struct live_outcome outcome = {};

        pthread_mutex_lock(&s->mutex);
        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX; g++) {
                if (g->members == 0 || !live_request_selects(&g->request, &g->counts, event))
                        continue;
                if (give_to_group(s, g, &o)) {
                        g->counts.given++;
                        outcome.given++;
                } else {
                        g->counts.skipped++;
                        outcome.skipped++;
                }
        }
        pthread_mutex_unlock(&s->mutex);
        return outcome;
}
