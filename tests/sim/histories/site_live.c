/* Consumers of live events at simulated SFIs, with the product's groups and rings. What data/builder.c does
 * with a thread, site_live_offer() and site_live_collect() do in the turns of the SFI. The consumers' account
 * is kept here, from what they found in their rings. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "live/live_groups.h"
#include "site_internal.h"
#include "sys/memory.h"

#define EVENT_LEAST_BYTES 8u
#define EVENT_MOST_BYTES 192u /* with its record, half of the smallest ring */
#define RING_LEAST_BYTES 512u
#define LOOK_NS NS_PER_MS /* as in data/builder.c */

/* What consumers request. The requests of a group are equal, so a template has its own name and ring. */
static const struct template
{
        enum live_mode mode;
        uint64_t stride;
        const char *group;
}
templates[] = {
        {LIVE_NEWEST, 1, ""}, {LIVE_NEWEST, 3, ""}, {LIVE_SKIP, 1, ""},    {LIVE_SKIP, 3, ""},
        {LIVE_SKIP, 1, "s"},  {LIVE_SKIP, 1, "t"},  {LIVE_NEWEST, 1, "n"}, {LIVE_ALL, 1, ""},
        {LIVE_ALL, 1, "a"},   {LIVE_ALL, 1, "b"},
};
#define TEMPLATES_WITHOUT_ALL 7u

/* A consumer's process. It works on one event at a time. */
struct client {
        bool is_connected, must_end, is_false, freezes;
        struct live_ring ring;
        uint64_t act_ns;
        uint64_t current; /* number of the event that it works on; 0: none */
        uint64_t last, received;
};

/* A group, from its first consumer to its last one. */
struct instance {
        uint64_t offers, done;
        bool has_false_positions; /* what one finished since the SFI last looked may go to another one */
        uint8_t *times;           /* how many consumers finished each event */
};

/* Events are numbered from 1, in the order in which they are offered. */
struct consumers {
        struct site *site;
        const struct site_node *node;
        struct live_groups core;
        struct client clients[LIVE_CONSUMERS_MAX];
        struct instance instances[LIVE_CONSUMERS_MAX];
        struct random random;
        uint64_t serial, events, room;
        bool *is_acknowledged, has_false_positions;
        /* By slot. */
        uint64_t *event, *held_ns; /* held_ns 0: not held */
        uint32_t *again, n_again, n_held;
        bool waits, is_ended;
        uint64_t ending_ns;
};

static void record_wrong(struct consumers *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void record_wrong(struct consumers *c, const char *format, ...)
{
        struct site_live_result *r = &c->site->live;
        va_list args;

        if (r->wrong[0])
                return;
        va_start(args, format);
        vsnprintf(r->wrong, sizeof r->wrong, format, args);
        va_end(args);
}

/* ---- Contact ---- */

static void wake_client(void *ctx, uint32_t i)
{
        struct consumers *c = ctx;

        assert(c->clients[i].is_connected);
}

static void end_client(void *ctx, uint32_t i)
{
        struct consumers *c = ctx;

        c->clients[i].must_end = true;
        c->site->consumers_ns = 0;
}

static const struct live_contact contact = {
        .wake = wake_client, .end = end_client, .record_full = wake_client};

void site_live_make(struct site *s, struct site_node *n)
{
        const struct site_live *l = &s->config.live;
        uint32_t slots = n->sim->n_slots;
        struct consumers *c;

        site_live_free(n);
        if (l->consumers == 0)
                return;
        c = calloc(1, sizeof *c);
        assert(c && live_groups_init(&c->core, l->output ? slots : 0, &contact, c) == 0);
        c->site = s;
        c->node = n;
        c->room = 4 * MAX(s->config.events, s->config.boards.free) + 64;
        c->is_acknowledged = calloc(c->room, sizeof *c->is_acknowledged);
        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX; i++)
                c->instances[i].times = calloc(c->room, 1);
        c->event = calloc(slots, sizeof *c->event);
        c->held_ns = calloc(slots, sizeof *c->held_ns);
        c->again = calloc(slots, sizeof *c->again);
        random_init(&c->random, l->seed ^ (s->processes << 8 | site_index(n)));
        n->consumers = c;
        s->consumers_ns = 0;
}

