/* The kinds of runs; see lab_run_point(). */
#pragma once

#include "evb/lab/points.h"
#include "evb/sys/machine_watch.h"

/* `watch` watches while the figures are measured; NULL: none, as on standby nodes. */
json_t *run_events(const struct lab_point *p, struct machine_watch *watch);
json_t *run_flows(const struct lab_point *p, struct machine_watch *watch);
json_t *run_copy(const struct lab_point *p, struct machine_watch *watch);
json_t *run_paths(const struct lab_point *p, struct machine_watch *watch);
json_t *run_streams(const struct lab_point *p, struct machine_watch *watch);
/* Whether this machine has what a point of a stream needs; if not, `lack` names it. */
bool streams_can_run(const struct lab_point *p, char *lack, size_t size);
