/* The core of a ROS that has joined a run, as the code behind its front-end needs it. */
#pragma once

#include <assert.h>
#include <stdlib.h>

#include "evb/base/util.h"
#include "evb/core/ros.h"

#define JOINED_BUFFER_BYTES (2 * EVB_FRAGMENT_MAX_BYTES)
#define JOINED_NOW_NS NS_PER_S

static inline struct ros *joined_ros(unsigned number_bits)
{
        const struct ros_config c = {.member = {.incarnation = 9, .retry_ns = NS_PER_S},
                                     .n_sfi = 1,
                                     .entries = 1024,
                                     .buffer_bytes = JOINED_BUFFER_BYTES,
                                     .number_bits = number_bits};
        static struct message m;
        struct message_to to;
        struct ros *ros;

        assert(ros_new(&ros, &c, JOINED_NOW_NS) == 0 && ros_step(ros, JOINED_NOW_NS, &to, &m));
        m = (struct message){.header = {.cookie = 12, .sender_role = ROLE_DFM, .type = MESSAGE_WELCOME},
                             .dfm = 1,
                             .welcome = {.incarnation = 9, .run = 1}};
        assert(ros_receive(ros, JOINED_NOW_NS, &m));
        return ros;
}
