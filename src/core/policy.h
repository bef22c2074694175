/* Assignment policies: a table of pure functions, each of which chooses one of the SFIs with a free
 * credit. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The state of one SFI that a policy uses. */
struct policy_sfi {
        uint32_t free; /* credits left; 0: unavailable (dead, leaving or full) */
        uint32_t held; /* events assigned and not finished */
};

#define POLICY_NONE UINT32_MAX

struct policy {
        const char *name;
        const char *help;
        /* Returns the chosen index, or POLICY_NONE if no SFI has a credit. `last`: the previous choice, or
         * POLICY_NONE. */
        uint32_t (*choose)(const struct policy_sfi *sfis, uint32_t n, uint32_t last);
};

enum policy_id { POLICY_CREDITS, POLICY_ROUND_ROBIN, POLICY_LEAST_LOADED, POLICIES };

extern const struct policy policies[POLICIES];
