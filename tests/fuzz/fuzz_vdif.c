/* Headers of VDIF frames, as they are read from a file or received, and changed before they are sent; and a
 * recording of such headers, of which every other part is lost. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "format/vdif.h"
#include "fuzz.h"
#include "stream/rules/vdif_fill.h"

/* Time and validity change, and nothing else. */
static void check_changes(const uint8_t *bytes, size_t n, const struct vdif_header *was)
{
        uint8_t *copy = malloc(n);
        struct vdif_header h, expected = *was;

        expected.seconds = 12345;
        expected.frame = 678;
        expected.invalid = !was->invalid;
        memcpy(copy, bytes, n);
        vdif_set_time(copy, expected.seconds, expected.frame);
        vdif_set_invalid(copy, expected.invalid);
        assert(vdif_read(&h, copy, n) == 0);
        assert(h.seconds == expected.seconds && h.frame == expected.frame && h.invalid == expected.invalid);
        assert(h.epoch == was->epoch && h.frame_bytes == was->frame_bytes && h.channels == was->channels &&
               h.legacy == was->legacy && h.complex == was->complex && h.thread == was->thread &&
               h.station == was->station && h.bits_per_sample == was->bits_per_sample &&
               h.samples_per_second == was->samples_per_second);
        vdif_set_time(copy, was->seconds, was->frame);
        vdif_set_invalid(copy, was->invalid);
        assert(memcmp(copy, bytes, n) == 0);
        free(copy);
}

/* What takes the place of a lost frame is an invalid frame of the recording, whatever comes before it. */
static void check_recording(const uint8_t *bytes, size_t n)
{
        static struct vdif_plan plan;
        static struct vdif_fill fill;
        uint8_t lost[VDIF_HEADER_BYTES];
        struct vdif_header h;
        size_t each = VDIF_HEADER_BYTES;

        if (vdif_plan_begin(&plan, bytes, n) < 0)
                return;
        for (size_t i = 0; i + each <= n && vdif_plan_add(&plan, bytes + i, each); i += each)
                ;
        plan.frames_per_second = plan.header_frames_per_second;
        vdif_fill_begin(&fill, &plan);
        for (size_t i = 0; i + each <= n; i += each) {
                if (bytes[i + each - 1] % 4 > 0) {
                        vdif_fill_look_ahead(&fill, 3, bytes + i);
                        vdif_fill_record(&fill, bytes + i);
                        continue;
                }
                vdif_fill_make(&fill, lost);
                assert(vdif_plan_read(&plan, lost, sizeof lost, &h) && h.invalid);
        }
        assert(fill.unsure <= n / each);
}

bool fuzz_accepts(const uint8_t *bytes, size_t size_bytes)
{
        struct vdif_header h;

        if (vdif_read(&h, bytes, size_bytes) < 0)
                return false;
        assert(h.header_bytes == (h.legacy ? VDIF_LEGACY_HEADER_BYTES : VDIF_HEADER_BYTES));
        assert(h.header_bytes <= size_bytes && h.frame_bytes > h.header_bytes);
        assert(h.frame_bytes <= VDIF_FRAME_MAX_BYTES && h.frame_bytes % 8 == 0);
        assert(h.bits_per_sample >= 1 && h.bits_per_sample <= 32 && h.channels >= 1);
        assert(h.frame < VDIF_FRAMES_PER_SECOND_MAX);
        (void)vdif_frames_per_second(&h);
        check_changes(bytes, size_bytes, &h);
        check_recording(bytes, size_bytes);
        return true;
}
