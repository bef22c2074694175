/* A DFM whose triggers are the frames: the test acts as the ROSs that announce them. */
#pragma once

#include "../dfm_outside.h"
#include "protocol/number.h"

#define WINDOW_NS (100 * NS_PER_MS)

static uint32_t numbers_next[DRIVER_NODES_MAX], numbers_acked[DRIVER_NODES_MAX];
static uint32_t went_on; /* NumbersAcks that reported room */

/* Two required ROSs, and as many optional ones as `n_ros` allows. */
static inline struct dfm_config frames_config(uint32_t n_ros, uint32_t room)
{
        static struct ros_rule rules[DRIVER_NODES_MAX];
        struct dfm_config c = outside_standard(32);

        for (uint32_t i = 0; i < ARRAY_SIZE(rules); i++)
                rules[i] = (struct ros_rule){.frames = true, .leads = true, .optional = i >= 2};
        c.trigger_source = DFM_TRIGGER_FRAMES;
        c.n_ros = n_ros;
        c.number_period = number_period(16);
        c.window_ns = WINDOW_NS;
        c.announced_max = room;
        c.ros_rules = rules;
        return c;
}

/* A run with frames_config() whose triggers up to `last` were taken. */
#define FRAMES_TEST_EACH(name, i, n, n_ros, room, last, ...)                                                 \
        DFM_TEST_EACH_AS(name, i, n, frames_config(n_ros, room), start_after(t, &c, last), ##__VA_ARGS__)
#define FRAMES_TEST(name, n_ros, room, last, ...)                                                            \
        FRAMES_TEST_EACH(name, once, 1, n_ros, room, last, ##__VA_ARGS__)

/* `next`: the L1 ID after the newest trigger that the ROS has received; 0: none. */
static inline void announce_after(struct dfm_driver *t, uint16_t ros, uint32_t next, const uint32_t *numbers,
                                  size_t n)
{
        t->message.n = n;
        t->message.announced.incarnation = 1;
        t->message.announced.resets = t->resets;
        t->message.announced.knows = next > 0;
        t->message.announced.next = next;
        t->message.announced.last = false;
        for (size_t k = 0; k < n; k++)
                t->message.announced.numbers[k] = numbers[k];
        assert_true(driver_say(t, ROLE_ROS, ros, MESSAGE_NUMBERS, numbers_next[ros]));
        numbers_next[ros] += (uint32_t)n;
}

static inline void announced(struct dfm_driver *t, uint16_t ros, const uint32_t *numbers, size_t n)
{
        announce_after(t, ros, 0, numbers, n);
}

/* All frames that came before the stop are announced. */
static inline void announce_end(struct dfm_driver *t, uint16_t ros)
{
        t->message.n = 0;
        t->message.announced.incarnation = 1;
        t->message.announced.resets = t->resets;
        t->message.announced.knows = false;
        t->message.announced.last = true;
        assert_true(driver_say(t, ROLE_ROS, ros, MESSAGE_NUMBERS, numbers_next[ros]));
}

static inline void announce_range(struct dfm_driver *t, uint16_t ros, uint32_t from, uint32_t n)
{
        uint32_t numbers[MESSAGE_ENTRIES_MAX];

        for (uint32_t k = 0; k < n; k++)
                numbers[k] = from + k;
        announced(t, ros, numbers, n);
}

static inline void announce_one(struct dfm_driver *t, uint16_t ros, uint32_t number)
{
        announce_range(t, ros, number, 1);
}

/* The numbers of the triggers that the DFM assigns now. All end at once. */
static inline const char *takes(struct dfm_driver *t)
{
        struct message_to to;

        trace_clear(&t->trace);
        while (dfm_step(t->dfm, t->now_ns, &to, &t->message)) {
                struct message m = t->message;

                if (m.header.type == MESSAGE_KEEP_ALIVE && m.keep_alive.resets != t->resets)
                        ross_know(t, m.keep_alive.resets);
                if (m.header.type == MESSAGE_NUMBERS_ACK) {
                        went_on += m.numbers_ack.go_on;
                        numbers_acked[to.index] = m.numbers_ack.ack;
                }
                if (m.header.type != MESSAGE_ASSIGN || m.assign.announces)
                        continue;
                for (size_t k = 0; k < m.n; k++) {
                        trace_add(&t->trace, "%s%llu", t->trace.n > 0 ? " " : "",
                                  (unsigned long long)m.assign.infos[k].global_id);
                        assert_int_equal(m.assign.entries[k].l1_id, (uint32_t)m.assign.infos[k].global_id);
                }
                sfi_acks(t, 0, m.header.transaction + (uint32_t)m.n);
                for (size_t k = 0; k < m.n; k++)
                        sfi_ends(t, 0, m.assign.entries[k].event, EVENT_COMPLETE, 0);
        }
        return t->trace.text;
}

#define assert_takes(t, expected) assert_string_equal(takes(t), expected)
#define assert_takes_after(t, ns, expected) (dfm_pass_ns(t, ns), assert_takes(t, expected))

static inline void start(struct dfm_driver *t, const struct dfm_config *c)
{
        memset(numbers_next, 0, sizeof numbers_next);
        went_on = 0;
        dfm_driver_start(t, c);
        ross_know(t, 1);
        sfi_grants(t, 0, 100000);
        assert_dfm_says(t, "");
}

/* ... and numbers up to `last` were taken. */
static inline void start_after(struct dfm_driver *t, const struct dfm_config *c, uint32_t last)
{
        start(t, c);
        announce_one(t, 0, last);
        announce_one(t, 1, last);
        assert_string_not_equal(takes(t), "");
}
