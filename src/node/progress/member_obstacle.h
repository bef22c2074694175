/* Explains what a ROS or an SFI waits for. */
#pragma once

#include "core/ros.h"
#include "core/sfi.h"
#include "data/data_send.h"
#include "../node_internal.h"

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
