/* The kinds of runs; see lab_run_point(). */
#pragma once

#include "conf/scenario.h"
#include "lab/points.h"
#include "sys/machine_watch.h"

/* `watch` watches while the figures are measured; NULL: none, as on standby nodes. */
/* Loads the scenario of a point of event building that no testbed makes; NULL after logging the error. The
 * caller frees it. Settings without a section are left out: they are for the simulator. */
struct scenario *events_load(const struct lab_point *p);
/* Turns the report of a run of `s` into the figures of a point. */
json_t *events_flatten(const json_t *report, const struct scenario *s);
json_t *run_events(const struct lab_point *p, struct machine_watch *watch);
json_t *run_flows(const struct lab_point *p, struct machine_watch *watch);
json_t *run_copy(const struct lab_point *p, struct machine_watch *watch);
json_t *run_paths(const struct lab_point *p, struct machine_watch *watch);
json_t *run_streams(const struct lab_point *p, struct machine_watch *watch);
json_t *run_virtual(const struct lab_point *p);
/* Whether the simulator's model covers a point; if not, `lack` names what it leaves out. */
bool virtual_can_run(const struct lab_point *p, char *lack, size_t size);
/* Whether this machine has what a point of a stream needs; if not, `lack` names it. */
bool streams_can_run(const struct lab_point *p, char *lack, size_t size);
