/* A ROS whose frames carry the number of their trigger. */
#pragma once

#include "../ros_driver.h"

static inline struct ros_config numbered(unsigned bits)
{
        struct ros_config c = ros_standard();

        c.describe = NULL;
        c.entries = 100;
        c.number_bits = bits;
        return c;
}

static inline enum ros_verdict frame_begins(struct ros_driver *t, uint64_t counter)
{
        struct ros_fragment f = {.bytes = 1000};
        uint64_t at;

        return ros_arrive(t->ros, &counter, &f, &at);
}

static inline void frame_comes(struct ros_driver *t, uint64_t counter)
{
        assert_true(frame_begins(t, counter) != ROS_FULL);
        ros_commit(t->ros);
}

static inline void frames_come(struct ros_driver *t, uint64_t from, uint64_t n)
{
        for (uint64_t i = 0; i < n; i++)
                frame_comes(t, from + i);
}

/* The trigger with this L1 ID is announced: SFI 0 builds its event. */
static inline void trigger(struct ros_driver *t, uint64_t event, uint32_t l1_id)
{
        t->message.n = 1;
        t->message.assign.with_info = false;
        t->message.assign.announces = true;
        t->message.assign.entries[0] = (struct assign_entry){.event = event, .l1_id = l1_id};
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_ASSIGN, 0));
}

/* Every frame is in one class. */
static inline void check_frames(struct ros_driver *t, uint64_t frames)
{
        const struct ros_counts *c = ros_counts(t->ros);

        assert_int_equal(c->used + c->late + c->duplicate + c->impossible + c->dropped + c->left_over,
                         frames);
}

static inline void end(struct ros_driver *t, uint64_t frames)
{
        check_frames(t, frames);
        ros_free(t->ros);
}

static inline void triggers_and_frames(struct ros_driver *t, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                trigger(t, i, i);
                frame_comes(t, i);
        }
}
