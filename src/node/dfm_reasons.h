/* Why a DFM's run fell short and, without any trigger, what it waited for. */
#pragma once

#include "evb/conf/scenario.h"
#include "evb/core/dfm.h"
#include "evb/node/reasons.h"

/* What holds up the first trigger, at the last look before the end; at the end all nodes have left. */
struct idle {
        char why[REASON_TEXT_MAX / 2];
};

/* Call now and then, and before the run stops; it looks only until the first trigger. */
void idle_note(struct idle *i, const struct dfm *d, const struct scenario *s);
/* Why triggers are held back now. */
void stall_describe(const struct dfm *d, const struct scenario *s, char *text, size_t size_bytes);
/* The ROSs that hold triggers back when the run ends, after `stalled_ns` without a trigger; "": none does. */
void stall_describe_end(const struct dfm *d, const struct scenario *s, uint64_t stalled_ns, char *text,
                        size_t size_bytes);
void dfm_reasons(const struct dfm *d, const struct scenario *s, const struct idle *i, struct reasons *to);
