/* The life of an event in the DFM: assignment, reassignment, end. dfm_messages.c makes the messages. */

#include "dfm_internal.h"

/* Maximum number of events assigned in one call, so that messages are sent in between. */
#define ASSIGN_BATCH 512

void dfm_leave_sfi(struct dfm *d, uint32_t slot)
{
        uint16_t sfi = d->table.slots[slot].sfi;

        if (sfi != NO_SFI)
                d->sfis[sfi].held--;
}

/* For internal triggers: the number of the event, unless a file describes the triggers. */
static uint32_t l1_id_of(const struct dfm *d, const struct dfm_event *e)
{
        struct event_info info;

        dfm_describe(d, e, &info);
        return info.l1_id;
}

/* Whether the Clear of an event has its L1 ID, because a ROS may know the trigger from nothing else: with
 * level 2, if the event is rejected; in pull, if no SFI requested the fragment, as the ROS was left out. */
static bool clears_by_l1_id(const struct dfm *d, uint32_t slot, bool taken)
{
        bool unrequested = !d->config.push && d->config.has_front_ends && taken;

        return (d->config.level2.on || unrequested) && dfm_can_describe(d, slot);
}

/* Ends the event, and makes the ROSs clear it. */
static void close_event(struct dfm *d, uint64_t now_ns, uint32_t slot, bool taken)
{
        bool by_l1_id = clears_by_l1_id(d, slot, taken);

        if (d->n_clears == 0)
                d->clear_since_ns = now_ns;
        d->clears[d->n_clears++] = (struct dfm_ended){
                .event = d->table.slots[slot].event,
                .has_l1_id = by_l1_id,
                .l1_id = by_l1_id ? l1_id_of(d, &d->table.slots[slot]) : 0,
        };
        event_set_add(&d->ledger.ended, d->table.slots[slot].event);
        dfm_leave_sfi(d, slot);
        dfm_table_close(&d->table, slot);
        event_set_advance(&d->ledger.ended, d->table.oldest);
}

void dfm_untake(struct dfm *d, uint64_t now_ns, uint32_t slot)
{
        event_set_advance(&d->untaken, d->built_end);
        event_set_add(&d->untaken, d->table.slots[slot].event);
        d->counts.triggers--;
        d->counts.not_taken++;
        d->triggers.followed = true;
        close_event(d, now_ns, slot, false);
}

void dfm_reject_event(struct dfm *d, uint64_t now_ns, uint32_t slot)
{
        d->counts.rejected++;
        d->triggers.unread_ns = MAX(d->triggers.unread_ns, d->table.slots[slot].trigger_ns);
        close_event(d, now_ns, slot, true);
}

/* The triggers of these events count after all. */
static void lose_untaken(struct dfm *d, uint64_t n)
{
        struct dfm_counts *c = &d->counts;

        if (n == 0)
                return;
        c->not_taken -= n;
        c->triggers += n;
        c->lost += n;
        c->fragments_expected += n * d->config.n_ros;
        c->fragments_lost += n * d->config.n_ros;
        d->lost[DFM_LOSS_REPORTED] += n;
        dfm_ledger_changed(d);
}

/* A board has read out the trigger of this event, so the boards had not stopped before it. */
static inline void record_built(struct dfm *d, uint64_t event)
{
        struct event_set *u = &d->untaken;
        uint64_t n = d->n_untaken_before;

        if (event < d->built_end)
                return;
        d->built_end = event + 1;
        if (d->counts.not_taken == 0)
                return;
        for (uint64_t e = u->added_from; e < MIN(u->added_to, event); e++)
                n += event_set_has(u, e);
        event_set_advance(u, d->built_end);
        d->n_untaken_before = 0;
        lose_untaken(d, n);
}

static inline void count_end(struct dfm *d, uint64_t now_ns, enum event_end end, uint32_t missing,
                             uint64_t payload_bytes)
{
        struct dfm_counts *c = &d->counts;
        uint32_t n_ros = d->config.n_ros;

        if (end == EVENT_COMPLETE) {
                c->complete++;
                c->payload_bytes += payload_bytes;
                c->first_complete_ns = c->first_complete_ns ?: now_ns;
                c->last_complete_ns = now_ns;
        } else if (end == EVENT_PARTIAL)
                c->partial++;
        else
                c->lost++;
        missing = end == EVENT_COMPLETE ? 0 : end == EVENT_LOST ? n_ros : MIN(missing, n_ros);
        c->fragments_expected += n_ros;
        c->fragments_received += n_ros - missing;
        c->fragments_lost += missing;
}