void site_live_free(struct site_node *n)
{
        struct consumers *c = n->consumers;

        if (!c)
                return;
        live_groups_fini(&c->core);
        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX; i++)
                free(c->instances[i].times);
        free(c->is_acknowledged);
        free(c->event);
        free(c->held_ns);
        free(c->again);
        free(c);
        n->consumers = NULL;
}

/* ---- Clients ---- */

static struct instance *instance_of(struct consumers *c, uint32_t i)
{
        return &c->instances[c->core.consumers[i].group];
}

static bool is_tagged(const struct consumers *c, const struct live_request *r)
{
        return c->core.n_tags > 0 && r->mode == LIVE_ALL;
}

int __wrap_memory_share_new(const char *name, size_t size_bytes, int *ret_fd, void **ret);

/* No other process maps the rings. A file for each takes longer than its history. */
int __wrap_memory_share_new(const char *name, size_t size_bytes, int *ret_fd, void **ret)
{
        (void)name;
        *ret = memory_map(size_bytes);
        *ret_fd = -1;
        return *ret ? 0 : -ENOMEM;
}

static void connect_client(struct consumers *c, uint32_t i, uint64_t now_ns)
{
        const struct site_live *l = &c->site->config.live;
        uint32_t n = l->all || l->output ? ARRAY_SIZE(templates) : TEMPLATES_WITHOUT_ALL;
        uint32_t k = (uint32_t)random_below(&c->random, n);
        struct live_request request = {.stride = 1, .seed = 1, .fraction = 1};
        struct live_ring ring;
        int no_fd;

        /* Without a consumer in mode all, the run waits. */
        if (l->output && random_below(&c->random, 2))
                k = TEMPLATES_WITHOUT_ALL + k % (ARRAY_SIZE(templates) - TEMPLATES_WITHOUT_ALL);
        request.mode = templates[k].mode;
        request.stride = templates[k].stride;
        strcpy(request.group, templates[k].group);
        request.ring_bytes = RING_LEAST_BYTES << random_mix(l->seed + k) % 4;
        assert(live_ring_new(&ring, request.ring_bytes, &no_fd) == 0);
        c->core.consumers[i].number = c->serial++;
        assert(live_groups_join(&c->core, i, &request, &ring) == 0);
        c->clients[i] = (struct client){.is_connected = true,
                                        .act_ns = now_ns,
                                        .ring = ring,
                                        .freezes = l->freezes && i % 2 == 0 && c->ending_ns == 0};
        if (c->core.groups[c->core.consumers[i].group].members == 1) {
                uint8_t *times = instance_of(c, i)->times;

                memset(times, 0, c->room);
                *instance_of(c, i) = (struct instance){.times = times};
        }
        c->site->live.consumers++;
}

static void leave(struct consumers *c, uint32_t i, uint64_t now_ns)
{
        live_groups_leave(&c->core, i, now_ns);
        c->clients[i] = (struct client){.act_ns = c->clients[i].act_ns};
        c->site->live.deaths++;
}

static void finish_current(struct consumers *c, uint32_t i)
{
        struct client *client = &c->clients[i];
        struct instance *in = instance_of(c, i);

        live_ring_release(&client->ring);
        if (client->current == 0)
                return;
        in->done += in->times[client->current] == 0;
        if (in->times[client->current]++ > 0 && !in->has_false_positions)
                record_wrong(c, "two consumers of a group finished event %llu",
                             (unsigned long long)client->current);
        c->is_acknowledged[client->current] |=
                is_tagged(c, &c->core.groups[c->core.consumers[i].group].request);
        client->current = 0;
}

