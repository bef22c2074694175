/* What a ROS or an SFI waits for. */
#pragma once

#include "core/ros.h"
#include "core/sfi.h"
#include "data/data_send.h"
#include "../node_internal.h"

/* Tells the core, and so the DFM, of a full send queue or buffer, unless the front-end has a reason that it
 * knows already. */
void ros_record_obstacle(struct ros *core, const struct data_sender *sender, uint64_t now_ns);
bool ros_blames_front_end(enum node_reason reason);
struct work ros_work(const struct node *n, const struct ros *core, uint64_t now_ns);
void ros_explain(const struct node *n, const struct ros *core, uint64_t now_ns, struct obstacle *ret);
/* The output failed with that error: tells the core, and so the DFM. */
void sfi_record_failure(struct sfi *core, uint64_t now_ns, int error);
struct work sfi_work(const struct node *n, const struct sfi *core, uint64_t now_ns);
void sfi_explain(const struct node *n, const struct sfi *core, uint64_t now_ns, struct obstacle *ret);
