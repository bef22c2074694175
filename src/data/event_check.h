/* Checks built events, and logs the first one of each fault. Only one thread at a time uses it. */
#pragma once

#include "core/sfi.h"
#include "data/context.h"
#include "data/reasons.h"

struct event_check {
        const struct data_context *context; /* borrowed */
        const uint8_t *buffer;              /* borrowed; contains the fragments */
        uint64_t pattern[EVB_ROS_MAX / 64]; /* ROSs whose fragments are verified */
        uint64_t seed;
        uint32_t n_ros;
        uint64_t corrupt_fragments, corrupt_events;
        /* Time when an event was last lost, and times when fragments of each ROS were last missing or
         * corrupt. */
        uint64_t lost_ns, missing_ns[EVB_ROS_MAX], corrupt_ns[EVB_ROS_MAX];
        char first_corrupt[REASON_TEXT_MAX / 2]; /* describes the first corrupt fragment */
};

void event_check_init(struct event_check *c, const struct data_context *context, const uint8_t *buffer);
/* Returns false if the event is lost. *ret_status receives bits for the status in its header. */
bool event_check(struct event_check *c, const struct sfi_built *built, uint32_t *ret_status);
/* Adds the number of corrupt fragments as a reason, if there are any. */
void event_check_reasons(const struct event_check *c, struct reasons *to);
