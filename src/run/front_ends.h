/* The accounts of front-ends: every frame that a ROS read ends in exactly one class. */
#pragma once

#include <jansson.h>

#include "run/launched_run.h"

/* Whether the classes of each ROS that lived to the end add up; describes the first one that does not. */
bool front_ends_balance(const struct launch *l, char *difference, size_t size_bytes);
/* The sums over all ROSs; null without front-ends. */
json_t *front_ends_report(const struct launch *l);
/* The same as a line of text, if there are front-ends. */
void front_ends_print(const struct launch *l);
