/* Why a stream ended early. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct reason {
        bool failed;               /* this end fell short; else somebody wanted the end */
        char text[ERROR_TEXT_MAX]; /* UTF-8; empty: there is none */
};

/* Notes a reason; the first one counts. */
void reason_set(struct reason *r, bool failed, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Notes a failure; none if its code is 0. */
void reason_set_error(struct reason *r, const struct error *e);
