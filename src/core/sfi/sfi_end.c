/* The end of an SFI's run: when it has no more to do, and whether the DFM knows that it has left. */
#include "sfi_internal.h"

/* How long a KeepAlive counts as current: the DFM repeats the end of the run more often. */
#define PRESENT_NS (60 * NS_PER_MS)

void sfi_record_presence(struct sfi *s, uint64_t now_ns, const uint64_t *sfi_live)
{
        bool present = sfi_live[s->config.index / 64] >> s->config.index % 64 & 1;

        s->present_until_ns = present && s->run_state == RUN_ENDED ? now_ns + PRESENT_NS : 0;
}

bool sfi_is_awaited(const struct sfi *s, uint64_t now_ns)
{
        return now_ns < s->present_until_ns;
}

void sfi_stop(struct sfi *s, uint64_t now_ns)
{
        if (s->state >= RUN_DRAINING)
                return;
        s->state = RUN_DRAINING;
        s->keep_alive_due_ns = now_ns;
}

bool sfi_is_drained(const struct sfi *s)
{
        if (s->run_state != RUN_ENDED && s->state < RUN_DRAINING)
                return false;
        /* Without a DFM, no further report is acknowledged. */
        return s->slots.n_free == s->config.slots &&
               (s->run_state == RUN_ENDED || sfi_updates_are_acked(&s->updates) ||
                s->member.received_ns == 0);
}

uint64_t sfi_unacknowledged(const struct sfi *s)
{
        return sfi_updates_unacknowledged(&s->updates);
}

void sfi_set_ended(struct sfi *s, uint64_t now_ns)
{
        s->state = RUN_ENDED;
        s->keep_alive_due_ns = now_ns;
}
