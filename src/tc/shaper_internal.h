/* Messages of the shaper about roots of other people. */
#pragma once

#include "evb/tc/object.h"
#include "evb/tc/outcome.h"

/* Fails with -EEXIST: names the root, and what to do. */
int shaper_refuse_foreign(const char *device, const struct tc_tree *have, struct tc_outcome *o);
/* Of a root that is replaced all the same. */
void shaper_warn_of_loss(const char *device, const struct tc_tree *have, struct tc_outcome *o);
/* Someone has taken ours away, and has the last word: what was there `before` does not come back by itself. */
void shaper_warn_of_absent(const char *device, const struct tc_tree *before, const struct tc_tree *have,
                           struct tc_outcome *o);
