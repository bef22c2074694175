/* What came of an operation on the kernel, in figures and in words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/tc-model/layout.h"
#include "evb/tc-model/message.h"

#define TC_OUTCOME_TEXT_MAX 320

struct tc_outcome {
        unsigned operations;             /* changes that the kernel took */
        enum tc_owner owner;             /* of the root that was found */
        char error[TC_OUTCOME_TEXT_MAX]; /* with the kernel's own text */
        char warnings[TC_WARNINGS_MAX][TC_OUTCOME_TEXT_MAX];
        size_t n_warnings;
        unsigned undraining; /* classes that still hold packets and were therefore left, without a filter */
        uint64_t dropped_bytes; /* that were still queued in what was deleted */
};

void tc_outcome_warn(struct tc_outcome *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets the text of the error and returns r. */
int tc_outcome_fail(struct tc_outcome *o, int r, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
