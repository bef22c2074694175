/* Why a process ends with status 1: each reason is a line on standard error and an entry of its report.
 * Whoever finds a fault adds a reason; there is no status 1 without one. One thread; nothing is allocated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define REASONS_MAX 32
#define REASON_TEXT_MAX 320

struct reasons {
        size_t n; /* all that were added; only the first REASONS_MAX are kept */
        char text[REASONS_MAX][REASON_TEXT_MAX];
};

/* Adds a reason, a sentence without a full stop, unless it is already present. */
void reasons_add(struct reasons *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Logs each as an error, and the number of those that were not kept. */
void reasons_log(const struct reasons *r);
