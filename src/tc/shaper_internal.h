/* The shaper's messages about other people's roots. */
#pragma once

#include "evb/tc-model/object.h"
#include "evb/tc/outcome.h"

/* Fails with -EEXIST: names the root, and what to do about it. */
int shaper_refuse_foreign(const char *device, const struct tc_tree *have, struct tc_outcome *o);
/* Warns about a root that is replaced nevertheless. */
void shaper_warn_of_loss(const char *device, const struct tc_tree *have, struct tc_outcome *o);
/* Warns that `before` does not come back by itself, as someone else removed our root. */
void shaper_warn_of_absent(const char *device, const struct tc_tree *before, const struct tc_tree *have,
                           struct tc_outcome *o);
