/* Changes the settings of a running SFI. Its parts read them from its configuration whenever they need them.
 */
#include <assert.h>

#include "sfi_internal.h"

uint32_t sfi_credits_max(const struct sfi *s)
{
        uint32_t slots = s->config.slots;

        return slots <= SFI_SLOTS_SPARE ? s->config.credits
                                        : MAX((slots - SFI_SLOTS_SPARE) / 5 * 4, s->config.credits);
}

bool sfi_may_change_outstanding(const struct sfi *s, uint32_t outstanding)
{
        struct sfi_config c = s->config;

        c.outstanding = outstanding;
        return sfi_pulls_by_bytes(&c) == sfi_pulls_by_bytes(&s->config);
}

void sfi_change(struct sfi *s, uint64_t now_ns, const struct sfi_settings *to)
{
        bool keeps_way_of_pulling = sfi_may_change_outstanding(s, to->outstanding);

        assert(keeps_way_of_pulling && to->credits <= sfi_credits_max(s));
        s->config.credits = to->credits;
        s->config.outstanding = to->outstanding;
        s->config.retries_max = to->retries_max;
        s->config.retry_after_ns = to->retry_after_ns;
        sfi_updates_plan_now(&s->updates, now_ns);
}
