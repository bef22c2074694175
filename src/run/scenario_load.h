/* Loads the scenario of one run among many, as `evb check` does, and keeps its first error. */
#pragma once

#include "base/error.h"
#include "conf/scenario.h"

/* Loads a file with settings that override it. The message of an invalid scenario holds its own location. The
 * caller frees the scenario. */
int scenario_load_one(struct scenario **ret, const char *path, const char *const *settings, size_t n,
                      struct error *error);
