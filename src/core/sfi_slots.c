/* The SFI's slots: opened, found whole or expired, finished. What fills them is in sfi_pieces.c. */
#include <assert.h>
#include <string.h>

#include "sfi_internal.h"

/* Slots for events that are not assigned here: this many, or an eighth of all; and the time for which each
 * keeps one. */
#define UNASSIGNED_LEAST 16u
#define UNASSIGNED_AGE_NS (100 * NS_PER_MS)

static void list_append(struct sfi *s, struct sfi_list *list, uint32_t slot)
{
        s->slots[slot].next = SLOT_NONE;
        s->slots[slot].previous = list->last;
        *(list->last == SLOT_NONE ? &list->first : &s->slots[list->last].next) = slot;
        list->last = slot;
        list->n++;
}

static void list_remove(struct sfi *s, struct sfi_list *list, uint32_t slot)
{
        const struct sfi_slot *e = &s->slots[slot];

        *(e->previous == SLOT_NONE ? &list->first : &s->slots[e->previous].next) = e->next;
        *(e->next == SLOT_NONE ? &list->last : &s->slots[e->next].previous) = e->previous;
        list->n--;
}

void sfi_give_up_unassigned(struct sfi *s, uint32_t slot)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++)
                s->counts.late += sfi_fragment(s, slot, i)->whole;
        sfi_drop_slot(s, slot);
}

/* Events that are not assigned here use a small part of the slots; newer ones replace the oldest. An
 * assignment takes one of these slots if no other is free. */
static bool make_room(struct sfi *s, uint64_t now_ns, bool assigned)
{
        const struct sfi_list *unassigned = &s->collecting[false];
        uint32_t share = MAX(s->config.slots / 8, MIN(s->config.slots / 2, UNASSIGNED_LEAST));

        if (assigned ? s->n_free > 0 : unassigned->n < share && s->n_free > 0)
                return true;
        if (unassigned->n == 0)
                return false;
        if (!assigned && now_ns - s->slots[unassigned->first].first_ns < UNASSIGNED_AGE_NS)
                return false;
        sfi_give_up_unassigned(s, unassigned->first);
        return true;
}

uint32_t sfi_open_slot(struct sfi *s, uint64_t now_ns, uint64_t event, uint32_t l1_id, bool assigned)
{
        if (!make_room(s, now_ns, assigned))
                return IDMAP_NONE;
        uint32_t slot = s->free_slots[--s->n_free];

        s->slots[slot] = (struct sfi_slot){
                .event = event,
                .l1_id = l1_id,
                .state = SLOT_COLLECTING,
                .first_ns = now_ns,
                .retry_ns = NEVER_NS,
                .expire_ns = now_ns + s->config.timeout_ns,
                .missing = s->n_live,
                .queued = s->slots[slot].queued,
        };
        /* In pull its time begins with the request. */
        if (!s->config.pull)
                heap_put(&s->due, slot, s->slots[slot].expire_ns, event);
        list_append(s, &s->collecting[false], slot);
        memset(sfi_fragment(s, slot, 0), 0, s->config.n_ros * sizeof *s->fragments);
        idmap_put(&s->by_event, event, slot);
        return slot;
}

bool sfi_has_ended(const struct sfi *s, uint64_t event)
{
        return event < s->oldest || event_set_has(&s->ended, event);
}

bool sfi_was_built(const struct sfi *s, uint64_t event)
{
        return event < s->oldest || event_set_has(&s->built_events, event);
}

void sfi_note_oldest(struct sfi *s, uint64_t oldest)
{
        if (oldest <= s->oldest)
                return;
        s->oldest = oldest;
        event_set_advance(&s->ended, oldest);
        event_set_advance(&s->built_events, oldest);
}

/* Events that are not assigned here give way first, then younger ones. */
static void rank(struct sfi *s, uint32_t slot)
{
        const struct sfi_slot *e = &s->slots[slot];

        if (e->blocks > 0)
                heap_put(&s->holding, slot, e->assigned, ~e->event);
}

static bool gives_way_to(const struct sfi_slot *a, const struct sfi_slot *b)
{
        return a->assigned != b->assigned ? b->assigned : a->event > b->event;
}

void sfi_note_block(struct sfi *s, uint32_t slot)
{
        if (s->slots[slot].blocks++ == 0)
                rank(s, slot);
}

void sfi_set_assigned(struct sfi *s, uint32_t slot)
{
        list_remove(s, &s->collecting[s->slots[slot].assigned], slot);
        s->slots[slot].assigned = true;
        list_append(s, &s->collecting[true], slot);
        rank(s, slot);
}

static void free_fragments(struct sfi *s, uint32_t slot)
{
        s->slots[slot].blocks = 0;
        heap_remove(&s->holding, slot);
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                struct sfi_fragment *f = sfi_fragment(s, slot, i);

                if (f->known && f->at != ARENA_NONE)
                        arena_release(s->arena, f->at);
        }
}