/* A consumer that shares nothing receives each of its events once, in order, and so are the counts. */
static void check_record(struct consumers *c, uint32_t i, const struct live_record *r)
{
        const struct live_request *q = &c->core.groups[c->core.consumers[i].group].request;
        struct client *client = &c->clients[i];
        bool is_alone = !q->group[0] && !is_tagged(c, q);

        client->received++;
        if (q->stride == 1 && r->offered != r->given + r->skipped)
                record_wrong(c, "%llu events offered, but %llu given and %llu skipped",
                             (unsigned long long)r->offered, (unsigned long long)r->given,
                             (unsigned long long)r->skipped);
        if (q->stride == 3 && r->offered != 3 * (r->given + r->skipped) - 2)
                record_wrong(c, "%llu events offered, but of each third %llu given and %llu skipped",
                             (unsigned long long)r->offered, (unsigned long long)r->given,
                             (unsigned long long)r->skipped);
        if (is_alone && (client->current <= client->last || r->given != client->received))
                record_wrong(c,
                             "event %llu after event %llu, given as number %llu, but received as number %llu",
                             (unsigned long long)client->current, (unsigned long long)client->last,
                             (unsigned long long)r->given, (unsigned long long)client->received);
        if (q->mode == LIVE_NEWEST && atomic_load(&client->ring.head->written) != client->ring.released)
                record_wrong(c, "newest gave an event to a consumer that did not wait for one");
        client->last = client->current;
}

static void work(struct consumers *c, uint32_t i, uint64_t n)
{
        struct client *client = &c->clients[i];
        const uint8_t *event;
        struct live_record record;
        int r;

        for (; n > 0; n--) {
                finish_current(c, i);
                event = live_ring_next(&client->ring, &record, &r);
                if (r < 0)
                        record_wrong(c, "a ring is damaged");
                if (!event)
                        return;
                memcpy(&client->current, event, sizeof client->current);
                check_record(c, i, &record);
        }
}

/* The position is invalid: it is odd. */
static void report_false_position(struct consumers *c, uint32_t i)
{
        c->clients[i].is_false = instance_of(c, i)->has_false_positions = c->has_false_positions = true;
        atomic_store(&c->clients[i].ring.head->read, random_next(&c->random) | 1);
}

static uint64_t draw_interval_ns(struct consumers *c)
{
        return 1 + random_below(&c->random, 2 * c->site->config.live.act_ns);
}

static void act(struct consumers *c, uint32_t i)
{
        struct client *client = &c->clients[i];
        uint64_t now_ns = client->act_ns, way = random_below(&c->random, 40),
                 n = random_below(&c->random, 12);

        client->act_ns += draw_interval_ns(c);
        if (!client->is_connected) {
                if (c->core.consumers[i].is_dead && way == 0)
                        (void)live_groups_bury_oldest(&c->core);
                if (!c->core.consumers[i].is_dead && way < 20)
                        connect_client(c, i, client->act_ns);
                return;
        }
        if (way == 0 || client->is_false)
                leave(c, i, now_ns);
        else if (way == 1)
                report_false_position(c, i);
        else if (way == 2)
                client->act_ns += n * 40 * NS_PER_MS;
        else
                work(c, i, n);
}

/* At the end, such a consumer holds what it has for ever. */
static bool is_frozen(const struct consumers *c, uint32_t i)
{
        return c->ending_ns > 0 && c->clients[i].freezes;
}

static uint64_t act_all(struct consumers *c, uint64_t until_ns)
{
        uint64_t next_ns = NEVER_NS;

        for (uint32_t i = 0; i < c->site->config.live.consumers; i++) {
                struct client *client = &c->clients[i];

                client->act_ns = client->act_ns ?: site_now_ns(c->site) + draw_interval_ns(c);
                if (client->must_end)
                        leave(c, i, until_ns);
                while (client->act_ns <= until_ns && !is_frozen(c, i))
                        act(c, i);
                next_ns = MIN(next_ns, client->act_ns);
        }
        return next_ns;
}

void site_live_act(struct site *s, uint64_t until_ns)
{
        if (s->config.live.consumers == 0 || until_ns < s->consumers_ns)
                return;
        s->consumers_ns = NEVER_NS;
        for (struct site_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->consumers && n->sim->is_live && !n->consumers->is_ended) {
                        uint64_t next_ns = act_all(n->consumers, until_ns);

                        s->consumers_ns = MIN(s->consumers_ns, next_ns);
                }
        }
}

/* ---- The SFI ---- */

