/* Boards that are silent, late, send in bursts, or begin again: which slices close, and where each of their
 * frames ends. */
#include "slicer_bench.h"

#define WIDE_TEST_EACH(name, i, n) SLICER_TEST_EACH(name, i, n, c.bits = 64, c.frames_max = 10000)
#define WIDE_TEST(name) WIDE_TEST_EACH(name, once, 1)

static uint64_t used(void)
{
        return ros_counts(b.core)->slices.used;
}

/* The events of slices [from, until) take what was sent; returns the number of frames in their fragments. */
static uint64_t build(uint64_t from, uint64_t until)
{
        uint64_t frames = 0;

        for (uint64_t slice = from; slice < until; slice++) {
                struct ros_job job;

                requests(slice, slice);
                if (ros_jobs(b.core, 0, &job, 1) == 1)
                        frames += job.job.chunk.fragment_bytes / 12;
                ends(slice);
        }
        return frames;
}

/* Time passes in small turns, without data. */
static void waits(uint64_t ns)
{
        for (uint64_t until_ns = b.now_ns + ns; b.now_ns < until_ns;) {
                b.now_ns += MIN(until_ns - b.now_ns, UINT64_C(100));
                delivers(true, false);
        }
}

/* Nothing shows that the board has no frames after its last one. */
SLICER_TEST(a_silent_board_has_no_slices)
{
        delivers(true, false);
        assert_true(slicer_deadline_ns(b.slicer) == UINT64_MAX);
        come(COUNTS(350, 550));
        assert_int_equal(slicer_deadline_ns(b.slicer), b.now_ns + 20000);
        b.now_ns += 19999;
        delivers(true, false);
        assert_int_equal(b.slices, 0);
        b.now_ns++;
        delivers_all(0);
        delivers(true, false);
        assert_int_equal(b.slices, 3);
        assert_true(slicer_deadline_ns(b.slicer) == UINT64_MAX);
        b.now_ns += NS_PER_S;
        delivers(true, false);
        assert_int_equal(b.slices, 3);
        /* Its own time shows it. */
        comes(6550);
        delivers(true, false);
        assert_int_equal(b.slices, 60);
}

/* A window that is longer than the silence counts. */
SLICER_TEST(a_silent_board_has_its_last_slice, c.idle_max_ns = 500)
{
        comes(550);
        assert_int_equal(slicer_deadline_ns(b.slicer), b.now_ns + 2500);
        b.now_ns += 2500;
        delivers(true, false);
        assert_int_equal(b.slices, 1);
        assert_slice(5, COUNTS(550));
}

/* It stops within a frame: what came before is passed, and the frame's own slice waits for its end. */
WIDE_TEST(a_board_may_stop_within_a_frame)
{
        uint64_t counter = 650, count = counter;
        uint8_t *to;

        come(COUNTS(550, 610));
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, &counter, sizeof count, &to), ROS_STORE);
        waits(40000);
        assert_int_equal(b.slices, 1);
        memcpy(to, &count, sizeof count);
        slicer_commit(b.slicer, b.now_ns);
        b.frames++;
        waits(20000);
        assert_int_equal(b.slices, 2);
        assert_slice(6, COUNTS(610, 650));
}

/* A board that sends every 3 us what it had in that time, with a window of 2 us. Then it holds everything
 * back for longer. */
WIDE_TEST(bursts_and_pauses_lose_nothing)
{
        static const uint64_t pauses_ns[] = {5000, 10000, 19000};
        uint64_t count = 1, sent = 0;

        for (int burst = 0; burst < 60; burst++) {
                uint64_t held_ns = burst % 20 == 19 ? pauses_ns[burst / 20] : 3000;

                waits(held_ns);
                for (uint64_t until = count + held_ns / TICK_NS; count < until; count += 10, sent++)
                        assert_int_equal(comes(count), ROS_STORE);
                delivers(false, false);
        }
        waits(30000);
        assert_int_equal(slicer_counts(b.slicer)->passed, sent);
        assert_int_equal(build(0, count / SLICE_TICKS + 1), sent);
        assert_int_equal(used(), sent);
        assert_int_equal(ros_counts(b.core)->restarts, 0);
}

/* It holds everything back for longer than its slices wait: only the rest of its last slice is late. */
WIDE_TEST(a_long_pause_costs_the_last_slice)
{
        for (uint64_t count = 0; count <= 550; count += 10)
                comes(count);
        waits(50000);
        for (uint64_t count = 560; count < 5560; count += 10)
                assert_int_equal(comes(count), count < 600 ? ROS_DISCARD : ROS_STORE);
        waits(50000);
        assert_int_equal(slicer_counts(b.slicer)->late, 4);
        assert_int_equal(build(0, 60), 552);
        assert_int_equal(used(), 552);
        assert_int_equal(slicer_counts(b.slicer)->restarts, 0);
}

/* Late frames in a row, at once or for long: their times go up to the present, and they are late. */
static const struct {
        uint64_t frames, first, step, turn_ns;
} rows[] = {{16, 0, 10, 0}, {64, 100, 10, 0}, {1000, 0, 4, 0}, {1000, 2, 4, 10}, {200, 0, 20, 100}};

