/* Answers the requests of level-2 clients. Requests whose frame has not arrived wait in one list, in order of
 * time, and are indexed by the frame's number. All other requests wait in the list of their client. */
#include "ros_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "core/ros_regions.h"

#define REGIONS_MAX (ROS_REGION_CLIENTS * ROS_REGION_REQUESTS)

/* Value of `number` for a request that waits for a reset of the counters. */
#define NO_NUMBER UINT64_MAX

struct region {
        struct request_entry request;
        uint32_t resets; /* of the Request; 0: unknown */
        uint64_t number; /* number of the frame that the request waits for, or NO_NUMBER */
        uint64_t since_ns;
        uint32_t client;
        uint32_t next; /* next request in the list of its client; of a free one, as in struct ros_item */
        uint32_t later, earlier; /* in the list of waiting requests */
        uint32_t same;           /* the next request that waits for that number */
};

struct region_client {
        uint32_t first, last; /* first and last request that is ready to be answered */
        uint32_t n;           /* ready and waiting requests */
};

struct ros_regions {
        struct region *all;
        uint32_t free;
        struct region_client clients[ROS_REGION_CLIENTS];
        uint32_t oldest, newest; /* oldest and newest waiting request */
        struct idmap by_number;  /* the first request that waits for a number */
        struct event_set ended;  /* events that have ended; only if the source makes fragments */
        struct ros_region_counts counts;
};

int ros_regions_init(struct ros *r)
{
        struct ros_regions *g = r->config.regions ? calloc(1, sizeof *g) : NULL;
        int k;

        if (!r->config.regions)
                return 0;
        if (!g)
                return -ENOMEM;
        r->regions = g;
        g->all = calloc(REGIONS_MAX, sizeof *g->all);
        k = g->all ? idmap_init(&g->by_number, REGIONS_MAX) : -ENOMEM;
        if (k >= 0)
                k = event_set_init(&g->ended);
        if (k < 0)
                return k;
        for (size_t i = 0; i < ROS_REGION_CLIENTS; i++)
                g->clients[i] = (struct region_client){NO_ITEM, NO_ITEM, 0};
        g->oldest = g->newest = NO_ITEM;
        return 0;
}

void ros_regions_fini(struct ros *r)
{
        struct ros_regions *g = r->regions;

        if (!g)
                return;
        idmap_fini(&g->by_number);
        event_set_fini(&g->ended);
        free(g->all);
        free(g);
        r->regions = NULL;
}

/* ---- Lists ---- */

static void make_ready(struct ros_regions *g, uint32_t i)
{
        struct region_client *c = &g->clients[g->all[i].client];

        g->all[i].next = NO_ITEM;
        *(c->last == NO_ITEM ? &c->first : &g->all[c->last].next) = i;
        c->last = i;
}

static void release(struct ros_regions *g, uint32_t i)
{
        g->clients[g->all[i].client].n--;
        g->counts.open--;
        g->all[i].next = g->free - (i + 1);
        g->free = i;
}

static void begin_waiting(struct ros_regions *g, uint32_t i, uint64_t number)
{
        struct region *q = &g->all[i];
        uint32_t same = idmap_get(&g->by_number, number);

        q->number = number;
        q->same = same == IDMAP_NONE ? NO_ITEM : same;
        if (number != NO_NUMBER)
                idmap_put(&g->by_number, number, i);
        q->earlier = g->newest;
        q->later = NO_ITEM;
        *(g->newest == NO_ITEM ? &g->oldest : &g->all[g->newest].later) = i;
        g->newest = i;
}

static void forget_number(struct ros_regions *g, uint32_t i)
{
        uint64_t number = g->all[i].number;
        uint32_t k = idmap_get(&g->by_number, number);

        if (number == NO_NUMBER)
                return;
        if (k == i && g->all[i].same == NO_ITEM) {
                (void)idmap_remove(&g->by_number, number);
                return;
        }
        if (k == i) {
                idmap_put(&g->by_number, number, g->all[i].same);
                return;
        }
        while (g->all[k].same != i)
                k = g->all[k].same;
        g->all[k].same = g->all[i].same;
}

static void stop_waiting(struct ros_regions *g, uint32_t i)
{
        const struct region *q = &g->all[i];

        forget_number(g, i);
        *(q->earlier == NO_ITEM ? &g->oldest : &g->all[q->earlier].later) = q->later;
        *(q->later == NO_ITEM ? &g->newest : &g->all[q->later].earlier) = q->earlier;
}

static void wake(struct ros_regions *g, uint32_t i)
{
        stop_waiting(g, i);
        make_ready(g, i);
}

/* ---- Fate of the events ---- */

void ros_regions_wake_all(struct ros_regions *g, uint64_t number)
{
        uint32_t i;

        while ((i = idmap_get(&g->by_number, number)) != IDMAP_NONE)
                wake(g, i);
}