static int encode(void *ctx, bool needed, const struct iovec **iov, size_t *n_iov, size_t *size_bytes)
{
        static uint64_t bytes[EVENT_MOST_BYTES / 8];
        static struct iovec part = {bytes, 0};

        (void)needed;
        bytes[0] = *(const uint64_t *)ctx;
        part.iov_len = EVENT_LEAST_BYTES + random_mix(bytes[0]) % (EVENT_MOST_BYTES - EVENT_LEAST_BYTES + 1);
        *iov = &part;
        *n_iov = 1;
        *size_bytes = part.iov_len;
        return 0;
}

/* How long consumers may delay the end of the run. The DFM waits longer for an event, as in the product. */
static uint64_t end_wait_ns(const struct site *s)
{
        return s->config.timeout_ns;
}

static bool may_wait(struct site *s, struct consumers *c)
{
        if (c->ending_ns == 0 && sfi_run_state(c->node->sim->sfi) > RUN_RUNNING)
                c->ending_ns = site_now_ns(s);
        return c->ending_ns == 0 || site_now_ns(s) - c->ending_ns < end_wait_ns(s);
}

static struct live_outcome offer(struct site *s, struct consumers *c, uint32_t slot, bool is_again)
{
        struct sfi_built built;
        struct live_outcome outcome;
        struct live_event event = {.tag = slot, .is_again = is_again};

        sfi_built_event(c->node->sim->sfi, slot, &built);
        event.number = built.event;
        event.is_partial = built.end == EVENT_PARTIAL;
        outcome =
                live_groups_offer(&c->core, &event, may_wait(s, c), site_now_ns(s), encode, &c->event[slot]);
        c->waits = outcome.waits;
        if (outcome.waits)
                return outcome;
        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX && !is_again; i++)
                c->instances[i].offers++;
        s->live.offered++;
        s->live.given += outcome.given;
        s->live.skipped += outcome.skipped;
        c->held_ns[slot] = outcome.is_held ? site_now_ns(s) : 0;
        c->n_held += outcome.is_held;
        return outcome;
}

enum site_live_offer site_live_offer(struct site *s, struct site_node *n, uint32_t slot)
{
        struct consumers *c = n->consumers;
        struct live_outcome outcome;
        struct sfi_built built;

        sfi_built_event(n->sim->sfi, slot, &built);
        if (built.end == EVENT_LOST)
                return SITE_LIVE_WRITTEN;
        if (c->n_again > 0)
                return SITE_LIVE_WAITS;
        if (!c->waits)
                c->event[slot] = ++c->events;
        assert(c->events < c->room);
        outcome = offer(s, c, slot, false);
        if (outcome.waits)
                return SITE_LIVE_WAITS;
        if (!s->config.live.output)
                return SITE_LIVE_WRITTEN;
        return outcome.is_held ? SITE_LIVE_HELD : SITE_LIVE_LOST;
}

/* True: the event is acknowledged. Otherwise, its consumers have ended, and it is offered again. */
static bool is_finished(struct site *s, struct consumers *c, const struct live_end *end)
{
        uint64_t event = c->event[end->tag];

        c->held_ns[end->tag] = 0;
        c->n_held--;
        if (end->is_acknowledged != c->is_acknowledged[event] && !c->has_false_positions)
                record_wrong(c, "event %llu counts as %s, but its consumers %s it", (unsigned long long)event,
                             end->is_acknowledged ? "acknowledged" : "not acknowledged",
                             c->is_acknowledged[event] ? "finished" : "have not finished");
        if (end->is_acknowledged && !c->is_acknowledged[event])
                record_wrong(c, "event %llu counts as acknowledged, but no consumer has finished it",
                             (unsigned long long)event);
        s->live.acknowledged += end->is_acknowledged;
        s->live.again += !end->is_acknowledged;
        if (!end->is_acknowledged)
                c->again[c->n_again++] = end->tag;
        return end->is_acknowledged;
}

