/* The other files of the ROS call these functions for whatever requests of level-2 clients wait for. All
 * functions accept a ROS without regions of interest. */
#pragma once

#include "ros_internal.h"

int ros_regions_init(struct ros *r); /* -ENOMEM */
void ros_regions_fini(struct ros *r);
/* The frame with this number has arrived, will not come, or is no longer needed: requests for it are
 * answered. */
void ros_regions_wake(struct ros *r, uint64_t number);
/* The event has ended. */
void ros_regions_record_ended(struct ros *r, uint64_t event);
/* All events below `oldest` have ended. */
void ros_regions_record_oldest(struct ros *r, uint64_t oldest);
/* Answers the requests that have waited for too long. */
void ros_regions_expire(struct ros *r, uint64_t now_ns);
uint64_t ros_regions_deadline_ns(const struct ros *r);
