/* Groups of consumers: which of them gets an event, and what happens to the events of those that end. */
#include "live_groups.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* Bytes of a dead consumer that are passed on at once; more would delay the event loop, or the event that is
 * being offered. */
#define PASS_ON_AT_END (4u << 20)
#define PASS_ON_AT_OFFER (256u << 10)

static uint32_t index_of(const struct live_groups *all, const struct live_consumer *c)
{
        return (uint32_t)(c - all->consumers);
}

static void end(const struct live_groups *all, const struct live_consumer *c)
{
        all->contact->end(all->ctx, index_of(all, c));
}

/* ---- Events that a consumer leaves to its group ---- */

/* Whether the events that a consumer has not released are passed on when it ends. */
static bool is_remembered(const struct live_groups *all, const struct live_request *r)
{
        return (r->group[0] && r->mode != LIVE_NEWEST) || (r->mode == LIVE_ALL && all->n_tags > 0);
}

static void begin_copy(struct live_groups *all, uint32_t tag)
{
        if (tag != LIVE_NO_TAG)
                all->copies[tag].out++;
}

static void end_copy(struct live_groups *all, uint32_t tag, bool acknowledged)
{
        struct live_copies *c;

        if (tag == LIVE_NO_TAG)
                return;
        c = &all->copies[tag];
        c->is_acknowledged |= acknowledged;
        if (--c->out > 0)
                return;
        all->ends[all->n_ends++] = (struct live_end){tag, c->is_acknowledged};
        *c = (struct live_copies){};
}

static uint32_t unread_room(const struct live_consumer *c)
{
        return (uint32_t)MAX(c->ring.data_bytes / LIVE_RECORD_LEAST_BYTES, 1u);
}

static struct live_unread *unread_at(const struct live_consumer *c, uint32_t i)
{
        return &c->unread[(c->unread_first + i) % unread_room(c)];
}

static void pop_unread(struct live_consumer *c)
{
        c->unread_first = --c->n_unread > 0 ? (c->unread_first + 1) % unread_room(c) : 0;
}

static void drop_released(struct live_groups *all, struct live_consumer *c)
{
        while (c->n_unread > 0 && unread_at(c, 0)->at < c->ring.released) {
                end_copy(all, unread_at(c, 0)->tag, true);
                pop_unread(c);
        }
}

static void lose_unread(struct live_groups *all, struct live_consumer *c)
{
        for (; c->n_unread > 0; pop_unread(c)) {
                all->lost += unread_at(c, 0)->tag == LIVE_NO_TAG;
                end_copy(all, unread_at(c, 0)->tag, false);
        }
}

/* The event that was written last. */
static void push_unread(struct live_groups *all, struct live_consumer *c, size_t event_bytes, uint32_t tag)
{
        uint64_t room_bytes = ALIGN_UP((uint64_t)event_bytes, (uint64_t)64);

        drop_released(all, c);
        assert(c->n_unread < unread_room(c));
        *unread_at(c, c->n_unread++) = (struct live_unread){c->ring.written - room_bytes, event_bytes, tag};
        begin_copy(all, tag);
}

static void free_ring(struct live_consumer *c)
{
        if (c->ring.head)
                live_ring_free(&c->ring);
        free(take_ptr(c->unread));
        c->unread_first = c->n_unread = 0;
}

static void bury(struct live_groups *all, struct live_consumer *c)
{
        all->groups[c->group].dead--;
        lose_unread(all, c);
        c->group = LIVE_NO_GROUP;
        c->is_dead = false;
        free_ring(c);
}

static void bury_all(struct live_groups *all, const struct live_group *g)
{
        for (struct live_consumer *c = all->consumers; c < all->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->is_dead && all->groups + c->group == g)
                        bury(all, c);
        }
}

int live_groups_bury_oldest(struct live_groups *all)
{
        struct live_consumer *oldest = NULL;

        for (struct live_consumer *c = all->consumers; c < all->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->is_dead && all->groups[c->group].request.mode != LIVE_ALL &&
                    (!oldest || c->number < oldest->number))
                        oldest = c;
        }
        if (!oldest)
                return -ENOENT;
        bury(all, oldest);
        return (int)(oldest - all->consumers);
}

