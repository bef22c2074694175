/* Loads the scenario of one run among many, as `evb check` does, and keeps its first error. */
#pragma once

#include "evb/conf/scenario.h"

#define SCENARIO_LOAD_WHY_MAX_BYTES 600u

/* Loads a file with settings that override it. Returns NULL with the first error in `why`. The caller frees
 * the scenario. */
struct scenario *scenario_load_one(const char *path, const char *const *settings, size_t n, char *why,
                                   size_t size);
