/* The table of the SFI's slots: opens, ranks, finishes and frees them. It is independent of messages and of
 * the retry timer. sfi_blocks.c keeps the receive bitmap. */
#include "sfi_slots.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Minimum age of an unassigned event that newer ones may replace. */
#define UNASSIGNED_AGE_NS (100 * NS_PER_MS)
/* The smallest allocation in the buffer; a shorter fragment occupies this much, too. */
#define ALLOCATION_MIN_BYTES 256u

static void copy_rules(struct sfi_slots *t, const struct ros_rule *rules)
{
        t->young = SLOT_NONE;
        for (uint32_t i = 0; rules && i < t->n_ros; i++) {
                t->rules[i] = rules[i];
                if (rules[i].wait_ns > 0)
                        t->waited[t->n_waited++] = (uint16_t)i;
        }
}

int sfi_slots_init(struct sfi_slots *t, const struct sfi_config *config, struct sfi_counts *counts)
{
        uint32_t n = config->slots, ring = power_of_two_at_least(n);
        int r;

        t->config = config;
        t->counts = counts;
        t->n_ros = t->n_live = config->n_ros;
        memset(t->ros_live, 0xff, sizeof t->ros_live);
        t->collecting[0] = t->collecting[1] = (struct sfi_list){.first = SLOT_NONE, .last = SLOT_NONE};
        t->writing_look_ns = t->slow_since_ns = NEVER_NS;
        r = idmap_init(&t->by_event, n);
        if (r >= 0)
                r = heap_init(&t->due, n);
        if (r >= 0)
                r = heap_init(&t->holding, n);
        if (r >= 0)
                r = event_set_init(&t->ended);
        if (r >= 0)
                r = event_set_init(&t->built_events);
        if (r >= 0)
                r = event_set_init(&t->partial_events);
        if (r >= 0)
                r = arena_new(&t->arena, config->buffer_bytes, ALLOCATION_MIN_BYTES, EVB_FRAGMENT_MAX_BYTES);
        if (r < 0)
                return r;
        t->items = calloc(n, sizeof *t->items);
        t->fragments = calloc((size_t)n * config->n_ros, sizeof *t->fragments);
        t->free = calloc(n, sizeof *t->free);
        t->block_bits =
                calloc(DIV_ROUND_UP(config->buffer_bytes, 64 * EVB_BLOCK_BYTES), sizeof *t->block_bits);
        t->built = calloc(ring, sizeof *t->built);
        if (!t->items || !t->fragments || !t->free || !t->block_bits || !t->built)
                return -ENOMEM;
        t->built_mask = ring - 1;
        t->rules = calloc(config->n_ros, sizeof *t->rules);
        t->waited = calloc(config->n_ros, sizeof *t->waited);
        if (!t->rules || !t->waited)
                return -ENOMEM;
        copy_rules(t, config->rules);
        if (sfi_pulls_by_bytes(config) && !(t->sources = calloc(config->n_ros, sizeof *t->sources)))
                return -ENOMEM;
        for (uint32_t i = 0; t->sources && i < config->n_ros; i++)
                t->sources[i].next = SLOT_NONE;
        t->n_free = n;
        return 0;
}

void sfi_slots_fini(struct sfi_slots *t)
{
        heap_fini(&t->due);
        heap_fini(&t->holding);
        idmap_fini(&t->by_event);
        event_set_fini(&t->ended);
        event_set_fini(&t->built_events);
        event_set_fini(&t->partial_events);
        arena_free(t->arena);
        free(t->items);
        free(t->fragments);
        free(t->free);
        free(t->block_bits);
        free(t->built);
        free(t->sources);
        free(t->rules);
        free(t->waited);
}

/* Removes the slot from the accounts of all ROSs. */
static void leave_sources(struct sfi_slots *t, uint32_t slot)
{
        for (uint32_t i = 0; t->sources && i < t->n_ros; i++) {
                sfi_slots_account(t, i, sfi_fragment(t, slot, i), 0, false);
                if (t->sources[i].next == slot)
                        t->sources[i].next = t->items[slot].next;
        }
}