static void pass_on(struct live_groups *all, struct live_group *g, uint64_t most_bytes, uint64_t utc_ns);

void live_groups_leave(struct live_groups *all, uint32_t consumer, uint64_t utc_ns)
{
        struct live_consumer *c = &all->consumers[consumer];
        struct live_group *g = &all->groups[c->group];

        atomic_fetch_sub(&all->wanted, 1);
        /* A false position releases nothing more. */
        (void)live_ring_unread_bytes(&c->ring);
        drop_released(all, c);
        if (--g->members > 0 && c->n_unread > 0) {
                c->is_dead = true;
                g->dead++;
                pass_on(all, g, PASS_ON_AT_END, utc_ns);
                return;
        }
        if (g->members == 0)
                bury_all(all, g);
        lose_unread(all, c);
        c->group = LIVE_NO_GROUP;
        free_ring(c);
}

/* Returns the group of this name, or an unused one. There are as many groups as consumers, so one is free. */
static struct live_group *find_group(struct live_groups *all, const struct live_request *request)
{
        struct live_group *free_one = NULL;

        for (struct live_group *g = all->groups; g < all->groups + LIVE_CONSUMERS_MAX; g++) {
                if (g->members == 0)
                        free_one = free_one ?: g;
                else if (request->group[0] && strcmp(g->request.group, request->group) == 0)
                        return g;
        }
        return free_one;
}

int live_groups_join(struct live_groups *all, uint32_t consumer, const struct live_request *request,
                     const struct live_ring *ring)
{
        struct live_consumer *c = &all->consumers[consumer];
        struct live_group *g = find_group(all, request);
        struct live_unread *unread = NULL;

        assert(g && c->group == LIVE_NO_GROUP);
        if (g->members > 0 && !live_request_equals(&g->request, request))
                return -EINVAL;
        c->ring = *ring;
        if (is_remembered(all, request) && !(unread = calloc(unread_room(c), sizeof *unread))) {
                c->ring = (struct live_ring){};
                return -ENOMEM;
        }
        if (g->members++ == 0)
                *g = (struct live_group){.request = *request, .members = 1};
        c->unread = unread;
        c->group = (uint32_t)(g - all->groups);
        atomic_fetch_add(&all->wanted, 1);
        return 0;
}

/* ---- Offers ---- */

/* An event that is being offered; its bytes are encoded for the first consumer that has room. */
struct offer {
        live_encode_fn encode;
        void *ctx;
        const struct iovec *iov; /* NULL: not encoded */
        size_t n_iov, size_bytes;
        int error;
        bool is_repeated; /* the event of a dead consumer, which is counted already */
        uint32_t tag;
        uint64_t utc_ns;
};

static bool encode(struct offer *o, bool needed)
{
        if (!o->iov && o->error >= 0)
                o->error = o->encode(o->ctx, needed, &o->iov, &o->n_iov, &o->size_bytes);
        return o->error >= 0;
}

static bool give(struct live_groups *all, struct live_consumer *c, const struct live_group *g,
                 struct offer *o)
{
        struct live_record record = {
                .offered = g->counts.offered,
                .given = g->counts.given + !o->is_repeated,
                .skipped = g->counts.skipped,
                .utc_ns = o->utc_ns,
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
                end(all, c);
                return false;
        }
        if (r != LIVE_RING_WRITTEN) {
                all->contact->record_full(all->ctx, index_of(all, c));
                return false;
        }
        if (c->unread)
                push_unread(all, c, o->size_bytes, g->request.mode == LIVE_ALL ? o->tag : LIVE_NO_TAG);
        c->has_news = true;
        return true;
}

static bool give_to_group(struct live_groups *all, struct live_group *g, struct offer *o)
{
        uint32_t group = (uint32_t)(g - all->groups);

        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX; i++) {
                uint32_t at = (g->next + i) % LIVE_CONSUMERS_MAX;
                struct live_consumer *c = &all->consumers[at];

                if (c->group == group && !c->is_dead && give(all, c, g, o)) {
                        g->next = at + 1;
                        return true;
                }
        }
        return false;
}

