/* Joined frames at the beginning and the end of a run, and at a reset of the counters. */
#include "joiner_bench.h"

static const struct {
        const char *fragments;
        bool cut, passes; /* whether its first frame came before; whether it becomes an event */
} firsts[] = {{"join", false, false},
              {"join", true, false},
              {"join index 4:8", false, true},
              {"join index 4:8", true, false},
              {"join count 3", false, true},
              {"join count 3", true, false},
              {"join last 5:8", false, false},
              {"join last 5:8", true, false},
              {"join last 5:8 index 4:8", false, true},
              {"join last 5:8 index 4:8", true, false}};

/* The board sends on when a run begins: it may have sent earlier frames of the first trigger before. */
JOIN_TEST_EACH(the_first_fragment_of_a_run_is_whole_or_left_over, i, ARRAY_SIZE(firsts), firsts[i].fragments,
               32, .begins_within = true)
{
        bool cut = firsts[i].cut, passes = firsts[i].passes;

        for (uint64_t n = 7; n < 10; n++)
                send_all(n, n == 7 && cut ? "bC" : "abC");
        delivers_after(WITHIN_NS, passes ? 3 : 2);
        assert_int_equal(joiner_counts(b.joiner)->left_over, passes ? 0 : cut ? 2 : 3);
        for (uint64_t n = passes ? 7 : 8; n < 10; n++)
                builds(n, 0, "abc");
        assert_int_equal(ros_counts(b.core)->incomplete, 0);
}

static void stops(void)
{
        follows(RUN_DRAINING, 0);
}

/* The board sends when the ROS connects to it. A trigger box sends only when the run has begun. */
JOIN_TEST_EACH(the_first_fragment_is_whole_or_left_over, i, 8, "join", 32, .leads = i & 1, .first_number = 7)
{
        bool leads = i & 1, running = i & 2, first = i & 4, passes = first || (running && !leads);

        if (running)
                follows(RUN_RUNNING, 0);
        for (uint64_t n = first ? 7 : 8; n < 10; n++) {
                for (uint8_t k = 0; k < 2; k++) {
                        joiner_begin_early(b.joiner, b.core);
                        send_all(n, k == 0 ? "a" : "b");
                }
        }
        delivers_after(WITHIN_NS, passes ? 2 + first : 1);
        assert_int_equal(joiner_counts(b.joiner)->left_over, passes ? 0 : 2);
        for (uint64_t n = passes ? first ? 7 : 8 : 9; n < 10; n++)
                builds(n, 0, "ab");
}

/* Also if the last one is still arriving. */
JOIN_TEST_EACH(frames_from_before_a_reset_are_in_no_event, arriving, 2, "join count 2", 16)
{
        follows(RUN_RUNNING, 1);
        for (uint64_t k = 0; k < 2; k++) {
                send_all(k, "ab");
                gives(k, "ab");
        }
        send_all(0, "x");
        if (arriving)
                assert_int_equal(frame_begins(1), ROS_STORE);
        follows(RUN_RUNNING, 2);
        delivers(0);
        if (arriving)
                frame_ends();
        delivers(0);
        assert_int_equal(joiner_counts(b.joiner)->left_over, 1 + arriving);
        for (uint64_t k = 0; k < 2; k++) {
                send_all(k, "cd");
                gives(k, "cd");
        }
        assert_fields(ros_counts(b.core), used, 4, duplicate, 0, impossible, 0, late, 0);
}

/* The board sends on after the last trigger: what finds no room then is in no event, and nothing is lost. */
JOIN_TEST(frames_without_room_after_the_last_trigger_are_left_over, "join", 16)
{
        send_all(0, "a");
        send_all(1, "a");
        gives(0, "a");
        stops();
        for (size_t i = 0; i < FRAMES_MAX - 1; i++)
                send_all(1, "a");
        finds_no_room(1);
        assert_false(has_reason("did not fit"));
        assert_int_equal(joiner_counts(b.joiner)->left_over, 1);
        /* The event of trigger 0 lacks this one. */
        finds_no_room(0);
        assert_true(has_reason("did not fit into ros.buffer-size, and are in no event: 1"));
}

