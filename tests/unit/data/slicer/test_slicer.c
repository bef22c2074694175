/* Slices of time: which frames are in which, when they close, overlap, and damaged times. */
#include "slicer_bench.h"

SLICER_TEST(frames_of_a_slice_are_one_fragment)
{
        come(COUNTS(510, 599, 600));
        comes(505); /* late, but its slice is open */
        comes(799);
        delivers_all(0);
        comes(800);
        delivers_all(1);
        assert_int_equal(comes(590), ROS_DISCARD);
        assert_int_equal(slicer_counts(b.slicer)->late, 1);
        comes(1250);
        delivers_all(5);
        assert_slice(5, COUNTS(510, 599, 505));
        assert_slice(6, COUNTS(600));
        assert_slice(7, COUNTS(799));
        assert_slice(8, COUNTS(800));
        assert_slice(9, 0, NULL);
        assert_int_equal(slicer_counts(b.slicer)->passed, 6);
}

SLICER_TEST(the_overlap_is_in_both, c.overlap_ns = 20 * TICK_NS)
{
        come(COUNTS(579, 580, 599, 601, 1000));
        delivers_all(3);
        assert_slice(5, COUNTS(579, 580, 599));
        assert_slice(6, COUNTS(580, 599, 601));
        assert_slice(7, 0, NULL);
}

/* The event of slice 5 did not wait for it. Its frames are late, but two of them are in the next event too.
 */
SLICER_TEST(copies_count_apart, c.overlap_ns = 20 * TICK_NS)
{
        struct ros_job job;

        requests(3, 3);
        requests(5, 5);
        requests(6, 6);
        ends(5);
        for (unsigned k = 0; k < 4; k++)
                comes((const uint64_t[]){301, 579, 580, 599}[k]);
        come(COUNTS(601, 1000));
        delivers(false, false);
        while (ros_jobs(b.core, 0, &job, 1) == 1)
                ros_sent(b.core, 0, 1, 0);
        ends(3);
        ends(6);
        assert_int_equal(slicer_counts(b.slicer)->late, 3);
        assert_fields(&ros_counts(b.core)->slices, used, 2, copied, 2);
}

/* A frame whose time leapt ahead, to where the board never came, is not one of after the run. */
SLICER_TEST(an_open_slice_ends_with_the_run, c.bits = 64, c.slice_ns = NS_PER_MS, c.window_ns = 2 * NS_PER_MS,
            c.tick_ns = 1000)
{
        requests(7, 7);
        come(COUNTS(5100, 7900, 10000000, 8200));
        delivers(false, false);
        follows(RUN_ENDED);
        comes(8300);
        delivers(true, false);
        assert_fields(slicer_counts(b.slicer), passed, 1, late, 1, dropped, 1, ahead, 1, left_over, 2,
                      waiting, 0);
}

/* Of the slices 0 to 7, which are due at the stop, the core has room for four at a time. */
TEST(slices_due_before_a_stop_wait_for_room)
{
        struct slicer_config c = standard();

        begin_with_room(&c, 4);
        requests(0, 0);
        for (uint64_t slice = 0; slice <= 10; slice++)
                comes(100 * slice);
        delivers_all(4);
        assert_true(slicer_is_collecting(b.slicer));
        follows(RUN_DRAINING);
        delivers(false, false);
        comes(1250);
        for (uint64_t slice = 0; slice < 4; slice++) {
                assert_true(slicer_is_collecting(b.slicer));
                ends(slice);
                requests(slice + 1, slice + 1);
                delivers(false, false);
        }
        assert_int_equal(b.slices, 8);
        assert_false(slicer_is_collecting(b.slicer));
        end();
}

SLICER_TEST(times_wrap)
{
        come(COUNTS(65510, 65550, 65600, 65900));
        delivers_all(2);
        assert_slice(655, COUNTS(65510, 65550));
        assert_slice(656, COUNTS(65600));
}

SLICER_TEST(a_full_slicer_closes_slices_early, c.frames_max = 3)
{
        come(COUNTS(510, 520, 610));
        assert_int_equal(comes(620), ROS_FULL);
        delivers(false, true);
        assert_int_equal(b.slices, 1);
        assert_int_equal(comes(620), ROS_STORE);
        assert_int_equal(comes(530), ROS_DISCARD);
        assert_slice(5, COUNTS(510, 520));
}

SLICER_TEST(broken_frames_are_counted)
{
        uint64_t counter = 510;
        uint8_t *to;

        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, NULL, 3, &to), ROS_DISCARD);
        slicer_commit(b.slicer, b.now_ns);
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, &counter, 3, &to), ROS_STORE);
        slicer_skip(b.slicer);
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, &counter, EVB_FRAGMENT_MAX_BYTES, &to),
                         ROS_DISCARD);
        slicer_skip(b.slicer);
        b.frames = 3;
        assert_int_equal(slicer_counts(b.slicer)->dropped, 3);
}

/* A frame without room, or of which only a part came. The slice shows that it lacks the frame; so does the
 * next one, if the frame is missing from its overlap. */
