/* Which of the SFIs with a free credit gets the next event. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The state of one SFI that the choice depends on. */
struct policy_sfi {
        uint32_t free; /* credits left; 0: unavailable (dead, leaving or full) */
        uint32_t held; /* events assigned and not finished */
};

#define POLICY_NONE UINT32_MAX

/* Chooses the SFI with the largest share of its credits free. On a tie, the next SFI after `last`, the
 * previous choice (POLICY_NONE: none), wins, so equal SFIs take turns. Returns the index, or POLICY_NONE if
 * no SFI has a credit. */
uint32_t policy_choose(const struct policy_sfi *sfis, uint32_t n, uint32_t last);
