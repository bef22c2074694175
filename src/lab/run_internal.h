/* The kinds of runs; see lab_run_point(). */
#pragma once

#include "evb/lab/points.h"

json_t *run_events(const struct lab_point *p);
json_t *run_flows(const struct lab_point *p);
json_t *run_copy(const struct lab_point *p);
