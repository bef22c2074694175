/* Slices of time: which frames are in which, when they close, overlap, and damaged times. */
#include "slicer_bench.h"

TEST(frames_of_a_slice_are_one_fragment)
{
        struct slicer_config c = standard();
        struct bench b;

        begin(&b, &c);
        comes(&b, 510);
        comes(&b, 599);
        comes(&b, 600);
        comes(&b, 505); /* late, but its slice is open */
        comes(&b, 799);
        delivers(&b, false, false);
        assert_int_equal(b.slices, 0);
        comes(&b, 800);
        delivers(&b, false, false);
        assert_int_equal(b.slices, 1);
        assert_int_equal(comes(&b, 590), ROS_DISCARD);
        assert_int_equal(slicer_counts(b.slicer)->late, 1);
        comes(&b, 1250);
        delivers(&b, false, false);
        assert_int_equal(b.slices, 5);
        assert_slice(&b, 5, COUNTS(510, 599, 505));
        assert_slice(&b, 6, COUNTS(600));
        assert_slice(&b, 7, COUNTS(799));
        assert_slice(&b, 8, COUNTS(800));
        assert_slice(&b, 9, 0, NULL);
        assert_int_equal(slicer_counts(b.slicer)->passed, 6);
        end(&b);
}

TEST(the_overlap_is_in_both)
{
        struct slicer_config c = standard();
        struct bench b;

        c.overlap_ns = 20 * TICK_NS;
        begin(&b, &c);
        comes(&b, 579);
        comes(&b, 580);
        comes(&b, 599);
        comes(&b, 601);
        comes(&b, 1000);
        delivers(&b, false, false);
        assert_int_equal(b.slices, 3);
        assert_slice(&b, 5, COUNTS(579, 580, 599));
        assert_slice(&b, 6, COUNTS(580, 599, 601));
        assert_slice(&b, 7, 0, NULL);
        assert_int_equal(slicer_counts(b.slicer)->copied, 2);
        end(&b);
}

TEST(times_wrap)
{
        struct slicer_config c = standard();
        struct bench b;

        begin(&b, &c);
        comes(&b, 65510);
        comes(&b, 65550);
        comes(&b, 65600);
        comes(&b, 65900);
        delivers(&b, false, false);
        assert_int_equal(b.slices, 2);
        assert_slice(&b, 655, COUNTS(65510, 65550));
        assert_slice(&b, 656, COUNTS(65600));
        end(&b);
}

TEST(a_full_slicer_closes_slices_early)
{
        struct slicer_config c = standard();
        struct bench b;

        c.frames_max = 3;
        begin(&b, &c);
        comes(&b, 510);
        comes(&b, 520);
        comes(&b, 610);
        assert_int_equal(comes(&b, 620), ROS_FULL);
        delivers(&b, false, true);
        assert_int_equal(b.slices, 1);
        assert_int_equal(comes(&b, 620), ROS_STORE);
        assert_int_equal(comes(&b, 530), ROS_DISCARD);
        assert_slice(&b, 5, COUNTS(510, 520));
        end(&b);
}

TEST(broken_frames_are_counted)
{
        struct slicer_config c = standard();
        uint64_t counter = 510;
        struct bench b;
        uint8_t *to;

        begin(&b, &c);
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, NULL, 3, &to), ROS_DISCARD);
        slicer_commit(b.slicer, b.now_ns);
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, &counter, 3, &to), ROS_STORE);
        slicer_skip(b.slicer);
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, &counter, EVB_FRAGMENT_MAX_BYTES, &to),
                         ROS_DISCARD);
        slicer_skip(b.slicer);
        b.frames = 3;
        assert_int_equal(slicer_counts(b.slicer)->dropped, 3);
        end(&b);
}

/* A damaged time: slices of the present stay open. */
TEST(a_board_may_leap_once)
{
        struct slicer_config c = standard();
        struct bench b;

        c.bits = 64;
        c.slice_ns = NS_PER_MS;
        c.window_ns = 2 * NS_PER_MS;
        c.tick_ns = 1000;
        begin(&b, &c);
        comes(&b, 5500);
        assert_int_equal(comes(&b, 10005500), ROS_STORE);
        delivers(&b, false, false);
        assert_int_equal(b.slices, 0);
        assert_int_equal(comes(&b, 5600), ROS_STORE);
        comes(&b, 8000);
        delivers(&b, false, false);
        assert_int_equal(b.slices, 1);
        assert_slice(&b, 5, COUNTS(5500, 5600));
        /* The board goes on from there. */
        comes(&b, 20000000);
        delivers(&b, false, false);
        assert_int_equal(b.slices, 1);
        comes(&b, 20000010);
        delivers(&b, false, false);
        assert_true(b.slices > 1000);
        end(&b);
        /* The clock agrees. */
        begin(&b, &c);
        comes(&b, 5500);
        b.now_ns += 10 * NS_PER_S;
        comes(&b, 10005500);
        delivers(&b, false, false);
        assert_true(b.slices > 1000);
        end(&b);
}

/* A board may mark a time that it does not know in this way. */
TEST(impossible_times_open_no_slice)
{
        struct slicer_config c = standard();
        struct bench b;

        c.bits = 64;
        begin(&b, &c);
        assert_int_equal(comes(&b, UINT64_MAX), ROS_DISCARD);
        assert_int_equal(comes(&b, UINT64_MAX / TICK_NS), ROS_DISCARD);
        delivers(&b, true, false);
        assert_int_equal(b.slices, 0);
        assert_int_equal(comes(&b, 510), ROS_STORE);
        assert_int_equal(comes(&b, UINT64_MAX), ROS_DISCARD);
        assert_int_equal(slicer_counts(b.slicer)->dropped, 3);
        comes(&b, 800);
        delivers(&b, false, false);
        assert_slice(&b, 5, COUNTS(510));
        end(&b);
}