static void leave_collecting(struct sfi *s, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        list_remove(s, &s->collecting[e->assigned], slot);
        heap_remove(&s->due, slot);
        heap_remove(&s->holding, slot);
        if (e->asked)
                s->n_asked--;
        e->asked = false;
}

void sfi_drop_slot(struct sfi *s, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        if (e->state == SLOT_COLLECTING)
                leave_collecting(s, slot);
        if (!e->taken_back)
                idmap_remove(&s->by_event, e->event);
        free_fragments(s, slot);
        e->state = SLOT_EMPTY;
        s->free_slots[s->n_free++] = slot;
}

bool sfi_evict_for(struct sfi *s, uint64_t now_ns, uint32_t slot)
{
        uint32_t youngest = heap_first(&s->holding);

        if (youngest == HEAP_NONE || !gives_way_to(&s->slots[youngest], &s->slots[slot]))
                return false;
        struct sfi_slot *e = &s->slots[youngest];

        if (!e->assigned) {
                sfi_give_up_unassigned(s, youngest);
                return true;
        }
        free_fragments(s, youngest);
        memset(sfi_fragment(s, youngest, 0), 0, s->config.n_ros * sizeof *s->fragments);
        e->whole = 0;
        e->missing = s->n_live;
        e->rounds = 0;
        e->expire_ns = now_ns + s->config.timeout_ns;
        s->counts.no_room++;
        sfi_plan_retry(s, now_ns, youngest);
        return true;
}

/* A fragment that the ROS sent, as far as the event is concerned: FRAGMENT_NONE is all that there is. */
static bool is_there(const struct sfi_fragment *f)
{
        return f->whole &&
               (f->status == FRAGMENT_OK || f->status == FRAGMENT_NONE || f->status == FRAGMENT_TRUNCATED);
}

static uint32_t count_there(const struct sfi *s, uint32_t slot)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < s->config.n_ros; i++)
                n += is_there(sfi_fragment(s, slot, i));
        return n;
}

static void learn_size(struct sfi *s, uint32_t slot)
{
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < s->config.n_ros; i++)
                bytes += arena_block_bytes(s->arena, sfi_fragment(s, slot, i)->bytes);
        if (bytes >= s->event_bytes)
                s->event_bytes = bytes;
        else
                s->event_bytes -= (s->event_bytes - bytes) / 64;
}

void sfi_finish_slot(struct sfi *s, uint64_t now_ns, uint32_t slot, bool drop)
{
        struct sfi_slot *e = &s->slots[slot];
        uint32_t there = count_there(s, slot);

        assert(e->state == SLOT_COLLECTING);
        leave_collecting(s, slot);
        e->end = drop || there == 0 ? EVENT_LOST : there == s->config.n_ros ? EVENT_COMPLETE : EVENT_PARTIAL;
        event_set_add(&s->ended, e->event);
        if (e->end != EVENT_LOST)
                event_set_add(&s->built_events, e->event);
        if (e->end == EVENT_COMPLETE)
                learn_size(s, slot);
        e->missing = s->config.n_ros - there;
        e->state = SLOT_BUILDING;
        e->built_ns = now_ns;
        s->writing_look_ns = MIN(s->writing_look_ns, now_ns + SFI_SLOW_WRITE_NS);
        s->n_building++;
        s->built[s->built_head++ & s->built_mask] = slot;
}

void sfi_check_slot(struct sfi *s, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        if (e->missing == 0 && e->assigned && e->state == SLOT_COLLECTING)
                sfi_finish_slot(s, now_ns, slot, false);
}

static void count_missing(struct sfi *s, uint64_t now_ns, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        e->missing = 0;
        for (uint32_t i = 0; i < s->config.n_ros; i++)
                e->missing += sfi_ros_is_live(s, i) && !sfi_fragment(s, slot, i)->whole;
        /* In pull, events that were never requested come first, whichever ROSs are present. */
        if (!s->config.pull || e->asked)
                sfi_check_slot(s, now_ns, slot);
}

void sfi_set_live(struct sfi *s, uint64_t now_ns, const uint64_t live[static EVB_ROS_MAX / 64])
{
        if (memcmp(s->ros_live, live, sizeof s->ros_live) == 0)
                return;
        memcpy(s->ros_live, live, sizeof s->ros_live);
        s->n_live = 0;
        for (uint32_t i = 0; i < s->config.n_ros; i++)
                s->n_live += sfi_ros_is_live(s, i);

        for (int assigned = 0; assigned < 2; assigned++) {
                for (uint32_t slot = s->collecting[assigned].first, next; slot != SLOT_NONE; slot = next) {
                        next = s->slots[slot].next;
                        count_missing(s, now_ns, slot);
                }
        }
}
