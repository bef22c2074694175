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
/* A record has at least its head and 64 bytes of an event. */
#define RECORD_LEAST (2 * LIVE_RECORD_BYTES)
/* Bytes of a dead consumer that are passed on at once; more would delay the event loop, or the event that is
 * being offered. */
#define PASS_ON_AT_END (4u << 20)
#define PASS_ON_AT_OFFER (256u << 10)

/* Consumers that share events; a consumer without a group name has a group of its own. */
struct group {
        struct live_request request;
        struct live_counts counts;
        unsigned members; /* 0: unused */
        unsigned dead;    /* consumers that have ended, and whose unread events wait for room at the others */
        uint32_t next;    /* the consumer to which the next event is offered first */
};

/* An event in a ring. The consumer may have changed the records there, so this is what its end leaves to the
 * group. */
struct unread {
        uint64_t at; /* position of the event */
        uint64_t event_bytes;
};

struct consumer {
        struct live_server *server;
        struct loop_io io; /* fd -1: unused, or dead */
        uint32_t group;    /* NO_GROUP: no request received yet */
        bool is_dead;      /* it has ended, but its ring has events for the group */
        char line[LIVE_LINE_MAX];
        size_t line_bytes;
        uint64_t number; /* serial number of its connection */
        struct live_ring ring;
        /* A queue of the events that it has not released, if they are passed on when it ends; else NULL. */
        struct unread *unread;
        uint32_t unread_first, n_unread;
};

struct live_server {
        struct loop *loop;
        struct local_listener listener;
        struct loop_io io;
        uint64_t connections;
        uint64_t lost; /* events of ended consumers of a group, which no other one got */
        /* Protects groups, and consumers that have one. The loop's thread alone changes the members of
         * groups, so it reads these without the mutex. */
        pthread_mutex_t mutex;
        _Atomic unsigned wanted; /* consumers that have a group */
        bool allows_all;
        struct consumer consumers[LIVE_CONSUMERS_MAX];
        struct group groups[LIVE_CONSUMERS_MAX];
};

static void pass_on(struct live_server *s, struct group *g, uint64_t most_bytes);

/* ---- Events that a consumer leaves to its group; the caller holds the mutex ---- */

static bool is_passed_on(const struct live_request *r)
{
        return r->group[0] && r->mode != LIVE_NEWEST;
}

static uint32_t unread_room(const struct consumer *c)
{
        return (uint32_t)(c->ring.data_bytes / RECORD_LEAST);
}

static struct unread *unread_at(const struct consumer *c, uint32_t i)
{
        return &c->unread[(c->unread_first + i) % unread_room(c)];
}

static void pop_unread(struct consumer *c)
{
        c->unread_first = --c->n_unread > 0 ? (c->unread_first + 1) % unread_room(c) : 0;
}

static void drop_released(struct consumer *c)
{
        while (c->n_unread > 0 && unread_at(c, 0)->at < c->ring.released)
                pop_unread(c);
}

/* The event that was written last. */
static void push_unread(struct consumer *c, size_t event_bytes)
{
        uint64_t room_bytes = ALIGN_UP((uint64_t)event_bytes, (uint64_t)64);

        drop_released(c);
        assert(c->n_unread < unread_room(c));
        *unread_at(c, c->n_unread++) = (struct unread){c->ring.written - room_bytes, event_bytes};
}

static void free_ring(struct consumer *c)
{
        if (c->ring.head)
                live_ring_free(&c->ring);
        free(take_ptr(c->unread));
        c->unread_first = c->n_unread = 0;
}

static void bury(struct consumer *c)
{
        c->server->groups[c->group].dead--;
        c->server->lost += c->n_unread;
        c->group = NO_GROUP;
        c->is_dead = false;
        free_ring(c);
}

static void bury_all(struct live_server *s, const struct group *g)
{
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->is_dead && s->groups + c->group == g)
                        bury(c);
        }
}

/* The dead consumer that connected first, and whose events may be lost; NULL: there is none. */
static struct consumer *oldest_dead(struct live_server *s)
{
        struct consumer *oldest = NULL;

        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->is_dead && s->groups[c->group].request.mode != LIVE_ALL &&
                    (!oldest || c->number < oldest->number))
                        oldest = c;
        }
        return oldest;
}

