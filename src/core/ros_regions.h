/* Regions of interest in the ROS: level-2 clients request fragments of undecided events, and decide on them.
 * A request only reads what the ROS holds. It never affects event building: it uses no space in the buffer,
 * does not count for XOFF, and is not evidence of a trigger.
 *
 * The answer depends on the state when it is fetched, not when it was requested: the fragment; "discarded" if
 * the event has been assigned or has ended since; "pending" if its frame did not come within
 * ros_config.wait_ns; "lost" if the front-end lost it, or if no such event can exist. Part of the ROS: see
 * ros.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/message.h"

#define ROS_REGION_CLIENTS 16u
/* Maximum number of requests of one client that wait for an answer. */
#define ROS_REGION_REQUESTS 1024u

struct ros;
struct ros_job;

/* Each request ends in one class, or is open. */
struct ros_region_counts {
        uint64_t requests;
        uint64_t sent;    /* fragments, and answers that the source has no data for the event */
        uint64_t gone;    /* the event was assigned or had ended */
        uint64_t absent;  /* the frame did not arrive, or was lost */
        uint64_t refused; /* no such event can exist, or its fragment has no such range */
        uint64_t dropped; /* the client left before the answer */
        uint64_t open;
        uint64_t sent_bytes; /* payload */
};

/* Whether there is room for all requests of one more message. */
bool ros_region_has_room(const struct ros *r, uint32_t client);
/* Adds a request. The caller must have checked ros_region_has_room(). `resets`: of the Request; if the ROS
 * does not follow that reset of the counters yet, the request waits until it does. */
void ros_region_request(struct ros *r, uint64_t now_ns, uint32_t client, uint32_t resets,
                        const struct request_entry *q);
/* Returns the next answer for a client. Its bytes stay in the buffer until the next call of any function of
 * the ROS, or the caller generates them (ros_job.fill). False: there is none. */
bool ros_region_answer(struct ros *r, uint32_t client, struct ros_job *ret);
bool ros_region_is_ready(const struct ros *r, uint32_t client);
/* The client has left. */
void ros_region_forget(struct ros *r, uint32_t client);
const struct ros_region_counts *ros_region_counts(const struct ros *r);
