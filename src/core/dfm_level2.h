/* Level 2 in the DFM: each trigger becomes an event that is UNDECIDED until a level-2 client accepts or
 * rejects it, or until it times out. An accepted event is assigned as usual; a rejected one is cleared in the
 * ROSs without being built. Undecided and accepted events count as open; if there are too many, triggers are
 * held back. Decisions come from the network; decisions without effect are counted. Part of the DFM: see
 * dfm.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"
#include "protocol/message.h"

struct dfm;

struct dfm_level2_config {
        bool on;
        bool accept_undecided; /* at the time-out, accept undecided events; otherwise reject them */
        uint64_t timeout_ns;
        uint32_t window; /* maximum number of undecided events */
};

struct dfm_level2_counts {
        uint64_t accepted, rejected; /* events, by a decision */
        uint64_t timed_out;          /* events without a decision in time */
        /* Decisions without effect: late: the event had timed out or ended; repeated: it was decided before;
         * unknown: its trigger has not arrived. */
        uint64_t late, repeated, unknown;
};

/* Applies a decision. False: it had no effect. */
bool dfm_decide(struct dfm *d, uint64_t now_ns, const struct decision_entry *decision);
/* Lists undecided events from number *from on, at most n, and advances *from past the listed events and past
 * decided ones. Each call examines a limited number of events, so the list is complete once *from does not
 * advance. */
size_t dfm_list_undecided(const struct dfm *d, uint64_t *from, struct undecided_entry *ret, size_t n);
const struct dfm_level2_counts *dfm_level2_counts(const struct dfm *d);
/* Time from trigger to decision. */
const struct histogram *dfm_level2_latency_ns(const struct dfm *d);
