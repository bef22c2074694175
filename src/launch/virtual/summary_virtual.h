/* What the report of a run in virtual time has in addition, and what it cannot know. */
#pragma once

#include <jansson.h>

#include "evb/launch/run.h"

/* Adds "seed" and "digest". Processors and memory are those of nobody: they become null. Nothing for a real
 * run. */
void summary_virtual_add(json_t *report, const struct launch *l);
