/* The beginning of a recording shows its threads and how many frames share a time, wherever it begins and
 * whatever is missing. */
#include "../test.h"

#include "stream/rules/vdif_fill.h"
#include "vdif_sample.h"

static struct vdif_plan p;

static bool add(uint32_t seconds, uint32_t number, uint32_t thread)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        sample_frame(frame, seconds, number, thread, 0);
        if (p.frame_bytes == 0)
                assert_int_equal(vdif_plan_begin(&p, frame, sizeof frame), 0);
        return vdif_plan_add(&p, frame, sizeof frame);
}

static int begin(void **state)
{
        memset(&p, 0, sizeof p);
        return 0;
}

TEST_WITH(threads_are_in_their_order, begin, NULL)
{
        static const uint32_t order[] = {5, 0, 2};
        uint32_t i = 0;

        while (add(100 + i / 6, i / 3 % 2, order[i % 3]))
                i++;
        assert_int_equal(i, 24);
        assert_int_equal(p.n_threads, 3);
        for (i = 0; i < 3; i++)
                assert_int_equal(p.threads[i].thread, order[i]);
        assert_int_equal(vdif_plan_frames_at_a_time(&p), 3);
        assert_int_equal(p.last_number, 1);
}

TEST_WITH(a_recording_may_begin_within_a_set, begin, NULL)
{
        uint32_t i = 3;

        while (add(100, i / 4, i % 4))
                i++;
        assert_int_equal(p.n_threads, 4);
        assert_int_equal(p.threads[0].thread, 3);
        assert_int_equal(vdif_plan_frames_at_a_time(&p), 4);
}

TEST_WITH(the_first_set_may_miss_a_thread, begin, NULL)
{
        assert_true(add(100, 0, 0));
        for (uint32_t i = 2; add(100, i / 2, i % 2); i++)
                ;
        assert_int_equal(p.n_threads, 2);
        assert_int_equal(vdif_plan_frames_at_a_time(&p), 2);
}

TEST_WITH(frames_of_a_thread_may_follow_each_other, begin, NULL)
{
        for (uint32_t i = 0; add(100, i / 16 * 2 + i % 2, i / 2 % 8); i++)
                ;
        assert_int_equal(p.n_threads, 8);
        assert_int_equal(vdif_plan_frames_at_a_time(&p), 8);
}

TEST_WITH(there_may_be_as_many_threads_as_numbers, begin, NULL)
{
        uint32_t i = 0;

        while (add(100, i / 1024, i % 1024))
                i++;
        assert_int_equal(i, 8 * 1024);
        assert_int_equal(p.n_threads, 1024);
        assert_int_equal(vdif_plan_frames_at_a_time(&p), 1024);
}

TEST_WITH(fillers_and_damaged_frames_show_nothing, begin, NULL)
{
        uint8_t filler[SAMPLE_FRAME_BYTES], damaged[SAMPLE_FRAME_BYTES] = {};
        uint32_t i = 0;

        sample_frame(filler, 0, 0, 0, 0);
        vdif_set_invalid(filler, true);
        assert_int_equal(vdif_plan_begin(&p, filler, sizeof filler), 0);
        assert_true(vdif_plan_add(&p, filler, sizeof filler));
        /* Nothing better is known. */
        assert_int_equal(p.n_threads, 1);
        assert_int_equal(vdif_plan_frames_at_a_time(&p), 1);
        do {
                assert_true(vdif_plan_add(&p, filler, sizeof filler));
                assert_true(vdif_plan_add(&p, damaged, sizeof damaged));
        } while (add(100, i / 2, 4 + i % 2) && ++i);
        assert_int_equal(i, 16);
        assert_int_equal(p.n_threads, 2);
        assert_int_equal(p.threads[0].thread, 4);
        assert_int_equal(vdif_plan_frames_at_a_time(&p), 2);
}