/* ---- The thread of the loop ---- */

static void leave_group(struct consumer *c)
{
        struct live_server *s = c->server;
        struct group *g = &s->groups[c->group];

        atomic_fetch_sub(&s->wanted, 1);
        /* A false position releases nothing more. */
        (void)live_ring_unread_bytes(&c->ring);
        drop_released(c);
        if (--g->members > 0 && c->n_unread > 0) {
                c->is_dead = true;
                g->dead++;
                pass_on(s, g, PASS_ON_AT_END);
                return;
        }
        if (g->members == 0)
                bury_all(s, g);
        s->lost += c->n_unread;
        c->group = NO_GROUP;
        free_ring(c);
}

static void drop(struct consumer *c)
{
        struct live_server *s = c->server;

        loop_remove(s->loop, &c->io);
        pthread_mutex_lock(&s->mutex);
        if (c->group != NO_GROUP)
                leave_group(c);
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

/* `unread`: memory for this queue of the consumer, or NULL. */
static int join_group(struct consumer *c, const struct live_request *request, const struct live_ring *ring,
                      struct unread *unread)
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
        c->unread = unread;
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

/* Returns the bytes that new rings may have. Dead consumers lose their events if this makes room for `bytes`.
 */
static uint64_t make_room(struct live_server *s, uint64_t bytes)
{
        struct consumer *dead;
        uint64_t left;

        pthread_mutex_lock(&s->mutex);
        while ((left = LIVE_RINGS_MAX_BYTES - count_ring_bytes(s)) < bytes && (dead = oldest_dead(s)))
                bury(dead);
        pthread_mutex_unlock(&s->mutex);
        return left;
}

static int make_ring(struct live_ring *ret, struct live_server *s, uint64_t bytes, int *ret_fd,
                     struct error *e)
{
        uint64_t left = make_room(s, bytes);
        int r;

        if (bytes > left)
                return error_set(e, -ENOBUFS,
                                 "ring: the rings of an SFI have at most 256MiB together, of which "
                                 "%lluKiB are left",
                                 (unsigned long long)left >> 10);
        r = live_ring_new(ret, bytes, ret_fd);
        return r < 0 ? error_set(e, r, "no memory for the ring: %m") : 0;
}

/* False: the connection must end. */
static bool begin(struct consumer *c)
{
        _cleanup_close_ int fd = -1;
        struct live_request request;
        _cleanup_free_ struct unread *unread = NULL;
        struct live_ring ring = {};
        struct error e = {};
        int r = live_request_parse(&request, c->line, &e);

        if (r >= 0 && request.mode == LIVE_ALL && !c->server->allows_all)
                r = error_set(&e, -EPERM,
                              "mode: all is not allowed at this SFI; expected newest or skip, or live.all = "
                              "yes there");
        if (r >= 0)
                r = make_ring(&ring, c->server, request.ring_bytes, &fd, &e);
        if (r >= 0 && is_passed_on(&request)) {
                assert(ring.data_bytes >= RECORD_LEAST);
                unread = calloc(ring.data_bytes / RECORD_LEAST, sizeof *unread);
                if (!unread)
                        r = error_set(&e, -ENOMEM, "no memory for the ring");
        }
        if (r >= 0) {
                r = join_group(c, &request, &ring, unread);
                if (r < 0)
                        error_set(&e, r, "group: another consumer of this group has other options");
        }
        if (r >= 0) {
                unread = NULL; /* the consumer owns it */
                return send_ring(c->io.fd, fd) >= 0;
        }
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

static struct consumer *find_free(struct live_server *s)
{
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd < 0 && !c->is_dead)
                        return c;
        }
        return NULL;
}

static struct consumer *find_silent(struct live_server *s)
{
        struct consumer *oldest = NULL;

        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd >= 0 && c->group == NO_GROUP && (!oldest || c->number < oldest->number))
                        oldest = c;
        }
        return oldest;
}

