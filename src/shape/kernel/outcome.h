/* The result of an operation on the kernel: figures and warnings. Errors are in a struct error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shape/model/layout.h"
#include "shape/model/netlink_message.h"

#define TC_OUTCOME_TEXT_MAX 320

struct tc_outcome {
        unsigned operations; /* changes that the kernel accepted */
        enum tc_owner owner; /* of the root qdisc that was found */
        char warnings[TC_WARNINGS_MAX][TC_OUTCOME_TEXT_MAX];
        size_t n_warnings;
        unsigned undraining;      /* unwanted classes that still hold packets; they stay, without filters */
        uint64_t dropped_bytes;   /* queued bytes that were dropped by deleting their classes */
        uint64_t dropped_packets; /* dropped with queues whose burst became shorter */
};

/* Adds a warning, or drops it if there are TC_WARNINGS_MAX already. */
void tc_outcome_warn(struct tc_outcome *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
