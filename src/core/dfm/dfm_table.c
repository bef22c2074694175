/* The DFM's open events: slots, found by event number, in lists by their state. The table is independent of
 * policies and messages. */
#include <assert.h>
#include <errno.h>

#include "dfm_internal.h"

static void list_add(struct dfm_table *t, struct dfm_list *list, uint32_t slot)
{
        struct dfm_event *e = &t->slots[slot];

        e->next = SLOT_NONE;
        e->previous = list->last;
        if (list->last == SLOT_NONE)
                list->first = slot;
        else
                t->slots[list->last].next = slot;
        list->last = slot;
}

static void list_remove(struct dfm_table *t, struct dfm_list *list, uint32_t slot)
{
        struct dfm_event *e = &t->slots[slot];

        if (e->previous == SLOT_NONE)
                list->first = e->next;
        else
                t->slots[e->previous].next = e->next;
        if (e->next == SLOT_NONE)
                list->last = e->previous;
        else
                t->slots[e->next].previous = e->previous;
}

static struct dfm_list *list_of(struct dfm_table *t, uint32_t slot)
{
        const struct dfm_event *e = &t->slots[slot];

        if (e->undecided)
                return &t->undecided;
        if (e->accepted)
                return &t->accepted;
        return e->sfi == NO_SFI ? &t->orphans : e->writing ? &t->writing : &t->assigned;
}

/* The caller sets the new state, and adds the slot to the list of that state. */
static void leave_list(struct dfm_table *t, uint32_t slot)
{
        struct dfm_event *e = &t->slots[slot];

        list_remove(t, list_of(t, slot), slot);
        t->n_undecided -= e->undecided;
        e->writing = e->undecided = e->accepted = false;
}

int dfm_table_init(struct dfm_table *t, uint32_t capacity)
{
        int r;

        *t = (struct dfm_table){
                .capacity = capacity,
                .assigned = {SLOT_NONE, SLOT_NONE},
                .writing = {SLOT_NONE, SLOT_NONE},
                .orphans = {SLOT_NONE, SLOT_NONE},
                .undecided = {SLOT_NONE, SLOT_NONE},
                .accepted = {SLOT_NONE, SLOT_NONE},
        };
        r = idmap_init(&t->by_event, capacity);
        if (r < 0)
                return r;
        t->slots = calloc(capacity, sizeof *t->slots);
        t->free_slots = calloc(capacity, sizeof *t->free_slots);
        if (!t->slots || !t->free_slots)
                return -ENOMEM;
        return 0;
}

void dfm_table_fini(struct dfm_table *t)
{
        idmap_fini(&t->by_event);
        free(t->slots);
        free(t->free_slots);
}

uint32_t dfm_table_insert(struct dfm_table *t, uint64_t event, uint64_t now_ns)
{
        assert(t->used < t->capacity);
        uint32_t slot = t->used + t->free_slots[t->used];

        t->used++;
        t->slots[slot] = (struct dfm_event){
                .event = event,
                .trigger_ns = now_ns,
                .assigned_ns = now_ns,
                .sfi = NO_SFI,
                .previous_sfi = NO_SFI,
        };
        idmap_put(&t->by_event, event, slot);
        list_add(t, &t->orphans, slot);
        return slot;
}

uint32_t dfm_table_open(struct dfm_table *t, uint64_t now_ns)
{
        return dfm_table_insert(t, t->next_event++, now_ns);
}

void dfm_table_close(struct dfm_table *t, uint32_t slot)
{
        uint64_t event = t->slots[slot].event;

        leave_list(t, slot);
        idmap_remove(&t->by_event, event);
        t->used--;
        t->free_slots[t->used] = slot - t->used;
        t->oldest += event == t->oldest && event < t->next_event;
        while (t->oldest < t->next_event && idmap_get(&t->by_event, t->oldest) == IDMAP_NONE)
                t->oldest++;
}

void dfm_table_assign(struct dfm_table *t, uint32_t slot, uint16_t sfi, uint32_t sequence, uint64_t now_ns)
{
        struct dfm_event *e = &t->slots[slot];

        leave_list(t, slot);
        e->sfi = sfi;
        e->sequence = sequence;
        e->assigned_ns = now_ns;
        e->attempts++;
        list_add(t, &t->assigned, slot);
}

void dfm_table_set_writing(struct dfm_table *t, uint32_t slot)
{
        leave_list(t, slot);
        t->slots[slot].writing = true;
        list_add(t, &t->writing, slot);
}

void dfm_table_orphan(struct dfm_table *t, uint32_t slot, uint64_t now_ns)
{
        leave_list(t, slot);
        t->slots[slot].previous_sfi = t->slots[slot].sfi;
        t->slots[slot].sfi = NO_SFI;
        t->slots[slot].assigned_ns = now_ns;
        list_add(t, &t->orphans, slot);
}

void dfm_table_await(struct dfm_table *t, uint32_t slot)
{
        leave_list(t, slot);
        t->slots[slot].undecided = true;
        t->n_undecided++;
        list_add(t, &t->undecided, slot);
}

void dfm_table_accept(struct dfm_table *t, uint32_t slot, uint64_t now_ns)
{
        leave_list(t, slot);
        t->slots[slot].accepted = true;
        t->slots[slot].assigned_ns = now_ns;
        list_add(t, &t->accepted, slot);
}

static void postpone(struct dfm_table *t, const struct dfm_list *list, uint64_t now_ns, uint64_t by_ns)
{
        for (uint32_t slot = list->first; slot != SLOT_NONE; slot = t->slots[slot].next)
                t->slots[slot].assigned_ns = MIN(t->slots[slot].assigned_ns + by_ns, now_ns);
}

void dfm_table_postpone(struct dfm_table *t, uint64_t now_ns, uint64_t by_ns)
{
        postpone(t, &t->assigned, now_ns, by_ns);
        postpone(t, &t->orphans, now_ns, by_ns);
        postpone(t, &t->undecided, now_ns, by_ns);
        postpone(t, &t->accepted, now_ns, by_ns);
}