static void list_append(struct sfi_slots *t, struct sfi_list *list, uint32_t slot)
{
        t->items[slot].next = SLOT_NONE;
        t->items[slot].previous = list->last;
        *(list->last == SLOT_NONE ? &list->first : &t->items[list->last].next) = slot;
        list->last = slot;
        list->n++;
}

static void list_remove(struct sfi_slots *t, struct sfi_list *list, uint32_t slot)
{
        const struct sfi_slot *e = &t->items[slot];

        *(e->previous == SLOT_NONE ? &list->first : &t->items[e->previous].next) = e->next;
        *(e->next == SLOT_NONE ? &list->last : &t->items[e->next].previous) = e->previous;
        list->n--;
}

static void leave_collecting(struct sfi_slots *t, uint32_t slot)
{
        struct sfi_slot *e = &t->items[slot];

        leave_sources(t, slot);
        if (t->young == slot)
                t->young = e->next;
        t->n_waits -= e->waits;
        e->waits = false;
        list_remove(t, &t->collecting[e->assigned], slot);
        heap_remove(&t->due, slot);
        heap_remove(&t->holding, slot);
        if (e->requested)
                t->n_requested--;
        e->requested = false;
}

static void free_fragments(struct sfi_slots *t, uint32_t slot)
{
        t->items[slot].blocks = 0;
        heap_remove(&t->holding, slot);
        for (uint32_t i = 0; i < t->n_ros; i++) {
                struct sfi_fragment *f = sfi_fragment(t, slot, i);

                if (f->known && f->at != ARENA_NONE)
                        arena_release(t->arena, f->at);
        }
}

static void free_slot(struct sfi_slots *t, uint32_t slot)
{
        struct sfi_slot *e = &t->items[slot];

        if (e->state == SLOT_COLLECTING)
                leave_collecting(t, slot);
        if (!e->taken_back)
                idmap_remove(&t->by_event, e->event);
        free_fragments(t, slot);
        e->state = SLOT_EMPTY;
        t->free[t->n_free++ - (t->config->slots - t->n_touched)] = slot;
}

void sfi_slots_give_up(struct sfi_slots *t, uint32_t slot)
{
        for (uint32_t i = 0; i < t->n_ros; i++)
                t->counts->late += sfi_fragment(t, slot, i)->whole;
        free_slot(t, slot);
}

/* A newer unassigned event replaces the oldest one. An assignment uses the slot of an unassigned event if no
 * other slot is free. */
static bool make_room(struct sfi_slots *t, uint64_t now_ns, bool assigned)
{
        const struct sfi_list *unassigned = &t->collecting[false];

        if (assigned ? t->n_free > 0 : unassigned->n < sfi_unassigned_max(t->config) && t->n_free > 0)
                return true;
        if (unassigned->n == 0)
                return false;
        if (!assigned && now_ns - t->items[unassigned->first].first_ns < UNASSIGNED_AGE_NS)
                return false;
        sfi_slots_give_up(t, unassigned->first);
        return true;
}

uint32_t sfi_slots_open(struct sfi_slots *t, uint64_t now_ns, uint64_t event, uint32_t l1_id, bool assigned)
{
        if (!make_room(t, now_ns, assigned))
                return SLOT_NONE;
        uint32_t untouched = t->config->slots - t->n_touched;
        uint32_t slot = t->n_free > untouched ? t->free[t->n_free - untouched - 1] : t->n_touched++;

        t->n_free--;
        t->items[slot] = (struct sfi_slot){
                .event = event,
                .l1_id = l1_id,
                .state = SLOT_COLLECTING,
                .first_ns = now_ns,
                .retry_ns = NEVER_NS,
                .expire_ns = now_ns + t->config->timeout_ns,
                .missing = t->n_live,
                .queued = t->items[slot].queued,
        };
        /* In pull, the time of the slot begins with its first request. */
        if (!t->config->pull)
                heap_put(&t->due, slot, t->items[slot].expire_ns, event);
        list_append(t, &t->collecting[false], slot);
        memset(sfi_fragment(t, slot, 0), 0, t->n_ros * sizeof *t->fragments);
        idmap_put(&t->by_event, event, slot);
        return slot;
}