void live_groups_wake(struct live_groups *all)
{
        for (struct live_consumer *c = all->consumers; c < all->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (!c->has_news)
                        continue;
                c->has_news = false;
                if (c->group != LIVE_NO_GROUP && !c->is_dead && live_ring_needs_wake(&c->ring))
                        all->contact->wake(all->ctx, index_of(all, c));
        }
}

/* Gives unread events of a dead consumer to the others of its group. Returns their bytes. */
static uint64_t pass_on_from(struct live_groups *all, struct live_consumer *c, uint64_t most_bytes,
                             uint64_t utc_ns)
{
        struct live_group *g = &all->groups[c->group];
        uint64_t bytes = 0;

        while (c->n_unread > 0 && bytes < most_bytes) {
                const struct live_unread *u = unread_at(c, 0);
                struct iovec iov = {c->ring.data + u->at % c->ring.data_bytes, u->event_bytes};
                struct offer o = {.iov = &iov,
                                  .n_iov = 1,
                                  .size_bytes = iov.iov_len,
                                  .is_repeated = true,
                                  .tag = u->tag,
                                  .utc_ns = utc_ns};

                if (!give_to_group(all, g, &o))
                        break;
                bytes += iov.iov_len;
                end_copy(all, u->tag, false); /* another consumer has it */
                pop_unread(c);
        }
        if (c->n_unread == 0)
                bury(all, c);
        return bytes;
}

/* Passes events that ended consumers left to others of the group, while these have room. */
static void pass_on(struct live_groups *all, struct live_group *g, uint64_t most_bytes, uint64_t utc_ns)
{
        uint32_t group = (uint32_t)(g - all->groups);

        if (g->dead == 0)
                return;
        for (struct live_consumer *c = all->consumers; c < all->consumers + LIVE_CONSUMERS_MAX && g->dead > 0;
             c++) {
                if (c->is_dead && c->group == group) {
                        uint64_t bytes = pass_on_from(all, c, most_bytes, utc_ns);

                        most_bytes -= MIN(most_bytes, bytes);
                }
        }
        live_groups_wake(all);
}

static void offer_to_group(struct live_groups *all, struct live_group *g, struct offer *o,
                           struct live_outcome *outcome)
{
        if (give_to_group(all, g, o)) {
                g->counts.given += !o->is_repeated;
                outcome->given += !o->is_repeated;
                outcome->is_held |= o->tag != LIVE_NO_TAG && g->request.mode == LIVE_ALL;
        } else if (!o->is_repeated) {
                g->counts.skipped++;
                outcome->skipped++;
                outcome->missed += g->request.mode == LIVE_ALL;
        }
}

/* ---- Mode all ---- */

static bool can_accept(struct live_groups *all, struct live_consumer *c, size_t size_bytes)
{
        int64_t unread = live_ring_unread_bytes(&c->ring);

        if (unread < 0)
                end(all, c);
        if (unread >= 0 && live_ring_has_room(&c->ring, (uint64_t)unread, size_bytes))
                return true;
        all->contact->record_full(all->ctx, index_of(all, c));
        return false;
}

/* An event that no ring of the group can hold does not wait. */
static bool group_has_room(struct live_groups *all, const struct live_group *g, size_t size_bytes)
{
        uint32_t group = (uint32_t)(g - all->groups);

        for (struct live_consumer *c = all->consumers; c < all->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->group == group && !c->is_dead &&
                    (can_accept(all, c, size_bytes) || !live_ring_can_hold(&c->ring, size_bytes)))
                        return true;
        }
        return false;
}

static bool must_wait(struct live_groups *all, const struct live_group *g, const struct live_event *event,
                      struct offer *o)
{
        struct live_counts counts = g->counts;

        return g->members > 0 && g->request.mode == LIVE_ALL &&
               live_request_selects(&g->request, &counts, event) && encode(o, true) &&
               !group_has_room(all, g, o->size_bytes);
}

static bool has_consumer_of_all(const struct live_groups *all)
{
        for (const struct live_group *g = all->groups; g < all->groups + LIVE_CONSUMERS_MAX; g++) {
                if (g->members > 0 && g->request.mode == LIVE_ALL)
                        return true;
        }
        return false;
}

