/* A node's metrics, served by HTTP at metrics.listen in a separate thread. The event loop and the shaping
 * thread publish their state. The event loop never waits for the server's thread; the shaping thread may wait
 * for a copy. NULL: the node has no metrics. */
#pragma once

#include "conf/scenario.h"
#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"
#include "data/stats.h"
#include "shape/model/tree_status.h"

struct metrics;
struct run_fault;
struct run_http;

/* *ret is NULL if metrics.listen = none. `control`: served at /control; NULL: none. `check_only`: checks
 * whether the call would succeed, and serves nothing. Errors are logged; for -ECANCELED see
 * data/socket_open.h. */
int metrics_open(struct metrics **ret, const struct scenario *s, const struct scenario_node *self,
                 struct node_stats *stats, const struct run_http *control, bool check_only);
struct metrics *metrics_close(struct metrics *m);

/* Call this before the next run of the same process, while no thread of the process counts. The counters of
 * the node then restart, and the metrics continue from their totals. */
void metrics_begin_run(struct metrics *m);

/* The event loop calls one of these functions whenever it publishes the counters. `unwritten`: number of
 * built events that the SFI has not written; `mtu_failed_paths`: from path_probe_failed(). */
void metrics_record_dfm(struct metrics *m, const struct dfm *core);
void metrics_record_ros(struct metrics *m, const struct ros *core, uint32_t run, uint32_t mtu_failed_paths);
void metrics_record_sfi(struct metrics *m, const struct sfi *core, uint32_t run, uint32_t unwritten);
/* The shaping thread calls these functions after each comparison with the kernel: one function records the
 * kernel's state, and the other one records whether this is the planned tree. */
void metrics_record_shaping(struct metrics *m, const struct tc_status *status);
void metrics_record_shaped(struct metrics *m, bool shaped);
/* Reads which node is at fault (run_summary.h), if that is possible without waiting. Otherwise, or if `m` is
 * NULL or this node is not the DFM, *ret is unchanged. */
void metrics_read_fault(struct metrics *m, struct run_fault *ret);
