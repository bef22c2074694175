/* Groups of consumers: which of them gets an event, and what happens to the events of those that end. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/util.h"
#include "live_internal.h"

/* Bytes of a dead consumer that are passed on at once; more would delay the event loop, or the event that is
 * being offered. */
#define PASS_ON_AT_END (4u << 20)
#define PASS_ON_AT_OFFER (256u << 10)

/* ---- Events that a consumer leaves to its group ---- */

bool live_is_remembered(const struct live_server *s, const struct live_request *r)
{
        return (r->group[0] && r->mode != LIVE_NEWEST) || (r->mode == LIVE_ALL && s->n_tags > 0);
}

static void begin_copy(struct live_server *s, uint32_t tag)
{
        if (tag != NO_TAG)
                s->copies[tag].out++;
}

static void end_copy(struct live_server *s, uint32_t tag, bool acknowledged)
{
        struct copies *c;

        if (tag == NO_TAG)
                return;
        c = &s->copies[tag];
        c->is_acknowledged |= acknowledged;
        if (--c->out > 0)
                return;
        s->ends[s->n_ends++] = (struct live_end){tag, c->is_acknowledged};
        *c = (struct copies){};
}

static uint32_t unread_room(const struct consumer *c)
{
        return (uint32_t)(c->ring.data_bytes / LIVE_RECORD_LEAST_BYTES);
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
        while (c->n_unread > 0 && unread_at(c, 0)->at < c->ring.released) {
                end_copy(c->server, unread_at(c, 0)->tag, true);
                pop_unread(c);
        }
}

static void lose_unread(struct consumer *c)
{
        for (; c->n_unread > 0; pop_unread(c)) {
                c->server->lost += unread_at(c, 0)->tag == NO_TAG;
                end_copy(c->server, unread_at(c, 0)->tag, false);
        }
}

/* The event that was written last. */
static void push_unread(struct consumer *c, size_t event_bytes, uint32_t tag)
{
        uint64_t room_bytes = ALIGN_UP((uint64_t)event_bytes, (uint64_t)64);

        drop_released(c);
        assert(c->n_unread < unread_room(c));
        *unread_at(c, c->n_unread++) = (struct unread){c->ring.written - room_bytes, event_bytes, tag};
        begin_copy(c->server, tag);
}

void live_free_ring(struct consumer *c)
{
        if (c->ring.head)
                live_ring_free(&c->ring);
        free(take_ptr(c->unread));
        c->unread_first = c->n_unread = 0;
}

void live_bury(struct consumer *c)
{
        c->server->groups[c->group].dead--;
        lose_unread(c);
        c->group = NO_GROUP;
        c->is_dead = false;
        live_free_ring(c);
}

static void bury_all(struct live_server *s, const struct group *g)
{
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->is_dead && s->groups + c->group == g)
                        live_bury(c);
        }
}

/* The dead consumer that connected first, and whose events may be lost; NULL: there is none. */
struct consumer *live_oldest_dead(struct live_server *s)
{
        struct consumer *oldest = NULL;

        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->is_dead && s->groups[c->group].request.mode != LIVE_ALL &&
                    (!oldest || c->number < oldest->number))
                        oldest = c;
        }
        return oldest;
}

void live_leave_group(struct consumer *c)
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
                live_pass_on(s, g, PASS_ON_AT_END);
                return;
        }
        if (g->members == 0)
                bury_all(s, g);
        lose_unread(c);
        c->group = NO_GROUP;
        live_free_ring(c);
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
int live_join_group(struct consumer *c, const struct live_request *request, const struct live_ring *ring,
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
        uint32_t tag;
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
        bool is_waiting = g->request.mode != LIVE_NEWEST || unread == 0;
        int r = unread < 0 ? (int)unread : LIVE_RING_FULL;

        if (unread >= 0 && is_waiting) {
                if (!encode(o, g->request.mode == LIVE_ALL))
                        return false;
                r = live_ring_write(&c->ring, &record, o->iov, o->n_iov, o->size_bytes);
        }
        if (r < 0) {
                /* The loop detects the end of the connection. */
                shutdown(c->io.fd, SHUT_RDWR);
                return false;
        }
        if (r != LIVE_RING_WRITTEN) {
                live_notice_silence(c);
                return false;
        }
        if (c->unread)
                push_unread(c, o->size_bytes, g->request.mode == LIVE_ALL ? o->tag : NO_TAG);
        c->has_news = true;
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

static void wake_all(struct live_server *s)
{
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (!c->has_news)
                        continue;
                c->has_news = false;
                if (c->group != NO_GROUP && !c->is_dead && live_ring_needs_wake(&c->ring))
                        live_wake(c);
        }
}

void live_server_wake(struct live_server *s)
{
        pthread_mutex_lock(&s->mutex);
        wake_all(s);
        pthread_mutex_unlock(&s->mutex);
}

