/* Reports to the DFM: acknowledges assignments, sends finished events and credits until they are
 * acknowledged, and answers the inquiry of a DFM that resumes the run. */
#include "sfi_internal.h"

#include <errno.h>
#include <string.h>

/* Maximum number of reports, enough for all events that can be open; a power of two. */
#define FINISHED_MAX (SFI_ASSIGN_WINDOW * 4)
#define RESEND_FIRST_NS (20 * NS_PER_MS)
#define RESEND_LONGEST_NS (320 * NS_PER_MS)
/* How long an acknowledgement waits for finished events to share its message. */
#define UPDATE_DELAY_NS (2 * NS_PER_MS)

int sfi_updates_init(struct sfi_updates *u)
{
        int r = event_set_init(&u->inventory.ended);

        if (r >= 0)
                r = event_set_init(&u->inventory.open);
        if (r < 0)
                return r;
        u->finished = calloc(FINISHED_MAX, sizeof *u->finished);
        if (!u->finished)
                return -ENOMEM;
        u->finished_mask = FINISHED_MAX - 1;
        budget_init(&u->budget, u->config->control.update_bps, u->config->control.header_bytes);
        u->resend_ns = NEVER_NS;
        u->resend_after_ns = RESEND_FIRST_NS;
        return 0;
}

void sfi_updates_fini(struct sfi_updates *u)
{
        event_set_fini(&u->inventory.ended);
        event_set_fini(&u->inventory.open);
        free(u->finished);
}

void sfi_updates_report(struct sfi_updates *u, const struct finished_entry *entry)
{
        u->finished[u->finished_next++ & u->finished_mask] = *entry;
        u->finished_total += entry->end != UPDATE_WRITING;
}

/* Reports built events whose writing takes longer than the DFM waits for an event. */
void sfi_updates_report_writing(struct sfi_updates *u, uint64_t now_ns)
{
        struct sfi_slots *t = u->slots;

        if (now_ns < t->writing_look_ns)
                return;
        t->writing_look_ns = t->slow_since_ns = NEVER_NS;
        for (uint32_t slot = 0, left = t->n_building; slot < u->config->slots && left > 0; slot++) {
                struct sfi_slot *e = &t->items[slot];

                if (e->state != SLOT_BUILDING)
                        continue;
                left--;
                t->writing_look_ns = now_ns + SFI_SLOW_WRITE_NS / 2;
                if (now_ns - e->built_ns < SFI_SLOW_WRITE_NS)
                        continue;
                t->slow_since_ns = MIN(t->slow_since_ns, e->built_ns);
                if (!e->writing_reported && e->end != EVENT_LOST)
                        sfi_updates_report(
                                u, &(struct finished_entry){.event = e->event, .end = UPDATE_WRITING});
                e->writing_reported = true;
        }
}

void sfi_updates_restart(struct sfi_updates *u, uint64_t now_ns)
{
        u->assign_next = 0;
        memset(u->assign_bits, 0, sizeof u->assign_bits);
        u->finished_acked = u->finished_sent = u->finished_next = 0;
        u->finished_total = u->granted = 0;
        u->resend_ns = NEVER_NS;
        u->resend_after_ns = RESEND_FIRST_NS;
        for (uint32_t slot = 0; slot < u->slots->n_touched; slot++) {
                u->slots->items[slot].doubles = 0;
                u->slots->items[slot].writing_reported = false;
        }
        u->slots->writing_look_ns = MIN(u->slots->writing_look_ns, now_ns);
}

void sfi_updates_report_void(struct sfi_updates *u, uint64_t event)
{
        sfi_updates_report(
                u, &(struct finished_entry){.event = event, .end = EVENT_LOST, .missing = u->config->n_ros});
}

void sfi_updates_void_lost(struct sfi_updates *u, uint64_t event)
{
        for (uint32_t i = u->finished_acked; i != u->finished_next; i++) {
                struct finished_entry *f = &u->finished[i & u->finished_mask];

                if (f->event == event && f->end == EVENT_LOST)
                        f->event = ASSIGN_VOID_EVENT;
        }
}

bool sfi_updates_has_assignment(const struct sfi_updates *u, uint32_t sequence)
{
        uint32_t ahead = sequence - (uint32_t)u->assign_next, bit = sequence % SFI_ASSIGN_WINDOW;

        return ahead >= SFI_ASSIGN_WINDOW || (u->assign_bits[bit / 64] >> bit % 64 & 1);
}

void sfi_updates_record_assignment(struct sfi_updates *u, uint32_t sequence)
{
        uint64_t bit = sequence % SFI_ASSIGN_WINDOW;

        u->assign_bits[bit / 64] |= UINT64_C(1) << bit % 64;
        for (bit = u->assign_next % SFI_ASSIGN_WINDOW; u->assign_bits[bit / 64] >> bit % 64 & 1;
             bit = ++u->assign_next % SFI_ASSIGN_WINDOW)
                u->assign_bits[bit / 64] &= ~(UINT64_C(1) << bit % 64);
}

bool sfi_updates_have_room(const struct sfi_updates *u)
{
        return u->finished_next - u->finished_acked + 2 * u->config->slots <= u->finished_mask;
}

void sfi_updates_plan(struct sfi_updates *u, uint64_t now_ns)
{
        if (u->update_due)
                return;
        u->update_due = true;
        u->update_due_ns = now_ns + UPDATE_DELAY_NS;
}

void sfi_updates_plan_now(struct sfi_updates *u, uint64_t now_ns)
{
        u->update_due = true;
        u->update_due_ns = now_ns;
}