void dfm_end_event(struct dfm *d, uint64_t now_ns, uint32_t slot, enum event_end end, uint32_t missing,
                   uint64_t payload_bytes)
{
        const struct dfm_event *e = &d->table.slots[slot];

        if (end < EVENT_LOST)
                record_built(d, e->event);
        count_end(d, now_ns, end, missing, payload_bytes);
        histogram_add(&d->latency_ns, now_ns - e->trigger_ns, 1);
        close_event(d, now_ns, slot, true);
}

void dfm_lose_event(struct dfm *d, uint64_t now_ns, uint32_t slot, enum dfm_loss why)
{
        const struct dfm_event *e = &d->table.slots[slot];

        d->lost[why]++;
        if (e->sfi != NO_SFI)
                dfm_node(d, ROLE_SFI, e->sfi)->lost[why]++;
        d->lost_events[e->event % EVB_EVENTS_KEPT] =
                (struct dfm_lost){.lost = true, .why = (uint8_t)why, .sfi = e->sfi, .event = e->event};
        dfm_end_event(d, now_ns, slot, EVENT_LOST, 0, 0);
}

bool dfm_recover_event(struct dfm *d, uint64_t now_ns, const struct finished_entry *f)
{
        struct dfm_lost *e = &d->lost_events[f->event % EVB_EVENTS_KEPT];
        struct dfm_counts *c = &d->counts;

        if (!e->lost || e->event != f->event || f->end >= EVENT_LOST)
                return false;
        e->lost = false;
        if (e->why < DFM_LOSSES)
                d->lost[e->why]--;
        if (e->sfi != NO_SFI)
                dfm_node(d, ROLE_SFI, e->sfi)->lost[e->why]--;
        c->lost--;
        c->fragments_expected -= d->config.n_ros;
        c->fragments_lost -= d->config.n_ros;
        record_built(d, f->event);
        count_end(d, now_ns, (enum event_end)f->end, f->missing, f->payload_bytes);
        dfm_ledger_changed(d);
        return true;
}

uint64_t dfm_lost(const struct dfm *d, uint16_t sfi, enum dfm_loss why)
{
        return sfi == UINT16_MAX ? d->lost[why] : dfm_node(d, ROLE_SFI, sfi)->lost[why];
}

static uint32_t choose_sfi(struct dfm *d)
{
        return policy_choose(d->policy_view, d->config.n_sfi, d->policy_last);
}

/* Avoids the SFI that did not finish the event, unless no other SFI has a credit. */
static uint32_t choose_another(struct dfm *d, uint16_t previous_sfi)
{
        if (previous_sfi == NO_SFI || d->policy_view[previous_sfi].free == 0)
                return choose_sfi(d);
        struct policy_sfi kept = d->policy_view[previous_sfi];

        d->policy_view[previous_sfi].free = 0;
        uint32_t sfi = choose_sfi(d);

        d->policy_view[previous_sfi] = kept;
        return sfi == POLICY_NONE ? previous_sfi : sfi;
}

static void view_policy(struct dfm *d)
{
        for (uint32_t i = 0; i < d->config.n_sfi; i++)
                d->policy_view[i] = (struct policy_sfi){dfm_sfi_free(d, &d->sfis[i]), d->sfis[i].held};
}

static void assign_event(struct dfm *d, uint64_t now_ns, uint32_t slot, uint32_t sfi)
{
        struct dfm_sfi *s = &d->sfis[sfi];
        uint64_t event = d->table.slots[slot].event;

        dfm_table_assign(&d->table, slot, (uint16_t)sfi, s->next, now_ns);
        s->stream[s->next & d->stream_mask] = event;
        s->next++;
        s->used++;
        s->held++;
        if (d->config.push)
                d->announce[d->announce_head++ & d->announce_mask] = event;
        d->counts.assigned++;
        d->policy_last = sfi;
        d->policy_view[sfi] = (struct policy_sfi){dfm_sfi_free(d, s), s->held};
}

static bool may_announce(const struct dfm *d)
{
        return d->announce_head - d->announce_tail <= d->announce_mask;
}

/* Every open event becomes an entry of `clears` when it ends, so both have the same bound. Nodes learn about
 * a new `oldest` later than the DFM, so the DFM uses only half of the window. */
bool dfm_may_open(const struct dfm *d)
{
        return d->table.used + d->n_clears < d->config.events_max && may_announce(d) &&
               d->table.next_event - d->table.oldest < EVB_EVENT_WINDOW / 2;
}

