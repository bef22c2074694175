/* Holds fragments from their creation or arrival until they are cleared. ros.c decides which SFI receives
 * them, and ros_queue.c queues them for sending. */
#include <assert.h>

#include "ros_internal.h"

/* Fill levels of the buffer, in percent, above which the ROS sends XOFF and below which it sends XON. */
#define XOFF_PERCENT 80
#define XON_PERCENT 60

/* Counts only triggered fragments. A front-end may be ahead of the trigger by the whole buffer and then
 * waits. The trigger must not wait for it, as only triggered events ever clear the buffer. */
static bool is_above(const struct ros *r, uint32_t percent)
{
        return (uint64_t)(r->n_triggered - r->n_expected) * 100 > (uint64_t)r->config.entries * percent ||
               r->triggered_bytes * 100 > arena_size_bytes(r->arena) * percent ||
               (r->config.waiting_max > 0 &&
                (uint64_t)r->n_waiting * XOFF_PERCENT > r->config.waiting_max * percent);
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
        uint32_t place = r->n_entries - ++r->n_held, i = r->order[place];

        r->entries[i] = (struct ros_entry){
                .event = event,
                .l1_id = l1_id,
                .place = place,
                .at = ARENA_NONE,
                .wanted_by = UINT16_MAX,
        };
        idmap_put(&r->by_event, event, i);
        return i;
}

static uint64_t room_of(const struct ros *r, const struct ros_entry *e)
{
        return e->at == ARENA_NONE ? 0 : arena_block_bytes(r->arena, e->fragment.bytes);
}

void ros_note_triggered(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        if (e->triggered)
                return;
        e->triggered = true;
        r->n_triggered++;
        r->triggered_bytes += room_of(r, e);
}

static void move_to(struct ros *r, uint32_t place, uint32_t i)
{
        r->order[place] = i;
        r->entries[i].place = place;
}

static void give_back(struct ros *r, uint32_t i)
{
        struct ros_entry *e = &r->entries[i];

        if (e->triggered) {
                r->n_triggered--;
                r->triggered_bytes -= room_of(r, e);
        }
        r->n_expected -= e->expected;
        arena_release(r->arena, e->at);
        uint32_t last_free = r->n_entries - r->n_held--;

        move_to(r, e->place, r->order[last_free]);
        move_to(r, last_free, i);
}

/* Finds memory for the fragment's bytes, for an entry or (UINT32_MAX) a new one. Returns UINT32_MAX if there
 * is no room. */
static uint32_t hold(struct ros *r, uint32_t i, uint64_t event, uint32_t l1_id, const struct ros_fragment *f)
{
        uint64_t at = ARENA_NONE;

        if (r->n_held - r->n_expected == r->config.entries)
                return UINT32_MAX;
        if (f->bytes > 0 && (at = arena_alloc(r->arena, f->bytes)) == ARENA_NONE)
                return UINT32_MAX;
        if (i == UINT32_MAX)
                i = take_entry(r, event, l1_id);
        struct ros_entry *e = &r->entries[i];

        r->n_expected -= e->expected;
        e->expected = false;
        e->at = at;
        e->fragment = *f;
        if (e->triggered)
                r->triggered_bytes += room_of(r, e);
        return i;
}

uint32_t ros_hold(struct ros *r, uint64_t event, uint32_t l1_id, const struct ros_fragment *f)
{
        uint32_t i = hold(r, UINT32_MAX, event, l1_id, f);

        if (i == UINT32_MAX)
                r->counts.full++;
        else
                r->entries[i].arrived = true;
        return i;
}

uint32_t ros_expect(struct ros *r, uint64_t event, uint32_t l1_id)
{
        uint32_t i;

        if (r->n_expected == ROS_EXPECTED_MAX) {
                r->counts.full++;
                return UINT32_MAX;
        }
        i = take_entry(r, event, l1_id);
        r->entries[i].expected = true;
        r->n_expected++;
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

static void clear_all_below(struct ros *r, uint64_t oldest)
{
        for (uint32_t place = r->n_entries; place > r->n_entries - r->n_held;) {
                uint32_t i = r->order[place - 1], held = r->n_held;

                if (!r->entries[i].cleared && r->entries[i].event < oldest)
                        clear_entry(r, i);
                /* A freed entry is replaced by one that was not visited yet. */
                place -= r->n_held == held;
        }
}

void ros_clear_below(struct ros *r, uint64_t oldest)
{
        if (oldest <= r->oldest)
                return;
        /* Visits the numbers or the held entries, whichever are fewer. */
        if (oldest - r->oldest > r->n_held)
                clear_all_below(r, oldest);
        else
                for (uint64_t event = r->oldest; event < oldest; event++)
                        ros_clear(r, event);
        r->oldest = oldest;
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
        i = hold(r, i == IDMAP_NONE ? UINT32_MAX : i, event, (uint32_t)event, f);
        if (i == UINT32_MAX) {
                /* A byte stream retries the same frame, so it counts once. */
                r->counts.full += !r->refused;
                r->refused = true;
                return ROS_FULL;
        }
        r->refused = false;
        r->arriving = i;
        *ret_at = r->entries[i].at;
        return ROS_STORE;
}

void ros_commit(struct ros *r)
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
                ros_enqueue(r, e->wanted_by, e->event, e->l1_id, 0, e->wanted_to, FRAGMENT_OK);
        ros_check_room(r);
}

void ros_stop_waiting_for(struct ros *r, uint32_t sfi)
{
        for (uint32_t place = r->n_entries - r->n_held; r->n_waiting > 0 && place < r->n_entries; place++) {
                struct ros_entry *e = &r->entries[r->order[place]];

                if (e->cleared || e->wanted_by != sfi)
                        continue;
                stop_waiting(r, e);
                e->wanted_by = UINT16_MAX;
        }
        ros_check_room(r);
}

/* Answers the SFIs that wait for a frame that never comes. */
void ros_skip(struct ros *r, uint64_t n)
{
        uint32_t arriving = r->arriving;

        /* The frame that was arriving broke off. */
        r->arriving = UINT32_MAX;
        if (arriving != UINT32_MAX && r->entries[arriving].cleared)
                give_back(r, arriving);
        r->refused = false;
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

/* All events of before the reset have ended. The DFM waits for the answer before it takes a trigger of after
 * it. */
void ros_note_reset(struct ros *r, uint64_t now_ns, const struct message *keep_alive)
{
        if (keep_alive->keep_alive.state < RUN_RUNNING || keep_alive->keep_alive.resets == r->resets)
                return;
        r->resets = keep_alive->keep_alive.resets;
        r->reset_number = keep_alive->keep_alive.reset_number;
        r->keep_alive_due_ns = now_ns;
}