void ros_regions_record_ended(struct ros *r, uint64_t event)
{
        if (r->regions && r->config.describe)
                event_set_add(&r->regions->ended, event);
}

void ros_regions_record_oldest(struct ros *r, uint64_t oldest)
{
        struct ros_regions *g = r->regions;

        if (!g)
                return;
        event_set_advance(&g->ended, oldest);
        for (uint32_t i = g->oldest, later; i != NO_ITEM; i = later) {
                later = g->all[i].later;
                if (g->all[i].request.event < oldest)
                        wake(g, i);
        }
}

uint64_t ros_regions_deadline_ns(const struct ros *r)
{
        const struct ros_regions *g = r->regions;

        if (!g || g->oldest == NO_ITEM || r->config.wait_ns == 0)
                return NEVER_NS;
        return g->all[g->oldest].since_ns + r->config.wait_ns;
}

void ros_regions_postpone(struct ros *r, uint64_t now_ns, uint64_t by_ns)
{
        struct ros_regions *g = r->regions;

        for (uint32_t i = g ? g->oldest : NO_ITEM; i != NO_ITEM; i = g->all[i].later)
                g->all[i].since_ns = MIN(g->all[i].since_ns + by_ns, now_ns);
}

void ros_regions_expire(struct ros *r, uint64_t now_ns)
{
        while (now_ns >= ros_regions_deadline_ns(r))
                wake(r->regions, r->regions->oldest);
}

/* ---- Answers ---- */

enum region_answer { ANSWER_SENT, ANSWER_GONE, ANSWER_ABSENT, ANSWER_LOST, ANSWER_REFUSED, ANSWER_LATER };

static const uint8_t statuses[] = {
        [ANSWER_GONE] = FRAGMENT_DISCARDED,
        [ANSWER_ABSENT] = FRAGMENT_PENDING,
        [ANSWER_LOST] = FRAGMENT_LOST,
        [ANSWER_REFUSED] = FRAGMENT_LOST,
};

/* Number of resets of the counters that the client knows of, and this ROS does not follow yet. All events
 * from before a reset have ended. */
static int32_t resets_ahead(const struct ros *r, const struct region *v)
{
        return v->resets > 0 ? (int32_t)(v->resets - r->member.resets) : 0;
}

/* Returns the number of the frame of an event. */
static uint64_t number_of(const struct ros *r, const struct request_entry *q)
{
        uint64_t near = r->early.first == NO_ITEM ? 0 : r->entries[r->early.first].number;

        return ros_is_numbered(r) ? ros_numbers_find_trigger(&r->numbers, q->event, q->l1_id, near)
                                  : q->event;
}

/* Finds the frame of an event that was not assigned. */
static enum region_answer find_frame(const struct ros *r, uint64_t number, uint32_t *ret_entry)
{
        bool numbered = ros_is_numbered(r);
        uint32_t i = idmap_get(numbered ? &r->by_number : &r->by_event, number);

        if (event_set_has(&r->numbers.ended, number))
                return ANSWER_GONE;
        if (i == IDMAP_NONE)
                return !numbered && number < r->arrived ? ANSWER_LOST : ANSWER_LATER;
        if (r->entries[i].triggered)
                return numbered ? ANSWER_REFUSED /* another event has the same number */ : ANSWER_GONE;
        if (!r->entries[i].arrived)
                return ANSWER_LATER;
        *ret_entry = i;
        return ANSWER_SENT;
}

/* *ret_entry: the entry of the frame, for ANSWER_SENT; IDMAP_NONE: the fragment must be made. */
static enum region_answer find(const struct ros *r, const struct region *v, uint64_t number,
                               uint32_t *ret_entry)
{
        const struct request_entry *q = &v->request;
        uint32_t i = idmap_get(&r->by_event, q->event);
        int32_t ahead = resets_ahead(r, v);

        *ret_entry = IDMAP_NONE;
        if (q->event < r->oldest || ahead < 0)
                return ANSWER_GONE;
        if (ahead > 0)
                return ANSWER_LATER;
        if (q->event >= MAX(r->oldest, r->newest) + EVB_EVENT_WINDOW)
                return ANSWER_REFUSED;
        if (i != IDMAP_NONE && r->entries[i].triggered)
                return ANSWER_GONE;
        if (!r->config.describe)
                return find_frame(r, number, ret_entry);
        return event_set_has(&r->regions->ended, q->event) ? ANSWER_GONE : ANSWER_SENT;
}