void sfi_updates_receive_ack(struct sfi_updates *u, uint64_t now_ns, uint32_t ack)
{
        if (ack - u->finished_acked > u->finished_next - u->finished_acked || ack == u->finished_acked)
                return;
        if (u->finished_sent - u->finished_acked < ack - u->finished_acked)
                u->finished_sent = ack;
        u->finished_acked = ack;
        u->resend_after_ns = RESEND_FIRST_NS;
        u->resend_ns = u->finished_sent == ack ? NEVER_NS : now_ns + u->resend_after_ns;
}

uint64_t sfi_updates_unacknowledged(const struct sfi_updates *u)
{
        uint64_t n = 0;

        for (uint32_t i = u->finished_acked; i != u->finished_next; i++)
                n += u->finished[i & u->finished_mask].end < EVENT_LOST;
        return n;
}

bool sfi_updates_are_acked(const struct sfi_updates *u)
{
        return u->finished_acked == u->finished_next;
}

static void resend_if_due(struct sfi_updates *u, uint64_t now_ns)
{
        if (now_ns < u->resend_ns)
                return;
        u->finished_sent = u->finished_acked;
        u->resend_after_ns = MIN(2 * u->resend_after_ns, RESEND_LONGEST_NS);
        u->resend_ns = now_ns + u->resend_after_ns;
}

bool sfi_updates_due(struct sfi_updates *u, uint64_t now_ns)
{
        resend_if_due(u, now_ns);
        if (!budget_allows(&u->budget, now_ns))
                return false;
        return u->finished_sent != u->finished_next || (u->update_due && now_ns >= u->update_due_ns);
}

void sfi_updates_make(struct sfi_updates *u, uint64_t now_ns, uint32_t credits, struct message *m)
{
        uint64_t granted = u->finished_total + credits;

        /* The end of an unlisted event does not return a credit of this DFM. */
        u->granted = MAX(u->granted, granted - MIN(u->inventory.unlisted, granted));
        member_address(u->member, m, MESSAGE_UPDATE);
        m->update.granted = u->granted;
        m->update.assign_ack = (uint32_t)u->assign_next;
        m->update.first = u->finished_sent;
        m->update.incarnation = u->config->member.incarnation;
        for (; u->finished_sent + (uint32_t)m->n != u->finished_next && m->n < MESSAGE_ENTRIES_MAX; m->n++)
                m->update.entries[m->n] = u->finished[(u->finished_sent + (uint32_t)m->n) & u->finished_mask];
        message_fit(m, u->config->message_bytes);
        u->finished_sent += (uint32_t)m->n;
        if (m->n > 0 && u->resend_ns == NEVER_NS)
                u->resend_ns = now_ns + u->resend_after_ns;
        u->update_due = false;
}

uint64_t sfi_updates_deadline_ns(const struct sfi_updates *u)
{
        uint64_t deadline = u->update_due ? MIN(u->resend_ns, u->update_due_ns) : u->resend_ns;

        if (u->finished_sent != u->finished_next)
                deadline = 0;
        return MAX(deadline, budget_next_ns(&u->budget));
}

void sfi_inventory_fill(struct sfi_updates *u, const struct node_totals *totals)
{
        const struct sfi_slots *t = u->slots;
        struct sfi_inventory *v = &u->inventory;

        v->end = t->newest;
        v->totals = *totals;
        v->inquired = false;
        v->n_open = v->unlisted = 0;
        event_set_copy(&v->ended, &t->built_events);
        event_set_copy(&v->open, &t->partial_events);
        for (uint32_t slot = 0; slot < t->n_touched; slot++) {
                const struct sfi_slot *e = &t->items[slot];

                if (e->state == SLOT_EMPTY || !e->assigned)
                        continue;
                v->n_open++;
                v->unlisted += e->state == SLOT_BUILDING && e->end == EVENT_LOST;
                if (e->state == SLOT_BUILDING && e->end == EVENT_LOST)
                        continue;
                event_set_add(&v->open, e->event);
                event_set_remove(&v->ended, e->event);
        }
}

static uint32_t count_listed(const struct sfi_inventory *v, uint64_t from)
{
        uint32_t n = 0;

        for (from = MAX(from, v->open.added_from / 64 * 64); from < MIN(v->end, v->open.added_to); from += 64)
                n += (uint32_t)__builtin_popcountll(event_set_word(&v->open, from) &
                                                    ~event_set_word(&v->ended, from));
        return n;
}

/* The first inquiry shows from which event on the DFM follows events. Before that, the DFM accepts no
 * Update. */
void sfi_inventory_receive(struct sfi_updates *u, const struct message *m)
{
        struct sfi_inventory *v = &u->inventory;

        if (m->inquiry.incarnation != u->config->member.incarnation)
                return;
        if (!v->inquired) {
                v->unlisted = v->n_open - MIN(count_listed(v, m->inquiry.from), v->n_open);
                u->granted = 0;
        }
        v->inquired = true;
        u->inventory.inquiry_from = m->inquiry.from;
        u->inventory.inquiry_due = true;
}

bool sfi_inventory_make(struct sfi_updates *u, struct message *m)
{
        struct sfi_inventory *v = &u->inventory;
        size_t max = message_entries_fit(MESSAGE_INVENTORY, u->config->message_bytes);

        if (!v->inquiry_due)
                return false;
        v->inquiry_due = false;
        member_address(u->member, m, MESSAGE_INVENTORY);
        m->inventory.incarnation = u->config->member.incarnation;
        m->inventory.from = v->inquiry_from;
        m->inventory.end = v->end;
        m->inventory.totals = v->totals;
        m->inventory.flags = v->late ? INVENTORY_LATE : 0;
        for (uint64_t from = v->inquiry_from; from < v->end && m->n < max; from += 64)
                m->inventory.entries[m->n++] = (struct inventory_entry){
                        .ended = event_set_word(&v->ended, from),
                        .open = event_set_word(&v->open, from),
                };
        return true;
}