/* Fragments that began before a stop end, also if the board sends on; later ones are not waited for. */
JOIN_TEST(fragments_that_began_before_a_stop_end, "join count 3", 16)
{
        assert_false(joiner_is_collecting(b.joiner));
        send_all(0, "a");
        /* Also while the next frame of the fragment arrives. */
        assert_int_equal(frame_begins(0), ROS_STORE);
        assert_true(joiner_is_collecting(b.joiner));
        frame_ends();
        stops();
        delivers_with(false, false, 0);
        for (uint64_t k = 1; k <= 8; k++) {
                b.now_ns += WITHIN_NS / 8;
                send_all(k, "a");
                assert_true(joiner_is_collecting(b.joiner));
                delivers_with(false, false, k == 8);
        }
        assert_false(joiner_is_collecting(b.joiner));
        assert_int_equal(joiner_counts(b.joiner)->waiting, 8);
}

/* The board sends on after the end of the run, of which the ROS may learn without a stop before. */
JOIN_TEST_EACH(the_end_of_a_run_divides_no_fragment, sees_stop, 2, "join count 3", 16)
{
        send_all(0, "aaa");
        gives(0, "aaa");
        if (sees_stop)
                stops();
        delivers(0);
        send_all(1, "a");
        follows(RUN_ENDED, 0);
        for (int i = 0; i < 2; i++) {
                delivers(0);
                send_all(1, "a");
        }
        send_all(2, "a");
        delivers(1);
        delivers_after(WITHIN_NS, 1);
        assert_fields(ros_counts(b.core), duplicate, 0, left_over, 2);
}

/* No index shows that a frame of an event is late. The ROS may leave before the time within which the frame's
 * fragment ends. */
JOIN_TEST(a_late_frame_of_an_event_counts_at_the_end_of_the_run, "join last 5:8", 16)
{
        send_all(0, "acD");
        gives(0, "acd");
        follows(RUN_ENDED, 1);
        send_all(0, "b");
        send_all(1, "a");
        delivers(1);
        assert_fields(ros_counts(b.core), used, 1, duplicate, 1, left_over, 0);
        assert_int_equal(joiner_counts(b.joiner)->waiting, 1);
}

/* The board sends without pause, so that the next frame has always begun. */
JOIN_TEST_EACH(a_stop_does_not_wait_for_a_fragment_with_a_frame_half_sent, idle, 2, "join last 5:8", 16)
{
        unsigned k;

        assert_int_equal(frame_begins(7), ROS_STORE);
        stops();
        delivers(0);
        for (k = 1; joiner_is_collecting(b.joiner) || k == 1; k++) {
                assert_true(k < 8 * STOP_NS / WITHIN_NS + 4);
                b.now_ns += WITHIN_NS / 8;
                frame_ends();
                assert_int_equal(frame_begins(7), ROS_STORE);
                joiner_deliver(b.joiner, b.now_ns, idle, false, b.core, b.buffer);
        }
        assert_true(k > 8 * STOP_NS / WITHIN_NS);
        assert_int_equal(joiner_counts(b.joiner)->passed, k - 1);
        frame_ends();
}

/* The board never sends the flag, and no frame ends the fragment, whether or not evb waits for its frames. */
JOIN_TEST_EACH(a_stop_does_not_wait_for_a_fragment_without_end, idle, 2, "join last 5:8", 16)
{
        send_all(7, "a");
        delivers(0);
        stops();
        delivers(0);
        for (unsigned k = 1; k <= 8 * STOP_NS / WITHIN_NS; k++) {
                b.now_ns += WITHIN_NS / 8;
                assert_true(joiner_is_collecting(b.joiner));
                assert_true(joiner_deadline_ns(b.joiner) <= b.now_ns + WITHIN_NS);
                send_all(7, "a");
                delivers_with(idle, false, k == 8 * STOP_NS / WITHIN_NS);
        }
        /* The board sends on, which begins another fragment. */
        send_all(7, "a");
        delivers(0);
        assert_false(joiner_is_collecting(b.joiner));
        assert_int_equal(joiner_counts(b.joiner)->waiting, 1);
}

TESTS_BETWEEN(NULL, teardown)
