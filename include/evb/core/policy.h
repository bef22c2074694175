/* Which SFI gets the next event: a table of policies, each a pure choice among the SFIs with a free credit.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What a policy sees of one SFI. */
struct policy_sfi {
        uint32_t free; /* credits left; 0: not to be chosen (dead, leaving or full) */
        uint32_t held; /* events assigned and not finished */
};

#define POLICY_NONE UINT32_MAX

struct policy {
        const char *name;
        const char *help;
        /* The index chosen, or POLICY_NONE where no SFI has a credit. `last`: the choice before (POLICY_NONE:
         * none). */
        uint32_t (*choose)(const struct policy_sfi *sfis, uint32_t n, uint32_t last);
};

enum policy_id { POLICY_CREDITS, POLICY_ROUND_ROBIN, POLICY_LEAST_LOADED, POLICIES };

extern const struct policy policies[POLICIES];