TEST_WITH(damaged_headers_are_told_apart, begin, NULL)
{
        uint8_t frame[SAMPLE_FRAME_BYTES] = {};
        struct vdif_header h;

        (void)add(100, 8, 5);
        assert_false(vdif_plan_read(&p, frame, sizeof frame, &h));
        sample_frame(frame, 100, 8, 700, 0);
        assert_true(vdif_plan_read(&p, frame, sizeof frame, &h));
        assert_int_equal(h.thread, 700);
        frame[8]++; /* its length */
        assert_false(vdif_plan_read(&p, frame, sizeof frame, &h));
        assert_int_equal(vdif_plan_begin(&p, frame, 10), -EBADMSG);
}

static struct vdif_missing missing;

static void arrive(uint32_t seconds, uint32_t number, uint32_t thread)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        sample_frame(frame, seconds, number, thread, 0);
        vdif_missing_record(&missing, &p, frame);
}

TEST_WITH(missing_frames_are_counted_without_sequence_numbers, begin, NULL)
{
        uint8_t filler[SAMPLE_FRAME_BYTES];

        memset(&missing, 0, sizeof missing);
        assert_true(add(100, 95, 1023));
        /* Two threads with 100 frames a second each; the recording may begin anywhere. */
        for (uint32_t i = 95; i < 310; i++) {
                for (uint32_t thread = 1022; thread < 1024; thread++) {
                        bool lost = (i == 97 && thread == 1022) || i == 200 || (i >= 150 && i < 152);

                        if (!lost)
                                arrive(100 + i / 100, i % 100, thread);
                }
        }
        assert_int_equal(vdif_missing_frames(&missing, &p), 1 + 2 + 4);
        /* A frame of long ago may be a copy, so it hides no loss. */
        arrive(100, 97, 1022);
        assert_int_equal(vdif_missing_frames(&missing, &p), 7);
        assert_int_equal(missing.out_of_order, 1);
        /* Frames that others overtook, one of them of the second before. */
        arrive(103, 99, 1023);
        arrive(104, 2, 1023);
        assert_int_equal(vdif_missing_frames(&missing, &p), 7 + 89 + 2);
        arrive(104, 1, 1023);
        arrive(103, 98, 1023);
        arrive(103, 98, 1023);
        assert_int_equal(vdif_missing_frames(&missing, &p), 7 + 89);
        assert_fields(&missing, out_of_order, 3, duplicate, 1);
        memset(&missing, 0, sizeof missing);
        for (uint32_t i = 90; i < 120; i++)
                arrive(100 + i / 100, i % 100, 1022);
        sample_frame(filler, 0, 0, 0, 0);
        vdif_set_invalid(filler, true);
        vdif_missing_record(&missing, &p, filler);
        filler[8]++;
        vdif_missing_record(&missing, &p, filler);
        assert_int_equal(vdif_missing_frames(&missing, &p), 0);
        /* Whole seconds, of one thread. */
        arrive(103, 19, 1022);
        assert_int_equal(vdif_missing_frames(&missing, &p), 199);
        /* Copies, and frames before the first one, do not hide that a frame is missing. */
        memset(&missing, 0, sizeof missing);
        arrive(100, 5, 4);
        arrive(100, 5, 4);
        arrive(100, 4, 4);
        for (uint32_t i = 6; i < 200; i++) {
                if (i != 100)
                        arrive(100, i, 4);
                if (i > 70 && i != 100 && i != 164)
                        arrive(100, i - 64, 4);
        }
        assert_int_equal(vdif_missing_frames(&missing, &p), 1);
        assert_fields(&missing, out_of_order, 0, duplicate, 2 + 129 - 2);
        /* It arrives twice, in time. */
        memset(&missing, 0, sizeof missing);
        arrive(100, 5, 4);
        arrive(100, 70, 4);
        arrive(100, 6, 4);
        arrive(100, 6, 4);
        assert_fields(&missing, out_of_order, 1, duplicate, 1);
        assert_int_equal(vdif_missing_frames(&missing, &p), 63);
}
