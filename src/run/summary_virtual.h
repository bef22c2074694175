/* Adapts the report of a run in virtual time: what it has in addition, and what it cannot know. */
#pragma once

#include <jansson.h>

#include "run/launched_run.h"

/* Adds "seed" and "digest". Makes figures of processors and memory null, because no node has them. Does
 * nothing for a real run. */
void summary_virtual_add(json_t *report, const struct launch *l);
