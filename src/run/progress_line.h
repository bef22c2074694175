/* The progress line on the terminal. */
#pragma once

#include "run/launched_run.h"

/* What the line showed last; zero-initialized. */
struct progress {
        uint64_t last_ns, complete, bytes, busy_ns, plain_ns;
};

void progress_draw(struct progress *p, const struct launch *l, uint64_t now_ns);
/* Erases the line. */
void progress_end(void);