static void end_holders(struct site *s, struct consumers *c)
{
        if (c->n_held == 0 || may_wait(s, c))
                return;
        for (uint32_t slot = 0, seen = 0; seen < c->n_held; slot++) {
                seen += c->held_ns[slot] > 0;
                if (c->held_ns[slot] == 0 ||
                    site_now_ns(s) - MAX(c->ending_ns, c->held_ns[slot]) < end_wait_ns(s))
                        continue;
                c->held_ns[slot] = site_now_ns(s);
                live_groups_end_holders(&c->core, slot);
        }
}

uint32_t site_live_collect(struct site *s, struct site_node *n, bool *ret_written)
{
        struct consumers *c = n->consumers;
        struct live_end end;

        while (s->config.live.output && live_groups_collect(&c->core, site_now_ns(s), &end, 1) > 0) {
                if (is_finished(s, c, &end)) {
                        *ret_written = true;
                        return end.tag;
                }
        }
        while (c->n_again > 0) {
                uint32_t slot = c->again[c->n_again - 1];
                struct live_outcome outcome = offer(s, c, slot, true);

                if (outcome.waits)
                        break;
                c->n_again--;
                if (!outcome.is_held) {
                        *ret_written = false;
                        return slot;
                }
        }
        end_holders(s, c);
        return UINT32_MAX;
}

bool site_live_is_sealed(struct site *s, struct site_node *n)
{
        struct consumers *c = n->consumers;

        if (!c->is_ended) {
                c->waits = !live_groups_is_settled(&c->core, site_now_ns(s)) && may_wait(s, c);
                if (c->waits)
                        return false;
                for (const struct live_group *g = c->core.groups; g < c->core.groups + LIVE_CONSUMERS_MAX;
                     g++) {
                        if (g->request.mode == LIVE_ALL && g->dead > 0 && may_wait(s, c))
                                record_wrong(c,
                                             "in mode all, events of consumers that ended are not settled");
                }
                s->live.lost += live_groups_end(&c->core, site_now_ns(s));
                c->is_ended = true;
        }
        return true;
}

uint64_t site_live_deadline_ns(const struct site *s, const struct site_node *n)
{
        const struct consumers *c = n->consumers;

        return c->waits || c->n_held + c->n_again > 0 ? site_now_ns(s) + LOOK_NS : NEVER_NS;
}

/* ---- The end ---- */

/* Returns how many events the consumers of a group received, and none of them finished. */
static uint64_t check_group(struct consumers *c, uint32_t i)
{
        const struct live_group *g = &c->core.groups[i];
        const struct live_counts *n = &g->counts;
        const struct instance *in = &c->instances[i];

        if (n->offered != in->offers)
                record_wrong(c, "%llu events were offered, but a group counts %llu",
                             (unsigned long long)in->offers, (unsigned long long)n->offered);
        if (g->request.stride == 1 && n->offered != n->given + n->skipped)
                record_wrong(c, "of %llu events, a group got %llu, and skipped %llu",
                             (unsigned long long)n->offered, (unsigned long long)n->given,
                             (unsigned long long)n->skipped);
        if (in->has_false_positions || is_tagged(c, &g->request) ||
            (g->request.mode == LIVE_NEWEST && g->request.group[0]))
                return 0;
        if (in->done > n->given)
                record_wrong(c, "a group got %llu events, and finished %llu", (unsigned long long)n->given,
                             (unsigned long long)in->done);
        return n->given - MIN(in->done, n->given);
}

static void finish_consumers(struct consumers *c)
{
        uint64_t missing = 0;

        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX; i++) {
                if (c->clients[i].is_connected && !c->clients[i].is_false)
                        work(c, i, UINT64_MAX);
        }
        for (uint32_t i = 0; i < LIVE_CONSUMERS_MAX; i++)
                missing += c->core.groups[i].members > 0 ? check_group(c, i) : 0;
        if (missing > c->core.lost)
                record_wrong(c, "%llu events went to consumers that ended, and %llu of them count as lost",
                             (unsigned long long)missing, (unsigned long long)c->core.lost);
}

struct site_live_result site_live_finish(struct site *s)
{
        for (struct site_node *n = s->nodes; n < s->nodes + s->n_nodes; n++) {
                if (n->consumers && n->sim->is_live && n->consumers->is_ended)
                        finish_consumers(n->consumers);
        }
        return s->live;
}