static bool assign_orphans(struct dfm *d, uint64_t now_ns)
{
        uint32_t sfi;

        while (d->table.orphans.first != SLOT_NONE) {
                if (!dfm_can_describe(d, d->table.orphans.first)) {
                        dfm_lose_event(d, now_ns, d->table.orphans.first, DFM_LOSS_UNKNOWN);
                        continue;
                }
                if (!may_announce(d))
                        return false;
                sfi = choose_another(d, d->table.slots[d->table.orphans.first].previous_sfi);
                if (sfi == POLICY_NONE)
                        return false;
                d->counts.reassigned++;
                assign_event(d, now_ns, d->table.orphans.first, sfi);
        }
        return true;
}

/* Accepted events wait for a credit without a time-out, like triggers that are held back. */
static bool assign_accepted(struct dfm *d, uint64_t now_ns)
{
        uint32_t slot, sfi;

        while ((slot = d->table.accepted.first) != SLOT_NONE) {
                if (!may_announce(d) || (sfi = choose_sfi(d)) == POLICY_NONE)
                        return false;
                d->counts.reassigned += d->table.slots[slot].attempts > 0;
                assign_event(d, now_ns, slot, sfi);
                d->level2.served_ns = now_ns;
        }
        return true;
}

/* Assigns the event of the next trigger to an SFI, or makes it wait for level 2. False: neither is
 * possible. */
static bool assign_trigger(struct dfm *d, uint64_t now_ns)
{
        bool level2 = d->config.level2.on;
        uint32_t sfi = POLICY_NONE, slot;

        if (d->n_live[ROLE_ROS] == 0 || d->n_xoff > 0 || !dfm_may_open(d) ||
            (level2 ? !dfm_level2_has_room(d) : (sfi = choose_sfi(d)) == POLICY_NONE))
                return false;
        d->awaits_frames = !dfm_has_frames(d);
        if (d->awaits_frames)
                return false;
        dfm_release(d, now_ns);
        slot = dfm_table_open(&d->table, now_ns);
        dfm_trigger_assign(d, now_ns, slot);
        if (level2)
                dfm_table_await(&d->table, slot);
        else
                assign_event(d, now_ns, slot, sfi);
        return true;
}

void dfm_assign_due(struct dfm *d, uint64_t now_ns)
{
        if (d->resume.active)
                return;
        view_policy(d);
        d->awaits_frames = false;
        bool open = assign_orphans(d, now_ns) && assign_accepted(d, now_ns);

        for (int n = 0; n < ASSIGN_BATCH && dfm_trigger_is_due(d, now_ns); n++) {
                if (open && assign_trigger(d, now_ns))
                        continue;
                dfm_hold_back(d, now_ns);
                return;
        }
        if (d->state != RUN_RUNNING)
                dfm_release(d, now_ns);
}

/* Assigns an event that its SFI does not finish to another SFI, or ends the event as lost. While a run is
 * being resumed, no event ends, because another SFI may report it. */
static void reassign(struct dfm *d, uint64_t now_ns, uint32_t slot, enum dfm_loss why)
{
        if (!d->resume.active && (d->table.slots[slot].attempts > d->config.reassign_max || d->failed)) {
                dfm_lose_event(d, now_ns, slot, d->failed ? DFM_LOSS_FAILED : why);
                return;
        }
        dfm_leave_sfi(d, slot);
        dfm_table_orphan(&d->table, slot, now_ns);
}

static bool is_overdue(const struct dfm *d, uint64_t now_ns, uint32_t slot)
{
        return slot != SLOT_NONE && now_ns - d->table.slots[slot].assigned_ns >= d->config.event_timeout_ns;
}

void dfm_expire(struct dfm *d, uint64_t now_ns)
{
        bool hopeless = dfm_is_hopeless(d);

        if (d->resume.active)
                return;
        while (is_overdue(d, now_ns, d->table.assigned.first))
                reassign(d, now_ns, d->table.assigned.first, DFM_LOSS_OVERDUE);
        while (d->table.orphans.first != SLOT_NONE &&
               (hopeless || is_overdue(d, now_ns, d->table.orphans.first)))
                dfm_lose_event(d, now_ns, d->table.orphans.first, DFM_LOSS_NO_SFI);
}

static void disown_list(struct dfm *d, uint64_t now_ns, uint16_t sfi, const struct dfm_list *list)
{
        for (uint32_t slot = list->first, next; slot != SLOT_NONE; slot = next) {
                next = d->table.slots[slot].next;
                if (d->table.slots[slot].sfi == sfi)
                        reassign(d, now_ns, slot, DFM_LOSS_GONE);
        }
}

void dfm_disown(struct dfm *d, uint64_t now_ns, uint16_t sfi)
{
        disown_list(d, now_ns, sfi, &d->table.assigned);
        disown_list(d, now_ns, sfi, &d->table.writing);
}
