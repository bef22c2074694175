/* Describes changes by other programs in an installed tree. Pure. */
#pragma once

#include "shape/model/diff.h"
#include "shape/kernel/outcome.h"

/* Appends e.g. "root qdisc htb e7b: is missing". `change` would restore the installed tree. */
void tc_drift_describe(const struct tc_change *change, struct strbuf *b);
/* 1: the kernel's tree differs from the installed one, and `what` describes the first difference; 0: no
 * difference. Ignores draining classes. -ENOMEM. */
int tc_drift(const struct tc_tree *have, const struct tc_tree *installed,
             char what[static TC_OUTCOME_TEXT_MAX]);
