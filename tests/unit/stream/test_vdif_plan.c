/* The header of every lost frame follows from those that arrived, over threads, seconds and gaps. */
#include "../test.h"

#include <errno.h>

#include "evb/base/util.h"
#include "rules/vdif_plan.h"
#include "vdif_sample.h"

#define THREADS 3u
#define PER_SECOND 10u

static const uint32_t order[THREADS] = {5, 0, 2};

/* Frame `sequence` of a recording that begins at frame 8 of second 100. */
static void make_frame(uint8_t *frame, uint64_t sequence)
{
        uint64_t number = 8 + sequence / THREADS;

        sample_frame(frame, (uint32_t)(100 + number / PER_SECOND), (uint32_t)(number % PER_SECOND),
                     order[sequence % THREADS], 0xaa);
}

static void make_plan(struct vdif_plan *p)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        make_frame(frame, 0);
        assert_int_equal(vdif_plan_begin(p, frame, sizeof frame), 0);
        for (uint64_t i = 1; i < THREADS; i++) {
                make_frame(frame, i);
                assert_true(vdif_plan_add(p, frame, sizeof frame));
        }
        make_frame(frame, THREADS);
        assert_false(vdif_plan_add(p, frame, sizeof frame));
        assert_int_equal(p->n_threads, THREADS);
        p->frames_per_second = PER_SECOND;
}

static void check_filled(const struct vdif_plan *p, uint64_t sequence)
{
        uint8_t expected[SAMPLE_FRAME_BYTES], frame[SAMPLE_FRAME_BYTES] = {};

        make_frame(expected, sequence);
        vdif_set_invalid(expected, true);
        vdif_plan_fill(p, sequence, frame);
        assert_memory_equal(frame, expected, VDIF_HEADER_BYTES);
        for (size_t i = VDIF_HEADER_BYTES; i < sizeof frame; i++)
                assert_int_equal(frame[i], 0);
}

static void any_frame_follows_from_any_other(void **state)
{
        static struct vdif_plan p;
        uint8_t frame[SAMPLE_FRAME_BYTES];

        (void)state;
        make_plan(&p);
        /* Before any has arrived. */
        for (uint64_t i = 0; i < 100; i++)
                check_filled(&p, i);
        for (uint64_t noted = 0; noted < 100; noted += 7) {
                make_frame(frame, noted);
                assert_true(vdif_plan_takes(&p, noted, frame, sizeof frame));
                vdif_plan_note(&p, noted, frame);
                for (uint64_t i = 0; i < 200; i++)
                        check_filled(&p, i);
        }
}

static void a_recording_with_a_gap_is_followed(void **state)
{
        static struct vdif_plan p;
        uint8_t frame[SAMPLE_FRAME_BYTES], filled[SAMPLE_FRAME_BYTES];
        struct vdif_header h;

        (void)state;
        make_plan(&p);
        /* The recording itself lacks time: sequence 30 is of second 500. */
        sample_frame(frame, 500, 3, order[0], 0);
        assert_true(vdif_plan_takes(&p, 30, frame, sizeof frame));
        vdif_plan_note(&p, 30, frame);
        vdif_plan_fill(&p, 31, filled);
        assert_int_equal(vdif_read(&h, filled, sizeof filled), 0);
        assert_int_equal(h.seconds, 500);
        assert_int_equal(h.frame, 3);
        assert_int_equal(h.thread, order[1]);
}

static void without_a_frame_rate_seconds_stay(void **state)
{
        static struct vdif_plan p;
        uint8_t filled[SAMPLE_FRAME_BYTES];
        struct vdif_header h;

        (void)state;
        make_plan(&p);
        p.frames_per_second = 0;
        vdif_plan_fill(&p, 30, filled);
        assert_int_equal(vdif_read(&h, filled, sizeof filled), 0);
        assert_int_equal(h.seconds, 100);
        assert_int_equal(h.frame, 18);
}

static void the_frame_rate_is_learned(void **state)
{
        static struct vdif_plan p;
        uint8_t frame[SAMPLE_FRAME_BYTES];

        (void)state;
        make_plan(&p);
        p.frames_per_second = 0;
        /* In the same second, and before what is known. */
        make_frame(frame, 4);
        assert_true(vdif_plan_takes(&p, 4, frame, sizeof frame));
        assert_int_equal(p.frames_per_second, 0);
        /* A frame that contradicts the order, and one whose number no rate explains. */
        make_frame(frame, 31);
        assert_true(vdif_plan_takes(&p, 30, frame, sizeof frame));
        sample_frame(frame, 101, 30, order[0], 0);
        assert_true(vdif_plan_takes(&p, 30, frame, sizeof frame));
        assert_int_equal(p.frames_per_second, 0);
        /* Two seconds later. */
        make_frame(frame, 50);
        assert_true(vdif_plan_takes(&p, 50, frame, sizeof frame));
        assert_int_equal(p.frames_per_second, PER_SECOND);
        for (uint64_t i = 0; i < 200; i++)
                check_filled(&p, i);
        sample_frame(frame, 500, 3, order[0], 0);
        assert_true(vdif_plan_takes(&p, 60, frame, sizeof frame));
        assert_int_equal(p.frames_per_second, PER_SECOND);
}

static void frames_of_others_are_refused(void **state)
{
        static struct vdif_plan p, before;
        uint8_t frame[SAMPLE_FRAME_BYTES] = {};

        (void)state;
        make_plan(&p);
        before = p;
        assert_false(vdif_plan_takes(&p, 1, frame, sizeof frame));
        sample_frame(frame, 100, 8, 7, 0); /* no such thread */
        assert_false(vdif_plan_takes(&p, 1, frame, sizeof frame));
        sample_frame(frame, 100, 8, order[0], 0);
        frame[8]++; /* its length */
        assert_false(vdif_plan_takes(&p, 1, frame, sizeof frame));
        assert_false(vdif_plan_add(&p, frame, sizeof frame));
        assert_memory_equal(&p, &before, sizeof p);
        assert_int_equal(vdif_plan_begin(&p, frame, 10), -EBADMSG);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(any_frame_follows_from_any_other),
                cmocka_unit_test(a_recording_with_a_gap_is_followed),
                cmocka_unit_test(without_a_frame_rate_seconds_stay),
                cmocka_unit_test(the_frame_rate_is_learned),
                cmocka_unit_test(frames_of_others_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
