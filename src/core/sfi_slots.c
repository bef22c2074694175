/* The SFI's slots: opened, found whole or expired, finished. What fills them is in sfi_pieces.c. */
#include <assert.h>
#include <string.h>

#include "sfi_internal.h"

uint32_t sfi_open_slot(struct sfi *s, uint64_t now_ns, uint64_t event, uint32_t l1_id)
{
        if (s->n_free == 0)
                return IDMAP_NONE;
        uint32_t slot = s->free_slots[--s->n_free];

        s->slots[slot] = (struct sfi_slot){
                .event = event,
                .l1_id = l1_id,
                .state = SLOT_COLLECTING,
                .first_ns = now_ns,
                .re_ask_ns = NEVER_NS,
                .expire_ns = now_ns + s->config.timeout_ns,
                .missing = s->n_live,
                .queued = s->slots[slot].queued,
        };
        s->scan_ns = MIN(s->scan_ns, s->slots[slot].expire_ns);
        memset(sfi_fragment(s, slot, 0), 0, s->config.n_ros * sizeof *s->fragments);
        idmap_put(&s->by_event, event, slot);
        return slot;
}

bool sfi_has_ended(const struct sfi *s, uint64_t event)
{
        return event < s->oldest || event_set_has(&s->ended, event);
}

void sfi_note_oldest(struct sfi *s, uint64_t oldest)
{
        if (oldest <= s->oldest)
                return;
        s->oldest = oldest;
        event_set_advance(&s->ended, oldest);
}

static void free_fragments(struct sfi *s, uint32_t slot)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                struct sfi_fragment *f = sfi_fragment(s, slot, i);

                if (f->known && f->at != ARENA_NONE)
                        arena_release(s->arena, f->at);
        }
}

static void leave_collecting(struct sfi *s, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        idmap_remove(&s->by_event, e->event);
        if (e->asked)
                s->n_asked--;
        e->asked = false;
}

void sfi_drop_slot(struct sfi *s, uint32_t slot)
{
        struct sfi_slot *e = &s->slots[slot];

        if (e->state == SLOT_COLLECTING)
                leave_collecting(s, slot);
        free_fragments(s, slot);
        e->state = SLOT_EMPTY;
        s->free_slots[s->n_free++] = slot;
}

static bool holds_memory(const struct sfi *s, uint32_t slot)
{
        for (uint32_t i = 0; i < s->config.n_ros; i++) {
                const struct sfi_fragment *f = sfi_fragment(s, slot, i);

                if (f->known && f->at != ARENA_NONE)
                        return true;
        }
        return false;
}

bool sfi_evict_younger(struct sfi *s, uint64_t now_ns, uint64_t event)
{
        uint32_t youngest = IDMAP_NONE;

        for (uint32_t slot = 0; slot < s->config.slots; slot++) {
                const struct sfi_slot *e = &s->slots[slot];

                if (e->state == SLOT_COLLECTING && e->event > event && holds_memory(s, slot) &&
                    (youngest == IDMAP_NONE || e->event > s->slots[youngest].event))
                        youngest = slot;
        }
        if (youngest == IDMAP_NONE)
                return false;
        struct sfi_slot *e = &s->slots[youngest];

        free_fragments(s, youngest);
        memset(sfi_fragment(s, youngest, 0), 0, s->config.n_ros * sizeof *s->fragments);
        e->whole = 0;
        e->missing = s->n_live;
        e->rounds = 0;
        e->expire_ns = now_ns + s->config.timeout_ns;
        s->counts.no_room++;
        sfi_plan_re_ask(s, now_ns, e);
        return true;
}

/* A fragment that the ROS sent, as far as the event is concerned: FRAGMENT_NONE is all that there is. */
static bool is_there(const struct sfi_fragment *f)
{
        return f->whole && (f->status == FRAGMENT_OK || f->status == FRAGMENT_NONE || f->status == FRAGMENT_TRUNCATED);
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
        e->dropped = drop;
        e->end = drop || there == 0 ? EVENT_LOST : there == s->config.n_ros ? EVENT_COMPLETE : EVENT_PARTIAL;
        if (!s->config.pull && e->end != EVENT_LOST)
                event_set_add(&s->ended, e->event);
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

void sfi_set_live(struct sfi *s, uint64_t now_ns, const uint64_t live[static EVB_ROS_MAX / 64])
{
        if (memcmp(s->ros_live, live, sizeof s->ros_live) == 0)
                return;
        memcpy(s->ros_live, live, sizeof s->ros_live);
        s->n_live = 0;
        for (uint32_t i = 0; i < s->config.n_ros; i++)
                s->n_live += sfi_ros_is_live(s, i);

        for (uint32_t slot = 0; slot < s->config.slots; slot++) {
                struct sfi_slot *e = &s->slots[slot];

                if (e->state != SLOT_COLLECTING)
                        continue;
                e->missing = 0;
                for (uint32_t i = 0; i < s->config.n_ros; i++)
                        e->missing += sfi_ros_is_live(s, i) && !sfi_fragment(s, slot, i)->whole;
                /* In pull an event that was never asked for is asked for first, whoever is there. */
                if (!s->config.pull || e->asked)
                        sfi_check_slot(s, now_ns, slot);
        }
}