/* Returns a free entry, or the entry of the oldest client without a request, or of a dead consumer, whose
 * events are lost then. NULL: there is none. */
static struct consumer *find_place(struct live_server *s)
{
        struct consumer *c, *dead;

        pthread_mutex_lock(&s->mutex);
        c = find_free(s);
        if (!c && !find_silent(s) && (dead = oldest_dead(s))) {
                bury(dead);
                c = dead;
        }
        pthread_mutex_unlock(&s->mutex);
        if (!c && (c = find_silent(s)))
                drop(c);
        return c;
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

int live_server_new(struct live_server **ret, const char *path, bool allows_all, struct loop *loop,
                    struct error *e)
{
        struct live_server *s = calloc(1, sizeof *s);
        int r;

        if (!s)
                return error_set(e, -ENOMEM, "out of memory");
        s->loop = loop;
        s->allows_all = allows_all;
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

/* Passes on what fits of the events of consumers that have ended, also if the loop has not yet seen the end.
 */
static void finish_groups(struct live_server *s)
{
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd >= 0 && c->group != NO_GROUP && !receive(c))
                        drop(c);
        }
        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX; g++)
                pass_on(s, g, UINT64_MAX);
}

static void tell_end(struct consumer *c, const struct live_counts *counts, bool ended)
{
        struct live_ring_head *head = c->ring.head;

        head->offered = counts->offered;
        head->given = counts->given;
        head->skipped = counts->skipped;
        atomic_store(&head->ended, ended);
}

struct live_server *live_server_free(struct live_server *s, bool ended)
{
        if (!s)
                return NULL;
        finish_groups(s);
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->io.fd >= 0 && c->group != NO_GROUP)
                        tell_end(c, &s->groups[c->group].counts, ended);
                free_ring(c);
                if (c->io.fd >= 0) {
                        loop_remove(s->loop, &c->io);
                        close(c->io.fd);
                }
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
        live_encode_fn encode;
        void *ctx;
        const struct iovec *iov; /* NULL: not encoded */
        size_t n_iov, size_bytes;
        int error;
        bool is_repeated; /* the event of a dead consumer, which is counted already */
};

static bool encode(struct offer *o, bool needed)
{
        if (!o->iov && o->error >= 0)
                o->error = o->encode(o->ctx, needed, &o->iov, &o->n_iov, &o->size_bytes);
        return o->error >= 0;
}

static bool give(struct consumer *c, const struct group *g, struct offer *o)
{
        struct live_record record = {
                .offered = g->counts.offered,
                .given = g->counts.given + !o->is_repeated,
                .skipped = g->counts.skipped,
                .utc_ns = clock_utc_ns(),
        };
        int64_t unread = live_ring_unread_bytes(&c->ring);
        int r = (int)MIN(unread, 0);

        if (unread >= 0) {
                if ((g->request.mode == LIVE_NEWEST && unread > 0) || !encode(o, g->request.mode == LIVE_ALL))
                        return false;
                r = live_ring_write(&c->ring, &record, o->iov, o->n_iov, o->size_bytes);
        }
        if (r < 0) {
                /* The loop detects the end of the connection. */
                shutdown(c->io.fd, SHUT_RDWR);
                return false;
        }
        if (r != LIVE_RING_WRITTEN)
                return false;
        if (c->unread)
                push_unread(c, o->size_bytes);
        if (live_ring_needs_wake(&c->ring))
                (void)send(c->io.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        return true;
}

static bool give_to_group(struct live_server *s, struct group *g, struct offer *o)
{
        uint32_t group = (uint32_t)(g - s->groups);

        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX; i++) {
                uint32_t at = (g->next + i) % LIVE_CONSUMERS_MAX;
                struct consumer *c = &s->consumers[at];

                if (c->group == group && !c->is_dead && give(c, g, o)) {
                        g->next = at + 1;
                        return true;
                }
        }
        return false;
}