struct live_outcome live_groups_offer(struct live_groups *all, const struct live_event *event, bool may_wait,
                                      uint64_t utc_ns, live_encode_fn encode_event, void *ctx)
{
        struct offer o = {.encode = encode_event,
                          .ctx = ctx,
                          .is_repeated = event->is_again,
                          .tag = all->n_tags > 0 ? event->tag : LIVE_NO_TAG,
                          .utc_ns = utc_ns};
        struct live_outcome outcome = {};

        outcome.has_no_consumer = all->n_tags > 0 && !has_consumer_of_all(all);
        outcome.waits = outcome.has_no_consumer && may_wait;
        for (struct live_group *g = all->groups; g < all->groups + LIVE_CONSUMERS_MAX; g++) {
                pass_on(all, g, PASS_ON_AT_OFFER, utc_ns);
                outcome.waits |= may_wait && !outcome.waits && must_wait(all, g, event, &o);
        }
        for (struct live_group *g = all->groups; g < all->groups + LIVE_CONSUMERS_MAX && !outcome.waits;
             g++) {
                if (g->members > 0 &&
                    (event->is_again ? g->request.mode == LIVE_ALL
                                     : live_request_selects(&g->request, &g->counts, event)))
                        offer_to_group(all, g, &o, &outcome);
        }
        return outcome;
}

size_t live_groups_collect(struct live_groups *all, uint64_t utc_ns, struct live_end *ends, size_t n)
{
        /* After the last event of a run, no offer does it. */
        for (struct live_group *g = all->groups; g < all->groups + LIVE_CONSUMERS_MAX; g++)
                pass_on(all, g, PASS_ON_AT_OFFER, utc_ns);
        for (struct live_consumer *c = all->consumers; c < all->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (c->n_unread == 0 || c->is_dead)
                        continue;
                if (live_ring_unread_bytes(&c->ring) < 0)
                        end(all, c);
                drop_released(all, c);
        }
        n = MIN(n, all->n_ends);
        for (size_t i = 0; i < n; i++)
                ends[i] = all->ends[--all->n_ends];
        return n;
}

static bool holds(const struct live_consumer *c, uint32_t tag)
{
        for (uint32_t i = 0; i < c->n_unread; i++) {
                if (unread_at(c, i)->tag == tag)
                        return true;
        }
        return false;
}

void live_groups_end_holders(struct live_groups *all, uint32_t tag)
{
        for (struct live_consumer *c = all->consumers; c < all->consumers + LIVE_CONSUMERS_MAX; c++) {
                if (holds(c, tag) && !c->is_dead)
                        end(all, c);
        }
}

bool live_groups_is_settled(struct live_groups *all, uint64_t utc_ns)
{
        unsigned dead = 0;

        for (struct live_group *g = all->groups; g < all->groups + LIVE_CONSUMERS_MAX; g++) {
                if (g->dead == 0 || g->request.mode != LIVE_ALL)
                        continue;
                pass_on(all, g, PASS_ON_AT_OFFER, utc_ns);
                dead += g->dead;
        }
        return dead == 0;
}

uint64_t live_groups_end(struct live_groups *all, uint64_t utc_ns)
{
        for (struct live_group *g = all->groups; g < all->groups + LIVE_CONSUMERS_MAX; g++) {
                pass_on(all, g, UINT64_MAX, utc_ns);
                bury_all(all, g);
        }
        return all->lost;
}

/* ---- Creation and end ---- */

int live_groups_init(struct live_groups *ret, uint32_t n_tags, const struct live_contact *contact, void *ctx)
{
        *ret = (struct live_groups){.contact = contact, .ctx = ctx, .n_tags = n_tags};
        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX; i++)
                ret->consumers[i].group = LIVE_NO_GROUP;
        if (n_tags == 0)
                return 0;
        ret->copies = calloc(n_tags, sizeof *ret->copies);
        ret->ends = calloc(n_tags, sizeof *ret->ends);
        return ret->copies && ret->ends ? 0 : -ENOMEM;
}

void live_groups_fini(struct live_groups *all)
{
        for (struct live_consumer *c = all->consumers; c < all->consumers + LIVE_CONSUMERS_MAX; c++)
                free_ring(c);
        free(take_ptr(all->copies));
        free(take_ptr(all->ends));
}