WIDE_TEST_EACH(a_row_of_late_frames_is_late, k, ARRAY_SIZE(rows))
{
        uint64_t late = 0, slices;

        come(COUNTS(50, 4550));
        delivers(false, false);
        slices = b.slices;
        assert_int_equal(slices, 43);
        assert_int_equal(build(0, slices), 1);
        for (uint64_t i = 0; i < rows[k].frames; i++) {
                late += comes(rows[k].first + i * rows[k].step) == ROS_DISCARD;
                b.now_ns += rows[k].turn_ns;
                delivers(false, false);
        }
        assert_int_equal(late, rows[k].frames);
        assert_fields(slicer_counts(b.slicer), late, late, restarts, 0);
        assert_int_equal(b.slices, slices);
        assert_int_equal(comes(4560), ROS_STORE);
        comes(5000);
        delivers(false, false);
        assert_int_equal(build(slices, 47), 2);
        assert_int_equal(used(), 3);
}

/* Events went on without it. It returns in step: what nobody waits for any longer is late, and not passed. */
WIDE_TEST(a_silent_board_returns_in_step)
{
        comes(550);
        waits(20000);
        assert_int_equal(build(5, 61), 1);
        for (uint64_t count = 610; count < 6550; count += 10)
                comes(count);
        delivers(false, false);
        assert_int_equal(slicer_counts(b.slicer)->late, (6100 - 610) / 10);
        assert_int_equal(b.slices, 1 + 2);
        waits(20000);
        assert_int_equal(build(61, 66), 45);
        assert_int_equal(used(), 46);
        assert_int_equal(ros_counts(b.core)->late + ros_counts(b.core)->restarts, 0);
}

/* It returns after more slices than can be open. */
SLICER_TEST(a_board_may_be_silent_for_long, c.bits = 32)
{
        comes(550);
        delivers(true, false);
        /* A damaged time: no such time has passed. */
        assert_int_equal(comes(550 + 1200000000), ROS_DISCARD);
        assert_int_equal(slicer_counts(b.slicer)->dropped, 1);
        b.now_ns += 500 * NS_PER_MS;
        delivers(true, false);
        assert_int_equal(b.slices, 1);
        assert_int_equal(comes(550 + 50000000), ROS_STORE);
        assert_int_equal(comes(850 + 50000000), ROS_STORE);
        delivers(false, false);
        assert_slice(500005, COUNTS(550 + 50000000));
        assert_int_equal(slicer_counts(b.slicer)->restarts, 0);
}

/* Its clock begins at 0 while time goes on as before. What it sent before is passed, and no slice twice. */
WIDE_TEST(a_board_that_begins_again_opens_other_slices)
{
        uint64_t count;

        come(COUNTS(50010, 50460));
        for (count = 0; slicer_counts(b.slicer)->restarts == 0; count += 10) {
                comes(count);
                waits(10 * TICK_NS);
                assert_true(count < 5000);
        }
        /* The last of the frames of 20 us. */
        assert_int_equal(count, 2010);
        assert_fields(slicer_counts(b.slicer), late, 200, passed, 2, dropped, 0);
        assert_int_equal(build(500, 505), 2);
}

/* The slices after a restart have the numbers of earlier ones: none of their frames counts as used. */
WIDE_TEST(slices_are_used_once)
{
        uint64_t before;

        for (uint64_t count = 0; count < 100000; count += 100) {
                comes(count);
                waits(1000);
        }
        waits(20000);
        before = slicer_counts(b.slicer)->passed;
        assert_int_equal(build(0, 1000), before);
        for (uint64_t count = 0; count < 4000; count += 10) {
                comes(count);
                waits(100);
        }
        waits(20000);
        assert_fields(slicer_counts(b.slicer), restarts, 1, late, 200);
        assert_int_equal(ros_counts(b.core)->slices.dropped, 200);
        assert_int_equal(used(), before);
        assert_true(ros_is_out_of_step(b.core));
}

/* The frame with which it begins again is too long. */
SLICER_TEST(times_wrap_after_a_restart)
{
        uint64_t counter = 199100 & 0xffff;
        uint8_t *to;

        for (uint64_t count = 0; count < 210000; count += 10000) {
                comes(count);
                delivers(false, false);
        }
        for (uint64_t k = 0; k < 63; k++)
                assert_int_equal(comes(199000 + k), ROS_DISCARD);
        b.now_ns += 20000;
        assert_int_equal(slicer_arrive(b.slicer, b.now_ns, &counter, EVB_FRAGMENT_MAX_BYTES, &to),
                         ROS_DISCARD);
        slicer_commit(b.slicer, b.now_ns);
        b.frames++;
        assert_int_equal(slicer_counts(b.slicer)->restarts, 1);
        assert_int_equal(comes(200010), ROS_STORE);
        assert_int_equal(slicer_counts(b.slicer)->late, 63);
}
