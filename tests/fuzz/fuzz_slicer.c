/* The slicer of frames with times, driven by a script: six bytes of settings, then commands of four bytes
 * each. Each frame ends in exactly one class, and no slice is delivered twice. */
#include <string.h>

#include "base/cursor.h"
#include "data/slicer.h"
#include "fuzz.h"
#include "joined_ros.h"

#define COMMANDS_MAX 400u
/* All limits are small: an input of some commands reaches each of them, and a slicer for each input is cheap.
 */
#define FRAGMENT_MAX_BYTES 16384u
#define SLICES_MAX 64u
#define ENTRIES 32u

struct bench {
        struct slicer *slicer;
        struct ros *core;
        uint64_t now_ns, count, frames, slices;
};

static struct slicer_config read_config(struct reader *r)
{
        static const unsigned widths[] = {16, 24, 32, 64};
        struct slicer_config c = {
                .tick_ns = 1 + reader_u8(r) % 16,
                .slice_ns = 1 + (uint64_t)reader_u8(r) * 97,
                .bits = widths[reader_u8(r) % ARRAY_SIZE(widths)],
                .window_ns = reader_u8(r) * UINT64_C(131),
                .frames_max = 1 + reader_u8(r),
                .slices_max = SLICES_MAX,
                .fragment_max_bytes = FRAGMENT_MAX_BYTES,
                .buffer_bytes = 2 * FRAGMENT_MAX_BYTES,
                .idle_max_ns = 20000,
        };

        c.overlap_ns = c.slice_ns * (reader_u8(r) % 4) / 4;
        return c;
}

/* A frame with a time `step` after the last one; its number says how it ends. */
static void arrive(struct bench *b, uint8_t how, uint16_t step)
{
        uint64_t counter = b->count += how & 1 ? step : (uint64_t) - (step & 0xff);
        uint32_t bytes = step % (how & 2 ? FRAGMENT_MAX_BYTES / 2 + 64 : 128u);
        uint8_t *to = NULL;

        if (how & 4)
                counter = step * UINT64_C(0x0001000100010001);
        switch (slicer_arrive(b->slicer, b->now_ns, how & 8 ? NULL : &counter, bytes, &to)) {
        case ROS_STORE:
                memset(to, how, bytes);
                break;
        case ROS_FULL:
                slicer_skip(b->slicer);
                b->frames++;
                return;
        case ROS_DISCARD:
                break;
        }
        how & 16 ? slicer_skip(b->slicer) : slicer_commit(b->slicer, b->now_ns);
        b->frames++;
}

static void check(const struct bench *b)
{
        const struct slicer_counts *c = slicer_counts(b->slicer);
        const struct ros_slice_counts *slices = &ros_counts(b->core)->slices;

        assert(c->frames == b->frames);
        assert(c->frames == c->passed + c->late + c->dropped + c->waiting + c->left_over);
        assert(c->passed == slices->used + slices->late + slices->dropped + slices->left_over);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        static uint8_t buffer[EVB_FRAGMENT_MAX_BYTES];
        struct reader r = reader_init(bytes, size_bytes);
        const struct slicer_config config = read_config(&r);
        struct bench b = {.now_ns = JOINED_NOW_NS};

        if (r.failed)
                return false;
        b.core = joined_ros(32, ENTRIES, sizeof buffer);
        assert(slicer_new(&b.slicer, &config) == 0);
        for (unsigned i = 0; i < COMMANDS_MAX && reader_left(&r) >= 4; i++) {
                uint8_t what = reader_u8(&r), how = reader_u8(&r);
                uint16_t step = reader_u16(&r);

                b.now_ns += what & 0xf0 ? 0 : step;
                if (what & 1)
                        b.slices += slicer_deliver(b.slicer, b.now_ns, how & 1, how & 2, b.core, buffer);
                else
                        arrive(&b, how, step);
                (void)slicer_deadline_ns(b.slicer);
                check(&b);
        }
        slicer_free(b.slicer);
        ros_free(b.core);
        return b.slices > 0;
}
