/* What an SFI did in a run before it follows the DFM that takes the run up: the events that had ended here at
 * that moment, and the open ones. Later ends reach the DFM as usual: see sfi_update.c. */
#include "sfi_internal.h"

int sfi_inventory_init(struct sfi_inventory *v)
{
        int r = event_set_init(&v->ended);

        return r < 0 ? r : event_set_init(&v->open);
}

void sfi_inventory_fini(struct sfi_inventory *v)
{
        event_set_fini(&v->ended);
        event_set_fini(&v->open);
}

void sfi_take_inventory(struct sfi *s)
{
        struct sfi_inventory *v = &s->inventory;

        v->from = s->oldest / 64 * 64;
        v->end = s->newest;
        v->totals = s->totals;
        event_set_copy(&v->ended, &s->built_events);
        event_set_clear(&v->open, s->oldest);
        for (uint32_t slot = 0; slot < s->config.slots; slot++) {
                const struct sfi_slot *e = &s->slots[slot];

                if (e->state == SLOT_EMPTY || !e->assigned ||
                    (e->state == SLOT_BUILDING && e->end == EVENT_LOST))
                        continue;
                event_set_add(&v->open, e->event);
                event_set_remove(&v->ended, e->event);
        }
}

bool sfi_receive_inquiry(struct sfi *s, const struct message *m)
{
        if (m->header.sender_role != ROLE_DFM)
                return false;
        if (m->inquiry.incarnation != s->config.member.incarnation)
                return true;
        s->inquiry_from = m->inquiry.from;
        s->inquiry_due = true;
        return true;
}

bool sfi_make_inventory(struct sfi *s, struct message *m)
{
        const struct sfi_inventory *v = &s->inventory;
        size_t max = message_entries_fit(MESSAGE_INVENTORY, false, s->config.message_bytes);

        if (!s->inquiry_due)
                return false;
        s->inquiry_due = false;
        member_address(&s->member, m, MESSAGE_INVENTORY);
        m->inventory.incarnation = s->config.member.incarnation;
        m->inventory.from = s->inquiry_from;
        m->inventory.end = v->end;
        m->inventory.totals = v->totals;
        for (uint64_t from = s->inquiry_from; from < v->end && m->n < max; from += 64)
                m->inventory.entries[m->n++] = (struct inventory_entry){
                        .ended = event_set_word(&v->ended, from),
                        .open = event_set_word(&v->open, from),
                };
        return true;
}
