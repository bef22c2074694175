/* The events whose fragments are collected, in the order in which they began. */
#include <errno.h>
#include <stdlib.h>

#include "base/pattern.h"
#include "base/random.h"
#include "base/util.h"
#include "regions.h"

int region_events_init(struct region_events *e, const struct regions_config *config)
{
        *e = (struct region_events){.config = *config};
        e->events = calloc(REGIONS_EVENTS_MAX, sizeof *e->events);
        e->done = calloc(REGIONS_EVENTS_MAX, sizeof *e->done);
        return e->events && e->done ? idmap_init(&e->by_event, REGIONS_EVENTS_MAX) : -ENOMEM;
}

void region_events_fini(struct region_events *e)
{
        idmap_fini(&e->by_event);
        free(e->events);
        free(e->done);
}

struct region_event *region_events_at(struct region_events *e, uint32_t i)
{
        return &e->events[i % REGIONS_EVENTS_MAX];
}

static void close_event(struct region_events *e, struct region_event *v)
{
        if (v->open)
                (void)idmap_remove(&e->by_event, v->event);
        v->open = false;
}

void region_events_forget_all(struct region_events *e)
{
        for (; e->tail != e->head; e->tail++)
                close_event(e, region_events_at(e, e->tail));
        e->done_tail = e->done_head;
}

bool region_events_have_room(const struct region_events *e)
{
        return e->head - e->tail <= REGIONS_EVENTS_MAX - MESSAGE_ENTRIES_MAX;
}

uint32_t region_bit(const struct region_event *v, uint16_t ros)
{
        for (uint32_t k = 0; v->open && k < v->n; k++) {
                if (v->ros[k] == ros)
                        return v->waiting & 1u << k;
        }
        return 0;
}

static void record_answers(struct region_events *e, uint32_t i, uint32_t bits)
{
        struct region_event *v = region_events_at(e, i);

        v->waiting &= ~bits;
        if (v->waiting > 0 || !v->open)
                return;
        close_event(e, v);
        e->done[e->done_head++ % REGIONS_EVENTS_MAX] = i;
}

void region_events_miss(struct region_events *e, uint32_t i, uint32_t bits)
{
        region_events_at(e, i)->incomplete = true;
        e->counts.missed += (uint64_t)__builtin_popcount(bits);
        record_answers(e, i, bits);
}

/* The ROSs differ from event to event, but are the same in each run. */
uint32_t region_events_add(struct region_events *e, uint64_t now_ns, uint64_t event, uint32_t l1_id,
                           uint32_t n_ros)
{
        struct region_event *v = region_events_at(e, e->head);

        if (idmap_get(&e->by_event, event) != IDMAP_NONE)
                return UINT32_MAX;
        *v = (struct region_event){
                .event = event,
                .deadline_ns = now_ns + e->config.timeout_ns,
                .l1_id = l1_id,
                .n = (uint16_t)MIN(e->config.n_ros, n_ros),
                .open = true,
        };
        idmap_put(&e->by_event, event, e->head % REGIONS_EVENTS_MAX);
        for (uint32_t k = 0; k < v->n; k++) {
                v->ros[k] = (uint16_t)((random_mix(event) + k) % n_ros);
                v->waiting |= 1u << k;
        }
        e->counts.requested += v->n;
        return e->head++;
}

static bool is_right(const struct region_events *e, const struct region_event *v, uint16_t ros,
                     const struct chunk *c, const uint8_t *payload)
{
        if (c->l1_id != v->l1_id || c->offset > 0 || c->length != c->fragment_bytes)
                return false;
        return !e->config.verify || pattern_check(pattern_key(e->config.pattern_seed, ros, c->l1_id), payload,
                                                  0, c->length) == c->length;
}

void region_events_receive(struct region_events *e, uint16_t ros, const struct chunk *c,
                           const uint8_t *payload)
{
        uint32_t i = idmap_get(&e->by_event, c->event);
        struct region_event *v = region_events_at(e, i);
        uint32_t bit = i == IDMAP_NONE ? 0 : region_bit(v, ros);

        if (bit == 0)
                return;
        switch (c->status) {
        case FRAGMENT_OK:
        case FRAGMENT_NONE:
        case FRAGMENT_TRUNCATED:
                e->counts.received++;
                e->counts.bytes += c->length;
                e->counts.corrupt += !is_right(e, v, ros, c, payload);
                v->check ^= message_check(payload, c->length);
                break;
        case FRAGMENT_DISCARDED:
                e->counts.gone++;
                v->incomplete = true;
                break;
        default:
                e->counts.absent++;
                v->incomplete = true;
                break;
        }
        record_answers(e, i, bit);
}

void region_events_expire(struct region_events *e, uint64_t now_ns)
{
        for (uint32_t i = e->tail; i != e->head && region_events_at(e, i)->deadline_ns <= now_ns; i++) {
                if (region_events_at(e, i)->open)
                        region_events_miss(e, i, region_events_at(e, i)->waiting);
        }
}

bool region_events_next(struct region_events *e, struct region_result *ret)
{
        const struct region_event *v;

        if (e->done_tail == e->done_head)
                return false;
        v = region_events_at(e, e->done[e->done_tail++ % REGIONS_EVENTS_MAX]);
        *ret = (struct region_result){v->event, v->check, v->incomplete};
        e->counts.events_incomplete += v->incomplete;
        /* Events keep their slots while results wait. */
        while (e->done_tail == e->done_head && e->tail != e->head && !region_events_at(e, e->tail)->open)
                e->tail++;
        return true;
}

uint64_t region_events_deadline_ns(const struct region_events *e)
{
        for (uint32_t i = e->tail; i != e->head; i++) {
                if (e->events[i % REGIONS_EVENTS_MAX].open)
                        return e->events[i % REGIONS_EVENTS_MAX].deadline_ns;
        }
        return NEVER_NS;
}
