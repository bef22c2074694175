/* Run control of a DFM: receives operators' commands over HTTP, in separate threads, and executes them in the
 * event loop. It decides whether the next run begins, and keeps the outcome of the last one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../node_internal.h"

struct dfm;
struct run_http;

/* *ret is NULL if the node is not a DFM, or if control.listen = none and the node does not run as a systemd
 * unit. A DFM that runs as a unit and has no Unix socket also listens at a socket in the unit's directory
 * ($RUNTIME_DIRECTORY). `check_only` as in metrics_open(). Errors are logged. */
int run_control_open(struct run_control **ret, struct node *n);
/* Accepts no further commands, and answers waiting commands with 503. Call this before the servers end. */
void run_control_shut(struct run_control *c);
struct run_control *run_control_close(struct run_control *c);

/* Only the event loop may call the functions below. NULL: there is no run control, and they have no effect.
 * run_control_prepare() prepares the core of the next run: it holds the start of the run, or sets the
 * operator's metadata. */
void run_control_prepare(struct run_control *c, struct dfm *core);
/* Executes the waiting command, if any. */
void run_control_turn(struct run_control *c, uint64_t now_ns);
/* Publishes the state for clients at metrics.listen, whose requests do not wake the event loop. */
void run_control_publish(struct run_control *c, uint64_t now_ns);
/* Records a run that an earlier DFM left without an end or without a report; `cause`: a fault, or "". */
void run_control_record_last(struct run_control *c, uint32_t run, const char *why, const char *cause);
/* Records the last run in the list of runs, which an earlier DFM reported. `fault_remains`: as for
 * run_state_restore_last(). */
void run_control_restore_last(struct run_control *c, bool fault_remains);
/* Records the end of this core's run; n->reasons contains the reasons for its outcome. */
void run_control_record_end(struct run_control *c);
/* Call this if no run follows in this process. If clients wait for the effect of their commands, returns
 * after they have learned how the run ended, or after 5 s. Returns at once if no client has asked in the
 * last 2 s of the run. */
void run_control_linger(struct run_control *c);
/* Returns the interface for other servers of this process. NULL: there is no run control. */
const struct run_http *run_control_http(const struct run_control *c);