/* Unassigned events give up their memory first, then the events that are requested last. In any other order,
 * an event could hold memory while it waits for requests, and another event could wait for that memory. */
static void rank(struct sfi_slots *t, uint32_t slot)
{
        const struct sfi_slot *e = &t->items[slot];

        if (e->blocks > 0)
                heap_put(&t->holding, slot, e->assigned, ~(e->assigned ? e->order : e->event));
}

/* Makes the slot request and receive its fragments again. */
static void forget_fragments(struct sfi_slots *t, uint32_t slot)
{
        free_fragments(t, slot);
        for (uint32_t i = 0; i < t->n_ros; i++) {
                struct sfi_fragment *f = sfi_fragment(t, slot, i);

                /* Keeps the requested ranges, so that they are requested again. */
                *f = (struct sfi_fragment){
                        .asked = f->asked,
                        .asked_from = f->asked_from,
                        .asked_number = f->asked_number,
                        .asked_ns = f->asked_ns,
                        .skipped = f->skipped,
                        .unsent = f->unsent,
                        .refused = f->refused || f->known,
                        .counted_bytes = f->counted_bytes,
                        .counted_rest = f->counted_rest,
                        .blocks_refused = MIN(f->blocks_refused + f->blocks_received, sfi_blocks(f->asked)),
                };
                sfi_slots_count(t, i, f);
        }
        t->items[slot].missing = t->n_live;
}

/* Fragments that arrived before the assignment may have another L1 ID; they then belong to another
 * trigger. */
static void set_l1_id(struct sfi_slots *t, uint32_t slot, uint32_t l1_id)
{
        struct sfi_slot *e = &t->items[slot];

        if (e->l1_id == l1_id)
                return;
        e->l1_id = l1_id;
        e->mismatched = true;
        for (uint32_t i = 0; i < t->n_ros; i++)
                t->counts->mismatched += sfi_fragment(t, slot, i)->known;
        forget_fragments(t, slot);
}

void sfi_slots_set_assigned(struct sfi_slots *t, uint32_t slot, uint32_t l1_id)
{
        set_l1_id(t, slot, l1_id);
        list_remove(t, &t->collecting[t->items[slot].assigned], slot);
        t->items[slot].assigned = true;
        t->items[slot].order = ++t->n_assigned;
        list_append(t, &t->collecting[true], slot);
        if (t->young == SLOT_NONE)
                t->young = slot;
        for (uint32_t i = 0; t->sources && i < t->n_ros; i++) {
                if (t->sources[i].next == SLOT_NONE)
                        t->sources[i].next = slot;
        }
        rank(t, slot);
}

void sfi_slots_set_requested(struct sfi_slots *t, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &t->items[slot];

        e->requested = true;
        t->n_requested++;
        e->first_ns = now_ns;
        e->expire_ns = now_ns + t->config->timeout_ns;
}

void sfi_slots_set_retry(struct sfi_slots *t, uint32_t slot, uint64_t retry_ns)
{
        struct sfi_slot *e = &t->items[slot];

        e->retry_ns = retry_ns;
        heap_put(&t->due, slot, MIN(retry_ns, e->expire_ns), e->event);
}

/* Returns the number of present fragments, and counts the missing fragments of required and of optional
 * ROSs. */
static uint32_t count_ends(const struct sfi_slots *t, uint32_t slot, uint32_t *ret_missing,
                           uint32_t *ret_absent)
{
        *ret_missing = *ret_absent = 0;
        for (uint32_t i = 0; i < t->n_ros; i++) {
                if (!sfi_fragment_is_present(sfi_fragment(t, slot, i)))
                        ++*(t->rules[i].optional ? ret_absent : ret_missing);
        }
        return t->n_ros - *ret_missing - *ret_absent;
}

