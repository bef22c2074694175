/* What somebody else has changed of an installed tree, in words. Pure. */
#pragma once

#include "evb/tc/diff.h"
#include "evb/tc/outcome.h"

/* Which way a change would have to go says what is wrong: "root qdisc htb e7b: is missing". */
void tc_drift_describe(const struct tc_change *change, struct strbuf *b);
/* 1: the kernel has something else than what was installed, and `what` describes the first difference; 0: it
 * has not. Classes on their way out are no difference. -ENOMEM. */
int tc_drift(const struct tc_tree *have, const struct tc_tree *installed,
             char what[static TC_OUTCOME_TEXT_MAX]);