/* Gives unread events of a dead consumer to the others of its group. Returns their bytes. */
static uint64_t pass_on_from(struct live_server *s, struct consumer *c, uint64_t most_bytes)
{
        struct group *g = &s->groups[c->group];
        uint64_t bytes = 0;

        while (c->n_unread > 0 && bytes < most_bytes) {
                const struct unread *u = unread_at(c, 0);
                struct iovec iov = {c->ring.data + u->at % c->ring.data_bytes, u->event_bytes};
                struct offer o = {.iov = &iov,
                                  .n_iov = 1,
                                  .size_bytes = iov.iov_len,
                                  .is_repeated = true,
                                  .tag = u->tag};

                if (!give_to_group(s, g, &o))
                        break;
                bytes += iov.iov_len;
                end_copy(s, u->tag, false); /* another consumer has it */
                pop_unread(c);
        }
        if (c->n_unread == 0)
                live_bury(c);
        return bytes;
}

void live_pass_on(struct live_server *s, struct group *g, uint64_t most_bytes)
{
        uint32_t group = (uint32_t)(g - s->groups);

        if (g->dead == 0)
                return;
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX && g->dead > 0; c++) {
                if (c->is_dead && c->group == group) {
                        uint64_t bytes = pass_on_from(s, c, most_bytes);

                        most_bytes -= MIN(most_bytes, bytes);
                }
        }
        wake_all(s);
}

static void offer_to_group(struct live_server *s, struct group *g, struct offer *o,
                           struct live_outcome *outcome)
{
        if (give_to_group(s, g, o)) {
                g->counts.given += !o->is_repeated;
                outcome->given += !o->is_repeated;
                outcome->is_held |= o->tag != NO_TAG && g->request.mode == LIVE_ALL;
        } else if (!o->is_repeated) {
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
        if (unread >= 0 && live_ring_has_room(&c->ring, (uint64_t)unread, size_bytes))
                return true;
        live_notice_silence(c);
        return false;
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

static bool has_consumer_of_all(const struct live_server *s)
{
        for (const struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX; g++) {
                if (g->members > 0 && g->request.mode == LIVE_ALL)
                        return true;
        }
        return false;
}

/* All under one mutex: what has room must still have it when the event is given. */
struct live_outcome live_server_offer(struct live_server *s, const struct live_event *event, bool may_wait,
                                      live_encode_fn encode_event, void *ctx)
{
        struct offer o = {.encode = encode_event,
                          .ctx = ctx,
                          .is_repeated = event->is_again,
                          .tag = s->n_tags > 0 ? event->tag : NO_TAG};
        struct live_outcome outcome = {};

        pthread_mutex_lock(&s->mutex);
        outcome.has_no_consumer = s->n_tags > 0 && !has_consumer_of_all(s);
        outcome.waits = outcome.has_no_consumer && may_wait;
        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX; g++) {
                live_pass_on(s, g, PASS_ON_AT_OFFER);
                outcome.waits |= may_wait && !outcome.waits && must_wait(s, g, event, &o);
        }
        for (struct group *g = s->groups; g < s->groups + LIVE_CONSUMERS_MAX && !outcome.waits; g++) {
                if (g->members > 0 &&
                    (event->is_again ? g->request.mode == LIVE_ALL
                                     : live_request_selects(&g->request, &g->counts, event)))
                        offer_to_group(s, g, &o, &outcome);
        }
        pthread_mutex_unlock(&s->mutex);
        return outcome;
}

size_t live_server_collect(struct live_server *s, struct live_end *ends, size_t n)
{
        pthread_mutex_lock(&s->mutex);
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                /* The loop's thread accepts connections without the mutex, so the descriptor is read last. */
                if (c->n_unread == 0 || c->io.fd < 0)
                        continue;
                /* The loop detects the end of a consumer whose position is invalid. */
                if (live_ring_unread_bytes(&c->ring) < 0)
                        shutdown(c->io.fd, SHUT_RDWR);
                drop_released(c);
        }
        n = MIN(n, s->n_ends);
        for (size_t i = 0; i < n; i++)
                ends[i] = s->ends[--s->n_ends];
        pthread_mutex_unlock(&s->mutex);
        return n;
}

static bool holds(const struct consumer *c, uint32_t tag)
{
        for (uint32_t i = 0; i < c->n_unread; i++) {
                if (unread_at(c, i)->tag == tag)
                        return true;
        }
        return false;
}

void live_server_end_holders(struct live_server *s, uint32_t tag)
{
        pthread_mutex_lock(&s->mutex);
        for (struct consumer *c = s->consumers; c < s->consumers + LIVE_CONSUMERS_MAX; c++) {
                /* The loop detects the end of the connection. */
                if (holds(c, tag) && c->io.fd >= 0)
                        shutdown(c->io.fd, SHUT_RDWR);
        }
        pthread_mutex_unlock(&s->mutex);
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
                live_pass_on(s, g, PASS_ON_AT_OFFER);
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
                live_pass_on(s, g, UINT64_MAX);
                bury_all(s, g);
        }
        lost = s->lost;
        pthread_mutex_unlock(&s->mutex);
        return lost;
}
