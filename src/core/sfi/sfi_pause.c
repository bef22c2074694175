/* Extends the time-outs of events by the time during which the SFI's process did not run: data that arrived
 * then waits unread in its sockets. */
#include "base/util.h"
#include "sfi_internal.h"

static void postpone(struct sfi_slots *t, const struct sfi_list *list, uint64_t now_ns, uint64_t away_ns)
{
        for (uint32_t slot = list->first; slot != SLOT_NONE; slot = t->items[slot].next) {
                struct sfi_slot *e = &t->items[slot];

                e->expire_ns = MAX(e->expire_ns, MIN(e->expire_ns + away_ns, now_ns + t->config->timeout_ns));
                heap_put(&t->due, slot, MIN(e->retry_ns, e->expire_ns), e->event);
        }
}

void sfi_was_paused(struct sfi *s, uint64_t now_ns, uint64_t away_ns)
{
        for (size_t i = 0; i < ARRAY_SIZE(s->slots.collecting); i++)
                postpone(&s->slots, &s->slots.collecting[i], now_ns, away_ns);
}
