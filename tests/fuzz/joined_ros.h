/* The core of a ROS that has joined a run, as the code behind its front-end needs it. Targets that include
 * this are linked with --wrap for the functions of protocol/event_set.h that it replaces, and those with a
 * frame_store for the functions of memory_map(): see meson.build. */
#pragma once

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "core/ros.h"
#include "protocol/event_set.h"

#define JOINED_NOW_NS NS_PER_S

#define JOINED_SETS_MAX 4u

int __wrap_event_set_init(struct event_set *s);
void __wrap_event_set_fini(struct event_set *s);

/* Memory for half a megabyte of bits comes from the kernel. The sets of an input leave theirs empty for the
 * next. */
static struct {
        struct event_set sets[JOINED_SETS_MAX];
        unsigned n;
} joined_sets;

int __real_event_set_init(struct event_set *s);

int __wrap_event_set_init(struct event_set *s)
{
        if (joined_sets.n == 0)
                return __real_event_set_init(s);
        *s = joined_sets.sets[--joined_sets.n];
        return 0;
}

void __wrap_event_set_fini(struct event_set *s)
{
        if (!s->bits)
                return;
        event_set_clear(s, 0);
        assert(joined_sets.n < JOINED_SETS_MAX);
        joined_sets.sets[joined_sets.n++] = *s;
        s->bits = NULL;
}

void *__wrap_memory_map(size_t size_bytes);
void __wrap_memory_unmap(void *memory, size_t size_bytes);

/* Without the kernel, and with a check for accesses beyond the end. */
void *__wrap_memory_map(size_t size_bytes)
{
        return malloc(size_bytes);
}

void __wrap_memory_unmap(void *memory, size_t size_bytes)
{
        (void)size_bytes;
        free(memory);
}

/* No larger than the target needs, as it makes one for each input. Nothing requests its fragments. */
static inline struct ros *joined_ros(unsigned number_bits, uint32_t entries, uint64_t buffer_bytes)
{
        const struct ros_config c = {.member = {.incarnation = 9, .retry_ns = NS_PER_S},
                                     .n_sfi = 1,
                                     .entries = entries,
                                     .expected_max = 1,
                                     .extra_items = 1,
                                     .buffer_bytes = buffer_bytes,
                                     .number_period = number_period(number_bits)};
        static struct message m;
        struct message_to to;
        struct ros *ros;

        assert(ros_new(&ros, &c, JOINED_NOW_NS) == 0 && ros_step(ros, JOINED_NOW_NS, &to, &m));
        m.header = (struct message_header){.cookie = 12, .sender_role = ROLE_DFM, .type = MESSAGE_WELCOME};
        m.dfm = 1;
        memset(&m.welcome, 0, sizeof m.welcome);
        m.welcome.incarnation = 9;
        m.welcome.run = 1;
        assert(ros_receive(ros, JOINED_NOW_NS, &m));
        return ros;
}
