/* The matcher of frames and triggers by time, driven by a script: five bytes of settings, then commands of
 * four bytes each. Each frame ends in exactly one class, and those that are passed reach the core. */
#include "base/cursor.h"
#include "data/matcher.h"
#include "fuzz.h"
#include "joined_ros.h"

#define COMMANDS_MAX 400u
#define ENTRIES 32u
#define FRAME_MAX_BYTES 16384u

struct bench {
        struct matcher *matcher;
        struct ros *core;
        uint64_t now_ns, count, time_ns, number, frames;
};

static struct matcher_config read_config(struct reader *r)
{
        static const unsigned widths[] = {16, 24, 32, 64};

        return (struct matcher_config){
                .window_ns = 1 + reader_u8(r) * UINT64_C(131),
                .tick_ns = 1 + reader_u8(r) % 16,
                .bits = widths[reader_u8(r) % ARRAY_SIZE(widths)],
                .frames_max = 1 + reader_u8(r),
                .buffer_bytes = 2 * FRAME_MAX_BYTES,
                .search_ns = reader_u8(r) * NS_PER_MS,
        };
}

/* Steps of any size: nanoseconds to seconds, in either direction. */
static uint64_t step_of(uint8_t how, uint16_t step)
{
        uint64_t ns = (uint64_t)step << (how >> 4);

        return how & 1 ? -ns : ns;
}

static void trigger(struct bench *b, uint8_t how, uint16_t step)
{
        b->number += how & 2 ? step : 1;
        b->time_ns += step_of(how, step);
        matcher_trigger(b->matcher, b->now_ns,
                        &(struct trigger_entry){.number = b->number,
                                                .time_ns = b->time_ns,
                                                .flags = how & (TRIGGER_RESET | TRIGGER_MARKER)},
                        b->number == 1);
}

static void arrive(struct bench *b, uint8_t how, uint16_t step)
{
        uint64_t counter = b->count += step_of(how, step);
        /* A frame has at least its time. */
        uint32_t bytes = 1 + step % (how & 8 ? FRAME_MAX_BYTES : 128u);
        uint8_t *to = NULL;
        enum ros_verdict verdict =
                matcher_arrive(b->matcher, b->now_ns, how & 2 ? NULL : &counter, bytes, &to);

        if (verdict == ROS_STORE)
                memset(to, how, bytes);
        verdict == ROS_FULL || how & 4 ? matcher_skip(b->matcher) : matcher_commit(b->matcher);
        b->frames++;
}

/* The process may have been held up, and the socket may never have been empty. */
static uint64_t deliver(const struct bench *b, uint8_t how, uint16_t step, uint8_t *buffer)
{
        const struct matcher_turn turn = {b->now_ns, b->now_ns + (how & 2 ? step : 0),
                                          how & 4 ? 0 : b->now_ns, how & 1};

        return matcher_deliver(b->matcher, &turn, b->core, buffer);
}

static void check(const struct bench *b)
{
        const struct matcher_counts *c = matcher_counts(b->matcher);
        const struct ros_slice_counts *passed = &ros_counts(b->core)->slices;

        assert(c->frames == b->frames);
        assert(c->frames == c->passed + c->alone + c->doubled + c->no_time + c->no_room + c->waiting);
        assert(c->passed == passed->used + passed->late + passed->dropped + passed->left_over);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        static uint8_t buffer[EVB_FRAGMENT_MAX_BYTES];
        struct reader r = reader_init(bytes, size_bytes);
        const struct matcher_config config = read_config(&r);
        struct bench b = {.now_ns = JOINED_NOW_NS, .time_ns = 1700000000 * NS_PER_S};
        uint64_t passed = 0;

        if (r.failed)
                return false;
        b.core = joined_ros(32, ENTRIES, sizeof buffer);
        assert(matcher_new(&b.matcher, &config) == 0);
        (void)deliver(&b, 0, 0, buffer);
        for (unsigned i = 0; i < COMMANDS_MAX && reader_left(&r) >= 4; i++) {
                uint8_t what = reader_u8(&r), how = reader_u8(&r);
                uint16_t step = reader_u16(&r);

                b.now_ns += what & 8 ? (uint64_t)step << (what >> 4) : 0;
                if (what & 1)
                        trigger(&b, how, step);
                if (what & 2)
                        arrive(&b, how, step);
                if (what & 4)
                        passed += deliver(&b, how, step, buffer);
                (void)matcher_deadline_ns(b.matcher);
                check(&b);
        }
        matcher_free(b.matcher);
        ros_free(b.core);
        return passed > 0;
}
