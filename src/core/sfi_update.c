/* The SFI's dealings with the DFM: assignments taken in order, finished events and credits reported until
 * acknowledged. */
#include <string.h>

#include "sfi_internal.h"

/* How long an acknowledgement waits for finished events to go with. */
#define UPDATE_DELAY_NS (2 * NS_PER_MS)
/* Credits before the size of an event is known. */
#define CREDITS_FIRST 4

uint32_t sfi_allowed(const struct sfi *s)
{
        uint64_t allowed = s->config.credits > 0 ? s->config.credits : s->config.slots - s->config.slots / 4;

        if (s->state != RUN_RUNNING)
                return 0;
        if (s->event_bytes == 0)
                return (uint32_t)MIN(allowed, s->config.credits > 0 ? allowed : CREDITS_FIRST);
        /* A little is kept free for events that come before their assignment, and for what is being
         * written. */
        allowed = MIN(allowed, s->config.buffer_bytes / 4 * 3 / s->event_bytes);
        if (s->config.credits == 0 && s->config.room_bytes > 0 && !s->config.pull)
                allowed = MIN(allowed, s->config.room_bytes / s->event_bytes);
        return (uint32_t)MAX(allowed, UINT64_C(1));
}

void sfi_report(struct sfi *s, const struct finished_entry *entry)
{
        s->finished[s->finished_next++ & s->finished_mask] = *entry;
        s->finished_total += entry->end != UPDATE_WRITING;
}

/* Tells the DFM of built events whose writing takes longer than the DFM waits for an event. */
void sfi_report_writing(struct sfi *s, uint64_t now_ns)
{
        if (now_ns < s->writing_look_ns)
                return;
        s->writing_look_ns = s->slow_since_ns = NEVER_NS;
        for (uint32_t slot = 0; slot < s->config.slots && s->n_building > 0; slot++) {
                struct sfi_slot *e = &s->slots[slot];

                if (e->state != SLOT_BUILDING)
                        continue;
                s->writing_look_ns = now_ns + SFI_SLOW_WRITE_NS / 2;
                if (now_ns - e->built_ns < SFI_SLOW_WRITE_NS)
                        continue;
                s->slow_since_ns = MIN(s->slow_since_ns, e->built_ns);
                if (!e->writing_said && e->end != EVENT_LOST)
                        sfi_report(s, &(struct finished_entry){.event = e->event, .end = UPDATE_WRITING});
                e->writing_said = true;
        }
}

void sfi_restart_streams(struct sfi *s, uint64_t now_ns)
{
        s->assign_next = 0;
        memset(s->assign_bits, 0, sizeof s->assign_bits);
        s->finished_acked = s->finished_sent = s->finished_next = 0;
        s->finished_total = s->granted = 0;
        s->resend_ns = NEVER_NS;
        s->resend_after_ns = SFI_RESEND_FIRST_NS;
        for (uint32_t slot = 0; slot < s->config.slots; slot++) {
                s->slots[slot].doubles = 0;
                s->slots[slot].writing_said = false;
        }
        s->writing_look_ns = MIN(s->writing_look_ns, now_ns);
}

void sfi_report_void(struct sfi *s, uint64_t event)
{
        sfi_report(s,
                   &(struct finished_entry){.event = event, .end = EVENT_LOST, .missing = s->config.n_ros});
}

static bool has_come(const struct sfi *s, uint32_t sequence)
{
        uint32_t ahead = sequence - s->assign_next, bit = sequence % SFI_ASSIGN_WINDOW;

        return ahead >= SFI_ASSIGN_WINDOW || (s->assign_bits[bit / 64] >> bit % 64 & 1);
}

static void note_come(struct sfi *s, uint32_t sequence)
{
        uint32_t bit = sequence % SFI_ASSIGN_WINDOW;

        s->assign_bits[bit / 64] |= UINT64_C(1) << bit % 64;
        for (bit = s->assign_next % SFI_ASSIGN_WINDOW; s->assign_bits[bit / 64] >> bit % 64 & 1;
             bit = ++s->assign_next % SFI_ASSIGN_WINDOW)
                s->assign_bits[bit / 64] &= ~(UINT64_C(1) << bit % 64);
        s->counts.assigned++;
}

static void plan_update(struct sfi *s, uint64_t now_ns)
{
        if (s->update_due)
                return;
        s->update_due = true;
        s->update_due_ns = now_ns + UPDATE_DELAY_NS;
}

/* The event went to another SFI: what we have of it is of no use. */
static void cancel(struct sfi *s, uint64_t now_ns, uint64_t event)
{
        uint32_t slot = idmap_get(&s->by_event, event);

        if (slot == IDMAP_NONE || s->slots[slot].state != SLOT_COLLECTING)
                return;
        if (s->slots[slot].assigned)
                sfi_finish_slot(s, now_ns, slot, true);
        else
                sfi_drop_slot(s, slot);
}

/* The slot of an event that is this SFI's already: the DFM takes one back that it finds slow, and may find
 * nobody else. */
static uint32_t slot_of_double(const struct sfi *s, uint64_t event)
{
        uint32_t slot = idmap_get(&s->by_event, event);

        return slot != IDMAP_NONE && s->slots[slot].assigned ? slot : IDMAP_NONE;
}

/* The event returns to this SFI, which had built none of it and may not have reported that yet. A later
 * report on the old assignment must not pass for the end of the new one. */
