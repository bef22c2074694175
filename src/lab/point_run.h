/* Runs one point of a measurement, in namespaces of this machine or on standby nodes. */
#pragma once

#include "lab/points.h"

/* Returns the figures of the point, or NULL after logging the error. */
json_t *lab_run_point(const struct lab_point *p);