void sfi_slots_finish(struct sfi_slots *t, uint64_t now_ns, uint32_t slot, bool drop)
{
        struct sfi_slot *e = &t->items[slot];
        uint32_t missing, absent, present = count_ends(t, slot, &missing, &absent);

        assert(e->state == SLOT_COLLECTING);
        leave_collecting(t, slot);
        e->end = drop || present == 0 ? EVENT_LOST : missing == 0 ? EVENT_COMPLETE : EVENT_PARTIAL;
        event_set_add(&t->ended, e->event);
        if (e->end != EVENT_LOST)
                event_set_add(&t->built_events, e->event);
        if (e->end == EVENT_PARTIAL)
                event_set_add(&t->partial_events, e->event);
        if (present > 0)
                sfi_slots_learn_size(t, slot, e->end == EVENT_COMPLETE && absent == 0);
        e->missing = missing;
        e->absent = absent;
        e->state = SLOT_BUILDING;
        e->built_ns = now_ns;
        t->writing_look_ns = MIN(t->writing_look_ns, now_ns + SFI_SLOW_WRITE_NS);
        t->n_building++;
        t->built[t->built_head++ & t->built_mask] = slot;
}

void sfi_slots_check(struct sfi_slots *t, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &t->items[slot];

        if (e->missing == 0 && e->assigned && e->state == SLOT_COLLECTING)
                sfi_slots_finish(t, now_ns, slot, false);
}

/* If only fragments with a limited wait are missing, the event ends after the longest of their waits. But a
 * ROS must have answered, because only an answer distinguishes a frame that did not come from a frame that
 * was lost. */
void sfi_slots_limit_wait(struct sfi_slots *t, uint32_t slot)
{
        struct sfi_slot *e = &t->items[slot];
        uint64_t longest_ns = 0;
        uint32_t lacking = 0;

        if (e->missing == 0 || e->missing == t->n_live || e->missing > t->n_waited || !e->assigned ||
            e->state != SLOT_COLLECTING || (t->config->pull && !e->requested))
                return;
        for (uint32_t k = 0; k < t->n_waited; k++) {
                uint32_t ros = t->waited[k];

                if (sfi_fragment(t, slot, ros)->whole || !sfi_slots_ros_is_live(t, ros))
                        continue;
                longest_ns = MAX(longest_ns, t->rules[ros].wait_ns);
                lacking++;
        }
        if (lacking < e->missing || e->first_ns + longest_ns >= e->expire_ns)
                return;
        e->expire_ns = e->first_ns + longest_ns;
        heap_put(&t->due, slot, MIN(e->retry_ns, e->expire_ns), e->event);
}

void sfi_slots_set_whole(struct sfi_slots *t, uint64_t now_ns, uint32_t slot, uint32_t ros)
{
        struct sfi_fragment *f = sfi_fragment(t, slot, ros);

        f->whole = true;
        sfi_slots_count(t, ros, f);
        if (sfi_slots_ros_is_live(t, ros))
                t->items[slot].missing--;
        /* The first estimate must not wait for the event's end, which a silent ROS may delay. */
        if (t->event_bytes == 0 && 2 * t->items[slot].missing <= t->n_live)
                sfi_slots_learn_size(t, slot, false);
        sfi_slots_check(t, now_ns, slot);
        sfi_slots_limit_wait(t, slot);
}

void sfi_slots_drop_all(struct sfi_slots *t, uint64_t now_ns)
{
        while (t->collecting[true].n > 0)
                sfi_slots_finish(t, now_ns, t->collecting[true].first, true);
        while (t->collecting[false].n > 0)
                free_slot(t, t->collecting[false].first);
}

size_t sfi_slots_pop_built(struct sfi_slots *t, uint32_t *slots, size_t n)
{
        size_t taken = 0;

        while (taken < n && t->built_tail != t->built_head)
                slots[taken++] = t->built[t->built_tail++ & t->built_mask];
        return taken;
}

void sfi_slots_written(struct sfi_slots *t, uint32_t slot, bool failed)
{
        if (failed) {
                event_set_remove(&t->built_events, t->items[slot].event);
                event_set_remove(&t->partial_events, t->items[slot].event);
        }
        t->n_building--;
        free_slot(t, slot);
}

