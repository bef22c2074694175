/* Level 2: the events of new triggers wait here for a decision or their time-out. dfm_events.c assigns
 * accepted events, and clears rejected events. */
#include "core/dfm_level2.h"

#include <errno.h>

#include "dfm_internal.h"

/* Maximum number of events that one call of dfm_list_undecided() examines. */
#define LIST_EVENTS 4096
/* Maximum number of undecided events until the size of frames is known. */
#define FIRST_ROOM 16u

static uint32_t room_of_all(const struct dfm *d)
{
        uint32_t room = UINT32_MAX;

        for (uint32_t i = 0; i < d->config.n_ros; i++) {
                if (d->ross[i].room > 0)
                        room = MIN(room, d->ross[i].room);
        }
        return d->config.has_front_ends && room == UINT32_MAX ? FIRST_ROOM : room;
}

int dfm_level2_init(struct dfm *d)
{
        histogram_init(&d->level2.latency_ns);
        d->level2.room = room_of_all(d);
        if (!d->config.level2.on)
                return 0;
        d->level2.decided = calloc(EVB_EVENT_WINDOW / 64, sizeof *d->level2.decided);
        return d->level2.decided ? 0 : -ENOMEM;
}

void dfm_level2_fini(struct dfm *d)
{
        free(d->level2.decided);
}

void dfm_level2_set_room(struct dfm *d, uint16_t ros, uint32_t room)
{
        if (room == d->ross[ros].room)
                return;
        d->ross[ros].room = room;
        d->level2.room = room_of_all(d);
}

static uint64_t *word_of(struct dfm_level2 *l, uint64_t event)
{
        return &l->decided[event % EVB_EVENT_WINDOW / 64];
}

static uint64_t bit_of(uint64_t event)
{
        return UINT64_C(1) << event % 64;
}

/* Clears the bits that new events reuse. */
static void remember_new(struct dfm *d)
{
        uint64_t next = d->table.next_event, oldest = (next - MIN(next, EVB_EVENT_WINDOW)) / 64 * 64;
        struct dfm_level2 *l = &d->level2;

        for (l->remembered = MAX(l->remembered, oldest); l->remembered < next; l->remembered += 64)
                *word_of(l, l->remembered) = 0;
}

/* Only decisions about recent events are recorded; a decision about an older event counts as late. */
static void count_unused(struct dfm *d, uint64_t event)
{
        struct dfm_level2_counts *c = &d->level2.counts;
        uint64_t next = d->table.next_event;

        if (event >= next)
                c->unknown++;
        else if (next - event <= EVB_EVENT_WINDOW && *word_of(&d->level2, event) & bit_of(event))
                c->repeated++;
        else
                c->late++;
}

static void accept(struct dfm *d, uint64_t now_ns, uint32_t slot, const struct decision_entry *decision)
{
        struct dfm_event *e = &d->table.slots[slot];

        d->level2.counts.accepted++;
        e->decided = true;
        e->stream = decision->stream;
        e->l2_info = decision->l2_info;
        dfm_table_accept(&d->table, slot, now_ns);
}

bool dfm_decide(struct dfm *d, uint64_t now_ns, const struct decision_entry *decision)
{
        uint32_t slot = idmap_get(&d->table.by_event, decision->event);

        if (!d->config.level2.on)
                return false;
        remember_new(d);
        if (slot == IDMAP_NONE || !d->table.slots[slot].undecided) {
                count_unused(d, decision->event);
                return false;
        }
        *word_of(&d->level2, decision->event) |= bit_of(decision->event);
        histogram_add(&d->level2.latency_ns, now_ns - d->table.slots[slot].trigger_ns, 1);
        if (decision->verdict == DECISION_ACCEPT) {
                accept(d, now_ns, slot, decision);
                return true;
        }
        d->level2.counts.rejected++;
        dfm_reject_event(d, now_ns, slot);
        return true;
}

static bool is_older(uint64_t since_ns, uint64_t age_ns, uint64_t now_ns)
{
        return now_ns - since_ns >= age_ns;
}

/* When the time-out of the first accepted event began. After the time-out, no SFI is expected to build the
 * event. */
static uint64_t accepted_since_ns(const struct dfm *d)
{
        return MAX(d->table.slots[d->table.accepted.first].assigned_ns, d->level2.served_ns);
}

void dfm_level2_expire(struct dfm *d, uint64_t now_ns)
{
        const struct dfm_config *c = &d->config;
        struct dfm_table *t = &d->table;
        uint32_t slot;

        while ((slot = t->undecided.first) != SLOT_NONE &&
               is_older(t->slots[slot].assigned_ns, c->level2.timeout_ns, now_ns)) {
                d->level2.counts.timed_out++;
                if (c->level2.accept_undecided)
                        dfm_table_accept(t, slot, now_ns);
                else
                        dfm_reject_event(d, now_ns, slot);
        }
        /* A run that drains must end, even if no SFI accepts another event. */
        while (d->state == RUN_DRAINING && t->accepted.first != SLOT_NONE &&
               (dfm_is_hopeless(d) || is_older(accepted_since_ns(d), c->event_timeout_ns, now_ns)))
                dfm_lose_event(d, now_ns, t->accepted.first, DFM_LOSS_NO_SFI);
}

uint64_t dfm_level2_deadline_ns(const struct dfm *d)
{
        const struct dfm_table *t = &d->table;
        uint64_t deadline = NEVER_NS;

        if (t->undecided.first != SLOT_NONE)
                deadline = t->slots[t->undecided.first].assigned_ns + d->config.level2.timeout_ns;
        if (d->state == RUN_DRAINING && t->accepted.first != SLOT_NONE)
                deadline = MIN(deadline, accepted_since_ns(d) + d->config.event_timeout_ns);
        return deadline;
}

static struct undecided_entry describe(const struct dfm *d, const struct dfm_event *e)
{
        struct event_info info;

        dfm_describe(d, e, &info);
        return (struct undecided_entry){
                .event = e->event,
                .number = info.global_id,
                .time_ns = info.time_s * NS_PER_S + info.time_ns,
                .type = info.trigger_type,
                .flags = e->trigger.flags,
        };
}

size_t dfm_list_undecided(const struct dfm *d, uint64_t *from, struct undecided_entry *ret, size_t n)
{
        const struct dfm_table *t = &d->table;
        uint64_t event = MAX(*from, t->oldest), end = MIN(t->next_event, event + LIST_EVENTS);
        size_t found = 0;

        for (; event < end && found < n; event++) {
                uint32_t slot = idmap_get(&t->by_event, event);

                if (slot != IDMAP_NONE && t->slots[slot].undecided)
                        ret[found++] = describe(d, &t->slots[slot]);
        }
        *from = event;
        return found;
}

const struct dfm_level2_counts *dfm_level2_counts(const struct dfm *d)
{
        return &d->level2.counts;
}

const struct histogram *dfm_level2_latency_ns(const struct dfm *d)
{
        return &d->level2.latency_ns;
}