/* Gives unread events of a dead consumer to the others of its group. Returns their bytes. */
static uint64_t pass_on_from(struct live_server *s, struct consumer *c, uint64_t most_bytes)
{
        struct group *g = &s->groups[c->group];
        uint64_t bytes = 0;

        while (c->n_unread > 0 && bytes < most_bytes) {
                const struct unread *u = unread_at(c, 0);
                struct iovec iov = {c->ring.data + u->at % c->ring.data_bytes, u->event_bytes};
                struct offer o = {.iov = &iov, .n_iov = 1, .size_bytes = iov.iov_len, .is_repeated = true};

                if (!give_to_group(s, g, &o))
                        break;
                bytes += iov.iov_len;
                pop_unread(c);
        }
        if (c->n_unread == 0)
                bury(c);
        return bytes;
}

static void pass_on(struct live_server *s, struct group *g, uint64_t most_bytes)
{
        uint32_t group = (uint32_t)(g - s->groups);

        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX && g->dead > 0; c++) {
                if (c->is_dead && c->group == group) {
                        uint64_t bytes = pass_on_from(s, c, most_bytes);

                        most_bytes -= MIN(most_bytes, bytes);
                }
        }
}

static void offer_to_group(struct live_server *s, struct group *g, struct offer *o,
                           struct live_outcome *outcome)
{
        if (give_to_group(s, g, o)) {
                g->counts.given++;
                outcome->given++;
        } else {
                g->counts.skipped++;
                outcome->skipped++;
                outcome->missed += g->request.mode == LIVE_ALL;
        }
}

/* ---- Mode all ---- */

/* The loop detects the end of a consumer whose position is invalid. */
static bool can_accept(struct consumer *c, size_t size_bytes)
{
        int64_t unread = live_ring_unread_bytes(&c->ring);

        if (unread < 0)
                shutdown(c->io.fd, SHUT_RDWR);
        return unread >= 0 && live_ring_has_room(&c->ring, (uint64_t)unread, size_bytes);
}

/* An event that no ring of the group can hold does not wait. */
static bool group_has_room(struct live_server *s, const struct group *g, size_t size_bytes)
{
        uint32_t group = (uint32_t)(g - s->groups);

        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->group == group && !c->is_dead &&
                    (can_accept(c, size_bytes) || !live_ring_can_hold(&c->ring, size_bytes)))
                        return true;
        }
        return false;
}

static bool must_wait(struct live_server *s, const struct group *g, const struct live_event *event,
                      struct offer *o)
{
        struct live_counts counts = g->counts;

        return g->members > 0 && g->request.mode == LIVE_ALL &&
               live_request_selects(&g->request, &counts, event) && encode(o, true) &&
               !group_has_room(s, g, o->size_bytes);
}

/* All under one mutex: what has room must still have it when the event is given. */
struct live_outcome live_server_offer(struct live_server *s, const struct live_event *event, bool may_wait,
                                      live_encode_fn encode_event, void *ctx)
{
        struct offer o = {.encode = encode_event, .ctx = ctx};
        struct live_outcome outcome = {};

        pthread_mutex_lock(&s->mutex);
        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX; g++) {
                pass_on(s, g, PASS_ON_AT_OFFER);
                outcome.waits |= may_wait && !outcome.waits && must_wait(s, g, event, &o);
        }
        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX && !outcome.waits; g++) {
                if (g->members > 0 && live_request_selects(&g->request, &g->counts, event))
                        offer_to_group(s, g, &o, &outcome);
        }
        pthread_mutex_unlock(&s->mutex);
        return outcome;
}

bool live_server_is_settled(struct live_server *s)
{
        unsigned dead = 0;

        if (!s)
                return true;
        pthread_mutex_lock(&s->mutex);
        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX; g++) {
                if (g->dead == 0 || g->request.mode != LIVE_ALL)
                        continue;
                pass_on(s, g, PASS_ON_AT_OFFER);
                dead += g->dead;
        }
        pthread_mutex_unlock(&s->mutex);
        return dead == 0;
}

uint64_t live_server_end_groups(struct live_server *s)
{
        uint64_t lost;

        if (!s)
                return 0;
        pthread_mutex_lock(&s->mutex);
        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX; g++) {
                pass_on(s, g, UINT64_MAX);
                bury_all(s, g);
        }
        lost = s->lost;
        pthread_mutex_unlock(&s->mutex);
        return lost;
}