static void drop(struct sfi_slots *t, uint64_t now_ns, uint32_t slot)
{
        t->items[slot].is_elsewhere = true;
        sfi_slots_finish(t, now_ns, slot, true);
}

/* ROSs do not answer requests for ended events, so each such event would wait for its time-out, and would
 * keep its credit. */
static void drop_ended(struct sfi_slots *t, uint64_t now_ns, uint64_t oldest)
{
        for (uint32_t slot = t->collecting[true].first, next; slot != SLOT_NONE; slot = next) {
                next = t->items[slot].next;
                if (t->items[slot].event < oldest)
                        drop(t, now_ns, slot);
        }
}

void sfi_slots_record_oldest(struct sfi_slots *t, uint64_t now_ns, uint64_t oldest)
{
        uint64_t kept = oldest - MIN(oldest, EVB_EVENTS_KEPT);

        if (oldest <= t->oldest)
                return;
        drop_ended(t, now_ns, oldest);
        t->oldest = oldest;
        event_set_advance(&t->ended, oldest);
        event_set_advance(&t->built_events, kept);
        event_set_advance(&t->partial_events, kept);
}

void sfi_slots_cancel(struct sfi_slots *t, uint64_t now_ns, uint64_t event)
{
        uint32_t slot = sfi_slots_find(t, event);

        if (slot == SLOT_NONE || t->items[slot].state != SLOT_COLLECTING)
                return;
        if (t->items[slot].assigned)
                drop(t, now_ns, slot);
        else
                free_slot(t, slot);
}

void sfi_slots_withdraw(struct sfi_slots *t, uint64_t event)
{
        uint32_t slot = sfi_slots_find(t, event);

        if (slot == SLOT_NONE || t->items[slot].state != SLOT_BUILDING || t->items[slot].end != EVENT_LOST)
                return;
        t->items[slot].taken_back = true;
        idmap_remove(&t->by_event, event);
}

static void count_missing(struct sfi_slots *t, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &t->items[slot];

        e->missing = 0;
        for (uint32_t i = 0; i < t->n_ros; i++)
                e->missing += sfi_slots_ros_is_live(t, i) && !sfi_fragment(t, slot, i)->whole;
        /* In pull, an event must be requested before it can end, whatever ROSs are present. */
        if (!t->config->pull || e->requested)
                sfi_slots_check(t, now_ns, slot);
        sfi_slots_limit_wait(t, slot);
}

void sfi_slots_set_live(struct sfi_slots *t, uint64_t now_ns, const uint64_t live[static EVB_ROS_MAX / 64])
{
        if (memcmp(t->ros_live, live, sizeof t->ros_live) == 0)
                return;
        memcpy(t->ros_live, live, sizeof t->ros_live);
        t->n_live = 0;
        t->in_flight_bytes = 0;
        for (uint32_t i = 0; i < t->n_ros; i++) {
                bool is_live = sfi_slots_ros_is_live(t, i);

                t->n_live += is_live;
                t->in_flight_bytes += t->sources && is_live ? t->sources[i].in_flight_bytes : 0;
        }

        for (int assigned = 0; assigned < 2; assigned++) {
                for (uint32_t slot = t->collecting[assigned].first, next; slot != SLOT_NONE; slot = next) {
                        next = t->items[slot].next;
                        count_missing(t, now_ns, slot);
                }
        }
}

uint64_t sfi_slots_reserve(struct sfi_slots *t, uint32_t slot, uint32_t bytes)
{
        uint64_t at = arena_alloc(t->arena, bytes);

        if (at != ARENA_NONE && t->items[slot].blocks++ == 0)
                rank(t, slot);
        return at;
}

void sfi_slots_empty(struct sfi_slots *t, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &t->items[slot];

        forget_fragments(t, slot);
        e->starved = t->has_starved = true;
        e->rounds = 0;
        e->expire_ns = now_ns + t->config->timeout_ns;
        t->counts->no_room++;
}
