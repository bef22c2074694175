/* Checks the structure, checksums and counters of an event file, and the payload of pattern sources. It
 * changes nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/event_file.h"

struct verify_report {
        uint64_t events, bytes; /* checked */
        uint64_t ros, robs;     /* fragments; v5.0 has no ROS */
        uint64_t dummies;       /* ROBs that replace a missing fragment */
        uint64_t truncated;     /* ROBs with a truncated fragment */
        uint64_t partial_events;
        uint64_t duplicate_events; /* repeated L1 IDs, among the first 2^20 IDs */
        uint64_t l1_mismatches; /* RODs with another L1 ID than their event; intact data has them, so no fault
                                 */
        uint64_t sums, sums_wrong, sums_unknown; /* checksums found, wrong, of an unknown kind */
        uint64_t pattern_bytes, pattern_fragments;
        uint64_t pattern_wrong; /* fragments that differ from the pattern */
        bool has_seed;          /* pattern sources were checked */
        bool ended;             /* the end record and its counters are correct */
        uint64_t n_faults;      /* in structure, checksums, patterns and counters */
};

/* Called for each fault; `event` is the index of its event, or UINT64_MAX if it belongs to no event. */
typedef void (*verify_fault)(void *userdata, uint64_t event, const struct eformat_fault *fault);

/* Checks the entire file; `seed`, unless NULL, replaces the file's seed. A damaged data record ends the
 * check, because it hides the next record. Returns 0, also if there are faults, or -ENOMEM. Uses at most 32
 * MiB. */
int event_file_verify(const struct event_file *file, const uint64_t *seed, verify_fault fault, void *userdata,
                      struct verify_report *ret);
