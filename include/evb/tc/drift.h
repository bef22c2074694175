/* Describes what others have changed in an installed tree. Pure. */
#pragma once

#include "evb/tc-model/diff.h"
#include "evb/tc/outcome.h"

/* The direction of a change tells what is wrong: "root qdisc htb e7b: is missing". */
void tc_drift_describe(const struct tc_change *change, struct strbuf *b);
/* 1: the kernel's tree differs from the installed one, and `what` describes the first difference; 0: no
 * difference. Classes that are draining do not count. -ENOMEM. */
int tc_drift(const struct tc_tree *have, const struct tc_tree *installed,
             char what[static TC_OUTCOME_TEXT_MAX]);