/* Sets the range, and whether its bytes must be generated. False: the fragment has no such range. */
static bool describe(struct ros *r, const struct request_entry *q, uint32_t entry, struct ros_job *job)
{
        struct ros_fragment f;

        if (entry == IDMAP_NONE)
                r->config.describe(r->config.describe_ctx, q->event, q->l1_id, &f);
        else {
                f = r->entries[entry].fragment;
                job->at = r->entries[entry].at;
        }
        job->fill = entry == IDMAP_NONE && f.bytes > 0;
        job->job.chunk.fragment_bytes = f.bytes;
        job->job.chunk.offset = q->from_bytes;
        job->job.chunk.order = f.order;
        job->job.chunk.form = f.form;
        job->job.chunk.status = f.status;
        job->job.to_bytes = ros_range_end(&f, q->to_bytes);
        return f.bytes == 0 ? q->from_bytes == 0 : q->from_bytes < job->job.to_bytes;
}

static void count(struct ros_region_counts *c, enum region_answer answer, const struct ros_job *job)
{
        c->sent += answer == ANSWER_SENT;
        c->gone += answer == ANSWER_GONE;
        c->absent += answer == ANSWER_ABSENT || answer == ANSWER_LOST;
        c->refused += answer == ANSWER_REFUSED;
        if (answer == ANSWER_SENT)
                c->sent_bytes += job->job.to_bytes - job->job.chunk.offset;
}

static struct ros_job empty_job(const struct request_entry *q, uint8_t status)
{
        return (struct ros_job){
                .job.chunk = {.event = q->event, .l1_id = q->l1_id, .status = status},
                .at = ARENA_NONE,
                .entry = UINT32_MAX,
        };
}

/* Answers a request that is no longer in any list. */
static void answer(struct ros *r, uint32_t i, struct ros_job *job)
{
        const struct region *v = &r->regions->all[i];
        const struct request_entry *q = &v->request;
        uint32_t entry;
        enum region_answer a = find(r, v, number_of(r, q), &entry);

        /* The request waited too long, or the frame was discarded to make room for others. */
        a = a == ANSWER_LATER ? ANSWER_ABSENT : a;
        *job = empty_job(q, FRAGMENT_OK);
        if (a == ANSWER_SENT && !describe(r, q, entry, job))
                a = ANSWER_REFUSED;
        if (a != ANSWER_SENT)
                *job = empty_job(q, statuses[a]);
        count(&r->regions->counts, a, job);
        release(r->regions, i);
}

bool ros_region_has_room(const struct ros *r, uint32_t client)
{
        return r->regions->clients[client].n <= ROS_REGION_REQUESTS - MESSAGE_ENTRIES_MAX;
}

/* The request is in no list. */
static void settle(struct ros *r, uint32_t i)
{
        struct ros_regions *g = r->regions;
        const struct region *v = &g->all[i];
        uint64_t number = number_of(r, &v->request);
        uint32_t entry;

        if (find(r, v, number, &entry) == ANSWER_LATER)
                begin_waiting(g, i, resets_ahead(r, v) > 0 ? NO_NUMBER : number);
        else
                make_ready(g, i);
}

void ros_regions_record_resets(struct ros *r)
{
        struct ros_regions *g = r->regions;
        uint32_t i = g ? g->oldest : NO_ITEM, last = g ? g->newest : NO_ITEM;

        while (i != NO_ITEM) {
                uint32_t later = i == last ? NO_ITEM : g->all[i].later;

                stop_waiting(g, i);
                settle(r, i);
                i = later;
        }
}

void ros_region_request(struct ros *r, uint64_t now_ns, uint32_t client, uint32_t resets,
                        const struct request_entry *q)
{
        struct ros_regions *g = r->regions;
        uint32_t i = g->free;

        g->free = i + 1 + g->all[i].next;
        g->clients[client].n++;
        g->counts.requests++;
        g->counts.open++;
        g->all[i] = (struct region){.request = *q, .resets = resets, .since_ns = now_ns, .client = client};
        settle(r, i);
}

bool ros_region_answer(struct ros *r, uint32_t client, struct ros_job *ret)
{
        struct ros_regions *g = r->regions;
        struct region_client *c = &g->clients[client];
        uint32_t i = c->first;

        if (i == NO_ITEM)
                return false;
        c->first = g->all[i].next;
        if (c->first == NO_ITEM)
                c->last = NO_ITEM;
        answer(r, i, ret);
        return true;
}

bool ros_region_is_ready(const struct ros *r, uint32_t client)
{
        return r->regions->clients[client].first != NO_ITEM;
}

void ros_region_forget(struct ros *r, uint32_t client)
{
        struct ros_regions *g = r->regions;
        struct region_client *c = &g->clients[client];

        for (uint32_t i = g->oldest, later; i != NO_ITEM; i = later) {
                later = g->all[i].later;
                if (g->all[i].client == client)
                        wake(g, i);
        }
        g->counts.dropped += c->n;
        for (uint32_t i = c->first, next; i != NO_ITEM; i = next) {
                next = g->all[i].next;
                release(g, i);
        }
        c->first = c->last = NO_ITEM;
}

const struct ros_region_counts *ros_region_counts(const struct ros *r)
{
        return &r->regions->counts;
}