static void take_back_lost(struct sfi *s, uint64_t event)
{
        uint32_t slot = idmap_get(&s->by_event, event);

        if (slot != IDMAP_NONE && s->slots[slot].state == SLOT_BUILDING && s->slots[slot].end == EVENT_LOST) {
                s->slots[slot].taken_back = true;
                idmap_remove(&s->by_event, event);
        }
        for (uint32_t i = s->finished_acked; i != s->finished_next; i++) {
                struct finished_entry *f = &s->finished[i & s->finished_mask];

                if (f->event == event && f->end == EVENT_LOST)
                        f->event = ASSIGN_VOID_EVENT;
        }
}

static void assign(struct sfi *s, uint64_t now_ns, const struct message *m, size_t k)
{
        const struct assign_entry *a = &m->assign.entries[k];
        bool again = m->header.type == MESSAGE_BUILD;
        uint32_t slot, twice;

        /* Every assignment will need an entry here when it has ended. */
        if (s->finished_next - s->finished_acked + 2 * s->config.slots > s->finished_mask)
                return;
        if (again && !(a->flags & ASSIGN_VOID))
                take_back_lost(s, a->event);
        slot = idmap_get(&s->by_event, a->event);
        twice = a->flags & ASSIGN_VOID ? IDMAP_NONE : slot_of_double(s, a->event);
        if (twice != IDMAP_NONE) {
                note_come(s, a->sequence);
                s->slots[twice].doubles++;
                return;
        }
        if (a->flags & ASSIGN_VOID || (again ? sfi_was_built(s, a->event) : sfi_has_ended(s, a->event))) {
                note_come(s, a->sequence);
                sfi_report_void(s, a->event);
                return;
        }
        if (slot == IDMAP_NONE)
                slot = sfi_open_slot(s, now_ns, a->event, a->l1_id, true);
        if (slot == IDMAP_NONE)
                return; /* not noted as come, so that the DFM sends it again */
        note_come(s, a->sequence);

        struct sfi_slot *e = &s->slots[slot];
        sfi_set_assigned(s, slot);
        e->assigned_again = again;
        e->expire_ns = now_ns + s->config.timeout_ns;
        if (m->assign.with_info)
                e->info = m->assign.infos[k];
        else
                e->info = (struct event_info){
                        .global_id = a->event,
                        .l1_id = a->l1_id,
                        .run = s->member.run,
                        .time_s = (uint32_t)(a->time_ns / NS_PER_S),
                        .time_ns = (uint32_t)(a->time_ns % NS_PER_S),
                };
        if (s->config.pull)
                sfi_start_waiting(s, slot);
        else {
                sfi_set_asked(s, now_ns, slot);
                sfi_check_slot(s, now_ns, slot);
        }
}

/* An SFI that comes late may hear of an event before the first KeepAlive says which have ended. The DFM
 * keeps to half of the window, so all below that have; what ends here must be kept in mind. */
static void note_event(struct sfi *s, uint64_t event)
{
        s->newest = MAX(s->newest, event + 1);
        if (!s->oldest_jump.started && event >= EVB_EVENT_WINDOW / 2)
                sfi_note_oldest(s, event - EVB_EVENT_WINDOW / 2);
}

bool sfi_receive_assign(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        if (m->header.sender_role != ROLE_DFM)
                return false;
        for (size_t k = 0; k < m->n; k++) {
                const struct assign_entry *a = &m->assign.entries[k];

                if (!(a->flags & ASSIGN_VOID))
                        note_event(s, a->event);
                if (a->sfi != s->config.index)
                        cancel(s, now_ns, a->event);
                else if (a->incarnation == (uint32_t)s->config.member.incarnation) {
                        if (!has_come(s, a->sequence))
                                assign(s, now_ns, m, k);
                        /* Also where it comes once more: then the acknowledgement was lost. */
                        if (has_come(s, a->sequence))
                                plan_update(s, now_ns);
                }
        }
        return true;
}

void sfi_receive_update_ack(struct sfi *s, uint64_t now_ns, const struct message *m)
{
        uint32_t ack = m->update_ack.finished_ack;

        if (m->update_ack.incarnation != s->config.member.incarnation ||
            ack - s->finished_acked > s->finished_next - s->finished_acked || ack == s->finished_acked)
                return;
        if (s->finished_sent - s->finished_acked < ack - s->finished_acked)
                s->finished_sent = ack;
        s->finished_acked = ack;
        s->resend_after_ns = SFI_RESEND_FIRST_NS;
        s->resend_ns = s->finished_sent == ack ? NEVER_NS : now_ns + s->resend_after_ns;
}

static void resend_if_due(struct sfi *s, uint64_t now_ns)
{
        if (now_ns < s->resend_ns)
                return;
        s->finished_sent = s->finished_acked;
        s->resend_after_ns = MIN(2 * s->resend_after_ns, SFI_RESEND_LONGEST_NS);
        s->resend_ns = now_ns + s->resend_after_ns;
}

bool sfi_make_update(struct sfi *s, uint64_t now_ns, struct message *m)
{
        size_t max = message_entries_fit(MESSAGE_UPDATE, false, s->config.message_bytes);

        resend_if_due(s, now_ns);
        if (s->finished_sent == s->finished_next && !(s->update_due && now_ns >= s->update_due_ns))
                return false;
        s->granted = MAX(s->granted, s->finished_total + sfi_allowed(s));
        member_address(&s->member, m, MESSAGE_UPDATE);
        m->update.granted = s->granted;
        m->update.assign_ack = s->assign_next;
        m->update.first = s->finished_sent;
        m->update.incarnation = s->config.member.incarnation;
        while (s->finished_sent != s->finished_next && m->n < max)
                m->update.entries[m->n++] = s->finished[s->finished_sent++ & s->finished_mask];
        if (m->n > 0 && s->resend_ns == NEVER_NS)
                s->resend_ns = now_ns + s->resend_after_ns;
        s->update_due = false;
        return true;
}
