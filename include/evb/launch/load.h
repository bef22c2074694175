/* A scenario of settings, for those who make one run after the other. */
#pragma once

#include "evb/conf/scenario.h"

#define LOAD_WHY_MAX_BYTES 600u

/* A file's scenario with settings over it; NULL: `why` has the first mistake. Freed by the caller. */
struct scenario *lab_load_scenario(const char *path, const char *const *settings, size_t n, char *why,
                                   size_t size);
