/* Connects stall.h with a node: checks its work, publishes and logs what it waits for, and reports its
 * stalls. Explains what a ROS or an SFI waits for, and ends a run without progress (run.stall-timeout). */
#pragma once

#include <jansson.h>

#include "core/dfm.h"
#include "core/ros.h"
#include "core/sfi.h"
#include "data/data_send.h"
#include "data/reasons.h"
#include "../node_internal.h"

void progress_init(struct node *n, uint64_t now_ns);
/* Call this several times a second. */
void progress_watch(struct node *n, uint64_t now_ns);
/* Describes what the node waits for now: "no credit from sfi2: slow disk on sfi2", or "". Only for the node's
 * own thread; others read `obstacle` of its counters. */
void progress_text(const struct node *n, uint64_t now_ns, char *text, size_t size_bytes);
/* Adds stalled_seconds, stall_reason and ended_by_stall. */
void progress_report(const struct node *n, json_t *o);

/* member_obstacle.c: what a ROS or an SFI waits for. */
/* Reports a full send queue or buffer to the core, and so to the DFM, unless a reason of the front-end is
 * already known. */
void ros_record_obstacle(struct ros *core, const struct data_sender *sender, uint64_t now_ns);
bool ros_blames_front_end(enum node_reason reason);
struct work ros_work(const struct node *n, uint64_t now_ns);
void ros_explain(const struct node *n, uint64_t now_ns, struct obstacle *ret);
/* Reports to the core, and so to the DFM, that the output failed with this error. */
void sfi_record_failure(struct sfi *core, uint64_t now_ns, int error);
struct work sfi_work(const struct node *n, uint64_t now_ns);
void sfi_explain(const struct node *n, uint64_t now_ns, struct obstacle *ret);

/* The end of a run without progress, and the ROSs that held back triggers until then. */
struct dfm_end {
        char reason[REASON_TEXT_MAX]; /* why the DFM ended the run; "": the DFM did not end it */
        uint64_t abandon_ns;          /* when the DFM counts open events as lost */
        uint32_t abandoned;
        bool recorded;
        char held[256]; /* the ROSs that held back triggers until the end; "": none */
};

void dfm_end_turn(struct node *n, struct dfm *core, struct dfm_end *e, uint64_t now_ns);
/* Adds why the DFM ended the run, as the first reason. */
void dfm_end_reasons(const struct dfm_end *e, struct reasons *to);
