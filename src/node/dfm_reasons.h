/* Why a DFM's run fell short, and, where no trigger was taken, what it waited for. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/core/dfm.h"
#include "evb/node/reasons.h"

/* What keeps the first trigger away, as it was when last looked at: at the end all nodes have left. */
struct idle {
        char why[REASON_TEXT_MAX / 2];
};

/* To be called now and then, and before the run is stopped; looks only until the first trigger has come. */
void idle_note(struct idle *i, const struct dfm *d, const struct scenario *s);
/* Why triggers are held back now. */
void stall_describe(const struct dfm *d, const struct scenario *s, char *text, size_t size_bytes);
void dfm_reasons(const struct dfm *d, const struct scenario *s, const struct idle *i, struct reasons *to);
