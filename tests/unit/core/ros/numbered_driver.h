/* A ROS whose frames carry the number of their trigger. */
#pragma once

#include "../ros_driver.h"

static inline struct ros_config numbered(unsigned bits)
{
        struct ros_config c = ros_standard();

        c.describe = NULL;
        c.entries = 100;
        c.expected_max = 4000;
        c.number_period = number_period(bits);
        return c;
}

#define NUMBERED_TEST_EACH(name, i, n, bits, ...)                                                            \
        ROS_TEST_EACH_AS(name, i, n, numbered(bits), ros_driver_init(t, &c), ##__VA_ARGS__)
#define NUMBERED_TEST(name, bits, ...) NUMBERED_TEST_EACH(name, once, 1, bits, ##__VA_ARGS__)

static inline enum ros_verdict frame_begins(struct ros_driver *t, uint64_t counter)
{
        struct ros_fragment f = {.bytes = 1000};
        uint64_t at;
        enum ros_verdict verdict = ros_arrive(t->ros, &counter, &f, &at);

        t->frames += verdict != ROS_FULL;
        return verdict;
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
        t->message.assign.resets = t->resets;
        t->message.assign.entries[0] = (struct assign_entry){.event = event, .l1_id = l1_id};
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_ASSIGN, 0));
}

static inline void triggers(struct ros_driver *t, uint32_t from, uint32_t until)
{
        for (uint32_t i = from; i < until; i++)
                trigger(t, i, i);
}

static inline void triggers_and_frames(struct ros_driver *t, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                trigger(t, i, i);
                frame_comes(t, i);
        }
}

static inline uint16_t reported_flags(struct ros_driver *t)
{
        struct message_to to;
        uint16_t flags;

        t->now_ns += NS_PER_S;
        assert_true(ros_step(t->ros, t->now_ns, &to, &t->message));
        assert_int_equal(t->message.header.type, MESSAGE_ALIVE);
        assert_int_equal(t->message.alive.state, RUN_RUNNING);
        flags = t->message.alive.flags;
        assert_string_equal(ros_says(t), "");
        return flags;
}

static inline bool reports_unreliable(struct ros_driver *t)
{
        return reported_flags(t) & ALIVE_UNRELIABLE;
}
