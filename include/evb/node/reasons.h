/* Why a process ends with status 1: each reason is a line on standard error and an entry of its report.
 * Whoever finds something wrong adds a reason; a status of 1 without one does not exist. One thread; nothing
 * is allocated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define REASONS_MAX 32
#define REASON_TEXT_MAX 320

struct reasons {
        size_t n; /* all that were added; the first REASONS_MAX are kept */
        char text[REASONS_MAX][REASON_TEXT_MAX];
};

/* A reason as a sentence without a full stop; one that is there already is not added twice. */
void reasons_add(struct reasons *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Logs each as an error, and how many more there are. */
void reasons_log(const struct reasons *r);
