/* Checks the structure, checksums and counters of an event file, and the payload of pattern sources. The file
 * is not changed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/event_file.h"

struct verify_report {
        uint64_t events, bytes; /* checked */
        uint64_t ros, robs;     /* fragments; v5.0 has no ROS */
        uint64_t dummies;       /* number of ROBs that replace a missing fragment */
        uint64_t truncated;     /* number of ROBs with a truncated fragment */
        uint64_t partial_events;
        /* Number of repeated event numbers, or of L1 IDs of events without a stamp, among the first 2^20. */
        uint64_t duplicate_events;
        uint64_t stamped_events; /* events with the builder's stamp */
        uint64_t l1_mismatches; /* number of RODs whose L1 ID differs from their event's; not a fault, because
                                   they occur in intact data */
        uint64_t sums, sums_wrong, sums_unknown; /* checksums found, wrong, of an unknown kind */
        uint64_t pattern_bytes, pattern_fragments;
        uint64_t pattern_wrong; /* number of fragments that differ from the pattern */
        bool has_seed;          /* pattern sources were checked */
        bool ended;             /* the end record and its counters are correct */
        uint64_t n_faults;      /* in structure, checksums, patterns and counters */
};

/* Called for each fault; `event` is the index of its event, or UINT64_MAX if it belongs to no event. */
typedef void (*verify_fault)(void *userdata, uint64_t event, const struct eformat_fault *fault);

/* Checks the entire file; `seed`, unless it is NULL, replaces the seed of the file. A damaged data record
 * ends the check, because the next record cannot be found. Returns 0, even if there are faults, or -ENOMEM.
 * Uses at most 32 MiB. */
int event_file_verify(const struct event_file *file, const uint64_t *seed, verify_fault fault, void *userdata,
                      struct verify_report *ret);
