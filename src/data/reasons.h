/* Collects the reasons for exit status 1: each one is a line on standard error and an entry of the report. A
 * process without a reason does not exit with status 1. One thread; nothing is allocated. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#define REASONS_MAX 32
#define REASON_TEXT_MAX 320

/* What marks the DFM's reasons that `evb run` repeats: the prefix of that for lost events, and a word of
 * those for what files may lack, or hold twice. */
#define DFM_REASON_LOST "lost events: "
#define DFM_REASON_FILES "file"

struct reasons {
        size_t n; /* number of all reasons; `text` contains only the first REASONS_MAX of them */
        char text[REASONS_MAX][REASON_TEXT_MAX];
};

/* Adds a reason, a sentence without a full stop, unless it is already present. */
void reasons_add(struct reasons *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Logs each reason as an error, and the number of reasons that did not fit. */
void reasons_log(const struct reasons *r);
json_t *reasons_to_json(const struct reasons *r); /* the texts, as an array */
