/* Makes the content of the DFM's page at one time, as a line of JSON (docs/monitoring.md). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "node/metrics/statuses.h"

struct page_moment {
        const char *dfm;     /* its name */
        bool takes_commands; /* the page may control runs */
        uint64_t elapsed_ns; /* never goes back; for rates */
        uint64_t utc_ns;
};

/* From malloc(); NULL: out of memory. */
char *page_make_message(const struct statuses *s, const struct page_moment *moment);
