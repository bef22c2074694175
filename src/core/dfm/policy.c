/* Chooses the SFI of the next event. */
#include "dfm_internal.h"

#include <stdbool.h>

/* True if `a` is strictly the better choice. Compares shares, not numbers: otherwise an SFI that just joined
 * and announces few credits is never chosen. */
static bool is_better(const struct policy_sfi *a, const struct policy_sfi *b)
{
        return a->free * (uint64_t)(b->free + b->held) > b->free * (uint64_t)(a->free + a->held);
}

static uint32_t after(uint32_t i, uint32_t n)
{
        return i == POLICY_NONE || i + 1 >= n ? 0 : i + 1;
}

uint32_t policy_choose(const struct policy_sfi *sfis, uint32_t n, uint32_t last)
{
        uint32_t best = POLICY_NONE;

        for (uint32_t k = 0, i = after(last, n); k < n; k++, i = after(i, n)) {
                if (sfis[i].free > 0 && (best == POLICY_NONE || is_better(&sfis[i], &sfis[best])))
                        best = i;
        }
        return best;
}
