/* Checks an event file as far as its own bytes allow: structure, checksums, counters, and the content of
 * pattern sources. It reports and changes nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/store/event_file.h"

struct verify_report {
        uint64_t events, bytes; /* walked */
        uint64_t ros, robs;     /* fragments in them; ros 0 in v5.0 */
        uint64_t dummies;       /* ROBs that stand for a fragment that did not come */
        uint64_t truncated;     /* ROBs whose fragment was cut */
        uint64_t partial_events;
        uint64_t duplicate_events; /* L1 ids seen before in the file; among the first 2^20 ids */
        uint64_t l1_mismatches; /* RODs with another L1 id than their event: no fault, honest data has them */
        uint64_t sums, sums_wrong, sums_unknown; /* checksums looked at, wrong, of a kind not known here */
        uint64_t pattern_bytes, pattern_fragments;
        uint64_t pattern_wrong; /* fragments whose bytes are not what their source made */
        bool has_seed;          /* pattern sources were checked */
        bool ended;             /* the end record is there and its counters are right */
        uint64_t n_faults;      /* all that is wrong: structure, sums, patterns, counters */
};

/* Called for each thing that is wrong; `event` is the index of the event, or UINT64_MAX where it is none's.
 */
typedef void (*verify_fault)(void *userdata, uint64_t event, const struct eformat_fault *fault);

/* Checks all of it, with `seed` instead of the file's where not NULL. A damaged data record ends the check,
 * as what follows cannot be found; other faults do not. 0, whatever was found; -ENOMEM. Takes 32 MiB for the
 * ids at the most. */
int event_file_verify(const struct event_file *file, const uint64_t *seed, verify_fault fault, void *userdata,
                      struct verify_report *ret);
