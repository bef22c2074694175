/* The fragments that a ROS holds: made or arrived, until cleared. To whom they go is in ros.c and ros_queue.c. */
#include <assert.h>

#include "ros_internal.h"

/* Parts of the buffer, in percent, above which triggers are to be held back and below which they may come again. */
#define XOFF_PERCENT 80
#define XON_PERCENT 60

static bool is_above(const struct ros *r, uint32_t percent)
{
        return (uint64_t)r->n_held * 100 > (uint64_t)r->config.entries * percent ||
               arena_used_bytes(r->arena) * 100 > arena_size_bytes(r->arena) * percent ||
               (r->config.waiting_max > 0 && (uint64_t)r->n_waiting * XOFF_PERCENT > r->config.waiting_max * percent);
}

void ros_check_room(struct ros *r)
{
        if (!r->xoff && is_above(r, XOFF_PERCENT)) {
                r->xoff = true;
                r->counts.xoff++;
        } else if (r->xoff && !is_above(r, XON_PERCENT))
                r->xoff = false;
}

static uint32_t take_entry(struct ros *r, uint64_t event, uint32_t l1_id)
{
        if (r->n_held == r->config.entries)
                return UINT32_MAX;
        uint32_t i = r->free_entries[r->config.entries - ++r->n_held];

        r->entries[i] = (struct ros_entry){
                .event = event,
                .l1_id = l1_id,
                .at = ARENA_NONE,
                .wanted_by = UINT16_MAX,
                .used = true,
        };
        idmap_put(&r->by_event, event, i);
        return i;
}

static void give_back(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        arena_release(r->arena, e->at);
        e->used = false;
        r->free_entries[r->config.entries - r->n_held--] = i;
}

uint32_t ros_hold(struct ros *r, uint64_t event, uint32_t l1_id, const struct ros_fragment *f)
{
        uint64_t at = ARENA_NONE;
        uint32_t i;

        if (f->bytes > 0) {
                at = arena_alloc(r->arena, f->bytes);
                if (at == ARENA_NONE) {
                        r->counts.full++;
                        return UINT32_MAX;
                }
        }
        i = take_entry(r, event, l1_id);
        if (i == UINT32_MAX) {
                arena_release(r->arena, at);
                r->counts.full++;
                return UINT32_MAX;
        }
        r->entries[i].at = at;
        r->entries[i].fragment = *f;
        r->entries[i].arrived = true;
        return i;
}

uint32_t ros_expect(struct ros *r, uint64_t event, uint32_t l1_id)
{
        uint32_t i = take_entry(r, event, l1_id);

        if (i == UINT32_MAX)
                r->counts.full++;
        return i;
}

static void stop_waiting(struct ros *r, const struct ros_entry *e)
{
        if (!e->arrived && e->wanted_by != UINT16_MAX)
                r->n_waiting--;
}

static void clear_entry(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        idmap_remove(&r->by_event, e->event);
        stop_waiting(r, e);
        if (e->pins == 0 && i != r->arriving)
                give_back(r, i);
        else
                e->cleared = true;
}

void ros_clear(struct ros *r, uint64_t event)
{
        uint32_t i = idmap_get(&r->by_event, event);

        if (i != IDMAP_NONE)
                clear_entry(r, i);
}

void ros_clear_below(struct ros *r, uint64_t oldest)
{
        if (oldest <= r->oldest)
                return;
        r->oldest = oldest;
        for (uint32_t i = 0; i < r->config.entries && r->n_held > 0; i++) {
                struct ros_entry *e = &r->entries[i];

                if (e->used && !e->cleared && e->event < oldest)
                        clear_entry(r, i);
        }
}

void ros_pin(struct ros *r, uint32_t entry)
{
        r->entries[entry].pins++;
}

void ros_unpin(struct ros *r, uint32_t entry)
{
        struct ros_entry *e = &r->entries[entry];

        assert(e->pins > 0);
        if (--e->pins == 0 && e->cleared)
                give_back(r, entry);
}

enum ros_verdict ros_arrive(struct ros *r, const struct ros_fragment *f, uint64_t *ret_at)
{
        uint64_t event = r->arrived;
        uint32_t i = idmap_get(&r->by_event, event);

        assert(r->arriving == UINT32_MAX);
        if (event < r->oldest)
                return ROS_CLEARED;
        if (i == IDMAP_NONE)
                i = ros_hold(r, event, (uint32_t)event, f);
        else if (f->bytes > 0) {
                r->entries[i].at = arena_alloc(r->arena, f->bytes);
                if (r->entries[i].at == ARENA_NONE) {
                        r->counts.full++;
                        i = UINT32_MAX;
                }
        }
        if (i == UINT32_MAX)
                return ROS_FULL;
        r->entries[i].fragment = *f;
        r->entries[i].arrived = false; /* not before ros_landed() */
        r->arriving = i;
        *ret_at = r->entries[i].at;
        return ROS_STORE;
}

void ros_landed(struct ros *r)
{
        struct ros_entry *e = &r->entries[r->arriving];
        uint32_t i = r->arriving;

        r->arriving = UINT32_MAX;
        r->arrived++;
        if (e->cleared) {
                if (e->pins == 0)
                        give_back(r, i);
                return;
        }
        stop_waiting(r, e);
        e->arrived = e->filled = true;
        if (e->wanted_by != UINT16_MAX)
                ros_enqueue(r, e->wanted_by, e->event, e->l1_id, 0, UINT32_MAX, FRAGMENT_OK);
        ros_check_room(r);
}

/* Those who wait for a frame that does not come are told so. */
void ros_skip(struct ros *r, uint64_t n)
{
        uint32_t arriving = r->arriving;

        /* The frame that was coming in has broken off. */
        r->arriving = UINT32_MAX;
        if (arriving != UINT32_MAX && r->entries[arriving].cleared)
                give_back(r, arriving);
        for (; n > 0; n--, r->arrived++) {
                uint32_t i = idmap_get(&r->by_event, r->arrived);

                r->counts.source_lost++;
                if (i == IDMAP_NONE)
                        continue;
                struct ros_entry *e = &r->entries[i];
                uint16_t sfi = e->wanted_by;
                uint64_t event = e->event;
                uint32_t l1_id = e->l1_id;

                clear_entry(r, i);
                if (sfi != UINT16_MAX)
                        ros_enqueue(r, sfi, event, l1_id, 0, UINT32_MAX, FRAGMENT_LOST);
        }
}