SLICER_TEST(a_slice_without_some_of_its_frames_is_marked, c.overlap_ns = 10 * TICK_NS, c.frames_max = 2,
            c.fragment_max_bytes = 2 * (2 * 12 + 8))
{
        uint64_t counter = 730;
        uint8_t *to;

        come(COUNTS(510, 595));
        assert_int_equal(comes(610), ROS_FULL);
        slicer_skip(b.slicer);
        b.frames++;
        delivers(false, true);
        assert_slice(5, COUNTS(510, 595));
        comes(620);
        delivers(false, true);
        assert_slice_is(6, FRAGMENT_TRUNCATED, COUNTS(595, 620));
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, &counter, 8, &to), ROS_STORE);
        slicer_skip(b.slicer);
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, &(uint64_t){795}, 29, &to), ROS_DISCARD);
        slicer_commit(b.slicer, b.now_ns);
        b.frames += 2;
        come(COUNTS(810, 1100));
        delivers(false, false);
        assert_slice_is(7, FRAGMENT_TRUNCATED, COUNTS());
        assert_slice_is(8, FRAGMENT_TRUNCATED, COUNTS(810));
        for (uint64_t event = 0; event < 4; event++)
                ends(event);
        assert_int_equal(ros_counts(b.core)->incomplete, 3);
        delivers(true, true);
        assert_slice(9, COUNTS());
}

/* A slice closes for lack of room, before a frame of it, which is late then. */
SLICER_TEST_EACH(a_slice_that_closes_before_a_waiting_frame_is_marked, in_overlap, 2,
                 c.overlap_ns = 10 * TICK_NS, c.frames_max = 2)
{
        uint64_t last = in_overlap ? 595 : 530;

        come(COUNTS(510, 520));
        assert_int_equal(comes(last), ROS_FULL);
        delivers(false, true);
        assert_slice_is(5, FRAGMENT_TRUNCATED, COUNTS(510, 520));
        assert_int_equal(comes(last), ROS_DISCARD);
        come(COUNTS(610, 620));
        assert_int_equal(comes(710), ROS_FULL);
        delivers(false, true);
        assert_slice_is(6, in_overlap ? FRAGMENT_TRUNCATED : FRAGMENT_OK, COUNTS(610, 620));
        assert_fields(slicer_counts(b.slicer), late, 1, dropped, 0);
}

/* The next slice at the same place in the ring, and those of a restarted board, lack nothing. */
SLICER_TEST(only_the_slice_of_a_lost_frame_is_marked, c.slices_max = 4, c.fragment_max_bytes = 2 * (12 + 8))
{
        comes(2000);
        assert_int_equal(comes(2050), ROS_DISCARD);
        /* Its time goes back. */
        while (comes(1900) == ROS_DISCARD)
                b.now_ns += 1000;
        comes(2000);
        assert_int_equal(comes(2110), ROS_STORE);
        assert_int_equal(comes(2120), ROS_DISCARD);
        for (uint64_t count = 2200; count < 2900; count += 100) {
                comes(count);
                delivers(false, false);
        }
        assert_slice(19, COUNTS(1900));
        assert_slice(20, COUNTS(2000));
        assert_slice_is(21, FRAGMENT_TRUNCATED, COUNTS(2110));
        assert_slice(22, COUNTS(2200));
        assert_slice(25, COUNTS(2500));
}

/* A damaged time: slices of the present stay open. */
TEST(a_board_may_leap_once)
{
        struct slicer_config c = standard();

        c.bits = 64;
        c.slice_ns = NS_PER_MS;
        c.window_ns = 2 * NS_PER_MS;
        c.tick_ns = 1000;
        begin(&c);
        comes(5500);
        assert_int_equal(comes(10005500), ROS_STORE);
        delivers_all(0);
        assert_int_equal(comes(5600), ROS_STORE);
        comes(8000);
        delivers_all(1);
        assert_slice(5, COUNTS(5500, 5600));
        /* The board goes on from there. */
        comes(20000000);
        delivers_all(1);
        comes(20000010);
        delivers(false, false);
        assert_true(b.slices > 1000);
        end();
        /* The clock agrees. */
        begin(&c);
        comes(5500);
        b.now_ns += 10 * NS_PER_S;
        comes(10005500);
        delivers(false, false);
        assert_true(b.slices > 1000);
        end();
}

/* A board may mark a time that it does not know in this way. */
SLICER_TEST(impossible_times_open_no_slice, c.bits = 64)
{
        assert_int_equal(comes(UINT64_MAX), ROS_DISCARD);
        assert_int_equal(comes(UINT64_MAX / TICK_NS), ROS_DISCARD);
        delivers(true, false);
        assert_int_equal(b.slices, 0);
        assert_int_equal(comes(510), ROS_STORE);
        assert_int_equal(comes(UINT64_MAX), ROS_DISCARD);
        assert_int_equal(slicer_counts(b.slicer)->dropped, 3);
        comes(800);
        delivers(false, false);
        assert_slice(5, COUNTS(510));
}
