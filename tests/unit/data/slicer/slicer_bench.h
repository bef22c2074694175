/* A slicer with the core of its ROS, a board that sends frames, and the events of slices, without any clock
 * or socket. */
#pragma once

#include "../../test.h"

#include <endian.h>

#include "base/arena.h"
#include "base/util.h"
#include "data/slicer.h"

#define BUFFER_BYTES (16u << 20)
#define TICK_NS 10
#define SLICE_TICKS 100u

static struct bench {
        struct slicer *slicer;
        struct ros *core;
        uint8_t *buffer;
        uint64_t now_ns, frames, slices, events;
        uint64_t mask; /* of the board's counter */
} b;

#define COOKIE UINT64_C(0xC00C1E)

/* Slices of 1 us, which close 2 us after their end. */
static inline struct slicer_config standard(void)
{
        return (struct slicer_config){
                .slice_ns = SLICE_TICKS * TICK_NS,
                .window_ns = 2 * SLICE_TICKS * TICK_NS,
                .tick_ns = TICK_NS,
                .bits = 16,
                .frames_max = 100,
                .buffer_bytes = 8u << 20,
                .idle_max_ns = 20000,
        };
}

/* Gives the core a message of this run. */
static inline void receive(enum node_role role, uint32_t type, struct message *m)
{
        m->header = (struct message_header){.cookie = COOKIE, .sender_role = role, .type = type};
        m->dfm = role == ROLE_DFM;
        assert_true(ros_receive(b.core, b.now_ns, m));
}

static inline void begin_with_room(const struct slicer_config *config, uint32_t slices)
{
        struct ros_config c = {.member = {.incarnation = 9, .retry_ns = NS_PER_S},
                               .n_sfi = 1,
                               .entries = slices,
                               .buffer_bytes = BUFFER_BYTES,
                               .number_period = NUMBER_PERIOD_MAX};
        static struct message m;
        struct message_to to;

        b = (struct bench){
                .now_ns = NS_PER_S,
                .buffer = malloc(BUFFER_BYTES),
                .mask = config->bits < 64 ? (UINT64_C(1) << config->bits) - 1 : UINT64_MAX,
        };
        assert_int_equal(ros_new(&b.core, &c, b.now_ns), 0);
        assert_int_equal(slicer_new(&b.slicer, config), 0);
        assert_true(ros_step(b.core, b.now_ns, &to, &m));
        m = (struct message){.welcome = {.incarnation = 9, .run = 1}};
        receive(ROLE_DFM, MESSAGE_WELCOME, &m);
}

static inline void begin(const struct slicer_config *config)
{
        begin_with_room(config, 4096);
}

static inline void end(void)
{
        const struct slicer_counts *c = slicer_counts(b.slicer);
        const struct ros_slice_counts *passed = &ros_counts(b.core)->slices;

        assert_int_equal(c->frames, b.frames);
        assert_int_equal(c->frames, c->passed + c->late + c->dropped + c->left_over + c->waiting);
        assert_int_equal(c->passed, passed->used + passed->late + passed->dropped + passed->left_over);
        slicer_free(b.slicer);
        ros_free(b.core);
        free(b.buffer);
}

/* Tests of a slicer, for each `i` below `n` or once. The last arguments change its configuration `c`. */
#define SLICER_TEST_EACH(name, i, n, ...)                                                                    \
        static void name##_plays(unsigned i);                                                                \
        TEST_EACH(name, i, n)                                                                                \
        {                                                                                                    \
                struct slicer_config c = standard();                                                         \
                                                                                                             \
                __VA_ARGS__;                                                                                 \
                begin(&c);                                                                                   \
                name##_plays(i);                                                                             \
                end();                                                                                       \
        }                                                                                                    \
        static void name##_plays(unsigned i)
#define SLICER_TEST(name, ...) SLICER_TEST_EACH(name, once, 1, ##__VA_ARGS__)

/* A frame of the board at this count, whose payload is its count. */
static inline enum ros_verdict comes(uint64_t count)
{
        uint64_t counter = count & b.mask;
        uint8_t *to;
        enum ros_verdict verdict = slicer_arrive(b.slicer, b.now_ns, &counter, sizeof count, &to);

        if (verdict == ROS_STORE)
                memcpy(to, &count, sizeof count);
        if (verdict == ROS_FULL)
                return verdict;
        slicer_commit(b.slicer, b.now_ns);
        b.frames++;
        return verdict;
}

static inline void delivers(bool idle, bool full)
{
        b.slices += slicer_deliver(b.slicer, b.now_ns, idle, full, b.core, b.buffer);
}

/* A frame comes at each of these counts. */
static inline void come(size_t n, const uint64_t *counts)
{
        for (size_t i = 0; i < n; i++)
                comes(counts[i]);
}

/* So many slices have been delivered until now. */
static inline void delivers_all(uint64_t n)
{
        delivers(false, false);
        assert_int_equal(b.slices, n);
}

static inline void requests(uint64_t event, uint64_t slice)
{
        static struct message m;

        m = (struct message){.n = 1};
        m.request.entries[0] =
                (struct request_entry){.event = event, .l1_id = (uint32_t)slice, .to_bytes = UINT32_MAX};
        receive(ROLE_SFI, MESSAGE_REQUEST, &m);
}

/* The run is in this state. */
static inline void follows(enum run_state state)
{
        static struct message m;

        m = (struct message){.keep_alive = {.state = state}};
        receive(ROLE_DFM, MESSAGE_KEEP_ALIVE, &m);
}

/* The event ends, after its fragment has been sent if there was one. */
static inline void ends(uint64_t event)
{
        static struct message m;
        struct ros_job job;

        if (ros_jobs(b.core, 0, &job, 1) == 1)
                ros_sent(b.core, 0, 1, 0);
        m = (struct message){.n = 1};
        m.clear.events[0] = event;
        receive(ROLE_DFM, MESSAGE_CLEAR, &m);
}

/* The fragment of the slice has this status and these counts. */
static inline void assert_slice_is(uint64_t slice, uint8_t status, size_t n, const uint64_t *counts)
{
        struct ros_job job;

        requests(b.events++ % 1000, slice);
        assert_int_equal(ros_jobs(b.core, 0, &job, 1), 1);
        assert_fields(&job.job.chunk, status, status, fragment_bytes, 12 * n);
        for (size_t i = 0; i < n; i++) {
                const uint8_t *at = b.buffer + job.at + 12 * i;

                assert_int_equal(at[0], 8);
                assert_memory_equal(at + 4, &counts[i], 8);
        }
        ros_sent(b.core, 0, 1, 0);
}

static inline void assert_slice(uint64_t slice, size_t n, const uint64_t *counts)
{
        assert_slice_is(slice, FRAGMENT_OK, n, counts);
}

#define COUNTS(...)                                                                                          \
        ARRAY_SIZE(((const uint64_t[]){__VA_ARGS__})), (const uint64_t[])                                    \
        {                                                                                                    \
                __VA_ARGS__                                                                                  \
        }
