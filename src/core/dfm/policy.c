/* The assignment policies. On a tie, the next SFI after the last choice wins, so equal SFIs take turns. */
#include "core/policy.h"

#include <stdbool.h>

/* True if `a` is strictly the better choice. */
typedef bool (*better_fn)(const struct policy_sfi *a, const struct policy_sfi *b);

/* Compares shares, not numbers: otherwise an SFI that just joined and announces few credits is never chosen.
 */
static bool more_credits(const struct policy_sfi *a, const struct policy_sfi *b)
{
        return a->free * (uint64_t)(b->free + b->held) > b->free * (uint64_t)(a->free + a->held);
}

static bool fewer_events(const struct policy_sfi *a, const struct policy_sfi *b)
{
        return a->held < b->held;
}

static uint32_t after(uint32_t i, uint32_t n)
{
        return i == POLICY_NONE || i + 1 >= n ? 0 : i + 1;
}

static uint32_t choose_best(const struct policy_sfi *sfis, uint32_t n, uint32_t last, better_fn better)
{
        uint32_t best = POLICY_NONE;

        for (uint32_t k = 0, i = after(last, n); k < n; k++, i = after(i, n)) {
                if (sfis[i].free > 0 && (best == POLICY_NONE || better(&sfis[i], &sfis[best])))
                        best = i;
        }
        return best;
}

static uint32_t choose_credits(const struct policy_sfi *sfis, uint32_t n, uint32_t last)
{
        return choose_best(sfis, n, last, more_credits);
}

static uint32_t choose_least_loaded(const struct policy_sfi *sfis, uint32_t n, uint32_t last)
{
        return choose_best(sfis, n, last, fewer_events);
}

static uint32_t choose_round_robin(const struct policy_sfi *sfis, uint32_t n, uint32_t last)
{
        for (uint32_t k = 0, i = after(last, n); k < n; k++, i = after(i, n)) {
                if (sfis[i].free > 0)
                        return i;
        }
        return POLICY_NONE;
}

const struct policy policies[POLICIES] = {
        [POLICY_CREDITS] = {"credits", "the SFI with the largest share of its credits free", choose_credits},
        [POLICY_ROUND_ROBIN] = {"round-robin", "each SFI with a credit in turn", choose_round_robin},
        [POLICY_LEAST_LOADED] = {"least-loaded", "the SFI that holds the fewest events", choose_least_loaded},
};
