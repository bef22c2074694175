/* The frames make the triggers: what the DFM makes of the numbers that ROSs announce. */
#include "dfm_lead_driver.h"

DFM_TEST(a_number_is_taken_when_all_ross_have_it, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        have_range(&t, 0, 8, 3);
        assert_takes(&t, "");
        assert_int_equal(dfm_deadline_ns(t.dfm), t.now_ns + 5 * NS_PER_MS); /* HaveAck */
        have_one(&t, 1, 8);
        assert_takes(&t, "8");
        /* 9 will not come from this ROS. */
        have_one(&t, 1, 10);
        assert_takes(&t, "9 10");
        assert_int_equal(dfm_counts(t.dfm)->announced.confirmed, 3);
        assert_int_equal(offered(&t)->missing, 0);
        finish(&t);
}

DFM_TEST(a_number_waits_for_the_window_at_most, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        have_one(&t, 0, 9);
        dfm_pass_ns(&t, WINDOW_NS / 2);
        have_one(&t, 0, 8); /* late */
        assert_takes(&t, "");
        dfm_pass_ns(&t, WINDOW_NS / 2 - 1);
        assert_takes(&t, "");
        assert_int_equal(dfm_deadline_ns(t.dfm), t.now_ns + 1);
        dfm_pass_ns(&t, 1);
        assert_takes(&t, "8 9");
        /* What others have of it adds no event. */
        have_range(&t, 1, 8, 2);
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "");
        assert_int_equal(offered(&t)->repeated, 0);
        finish(&t);
}

DFM_TEST(a_late_number_becomes_an_event_once, frames_config(2, 64))
{
        start_after(&t, &c, 6007);
        have_one(&t, 0, 6010);
        have_one(&t, 1, 6010);
        assert_takes(&t, "6010");
        have_one(&t, 0, 6009);
        have_one(&t, 1, 6009);
        assert_takes(&t, "6009");
        have_one(&t, 1, 6009);
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "");
        /* 6008 was skipped. */
        assert_int_equal(offered(&t)->missing, 1);
        have_one(&t, 1, 1008);
        assert_takes(&t, "");
        assert_int_equal(dfm_counts(t.dfm)->announced.late, 1);
        finish(&t);
}

DFM_TEST(the_run_begins_with_the_first_number_of_all, frames_config(2, 64))
{
        start(&t, &c);
        have_range(&t, 0, 50, 10);
        assert_takes(&t, "");
        have_range(&t, 1, 55, 3);
        assert_takes(&t, "");
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "55 56 57 58 59");
        assert_int_equal(offered(&t)->not_taken, 5);
        assert_int_equal(offered(&t)->resets, 0);
        finish(&t);
}

/* The first number of a ROS is wrong, or its frame overtook others. */
DFM_TEST(lower_numbers_than_the_first_one_of_all_are_events, frames_config(2, 64))
{
        start(&t, &c);
        have_range(&t, 0, 0, 33);
        have_one(&t, 1, 30);
        assert_takes(&t, "");
        dfm_pass_ns(&t, WINDOW_NS / 2);
        have_range(&t, 1, 0, 33);
        assert_string_not_equal(takes(&t), "");
        assert_int_equal(dfm_counts(t.dfm)->triggers, 33);
        assert_int_equal(offered(&t)->not_taken, 0);
        assert_int_equal(dfm_counts(t.dfm)->announced.late, 0);
        finish(&t);
}

/* ... and these come after the window. Other ROSs may be behind. */
DFM_TEST(a_number_below_the_run_is_late_after_a_higher_one, frames_config(3, 64))
{
        start(&t, &c);
        have_range(&t, 0, 28, 4);
        have_one(&t, 1, 30);
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "30 31");
        assert_int_equal(offered(&t)->not_taken, 2);
        have_range(&t, 2, 29, 3);
        assert_int_equal(dfm_counts(t.dfm)->announced.late, 0);
        have_range(&t, 1, 29, 3);
        assert_int_equal(dfm_counts(t.dfm)->announced.late, 1);
        finish(&t);
}

/* Without agreement of all, it begins where most agree. */
DFM_TEST(a_board_that_counts_from_elsewhere_does_not_begin_the_run, frames_config(4, 64))
{
        struct ros_rule rules[4];

        for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
                rules[i] = (struct ros_rule){.frames = true, .leads = true};
        c.ros_rules = rules;
        start(&t, &c);
        have_range(&t, 3, 5, 3);
        have_range(&t, 0, 5000, 4);
        have_range(&t, 2, 5001, 3);
        have_range(&t, 1, 5001, 3);
        assert_takes(&t, "");
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "5001 5002 5003");
        assert_int_equal(offered(&t)->not_taken, 4);
        have_range(&t, 3, 8, 3);
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "");
        finish(&t);
}

DFM_TEST(a_missing_ros_does_not_prevent_the_run, frames_config(2, 64))
{
        start(&t, &c);
        have_range(&t, 0, 50, 3);
        dfm_pass_ns(&t, WINDOW_NS - 1);
        assert_takes(&t, "");
        dfm_pass_ns(&t, 1);
        assert_takes(&t, "50 51 52");
        /* Once it has left, nothing waits for it. */
        ros_says_alive(&t, 1, RUN_ENDED, 0);
        have_one(&t, 0, 53);
        assert_takes(&t, "53");
        assert_int_equal(dfm_leaders(t.dfm), 1);
        finish(&t);
}

DFM_TEST(optional_ross_do_not_delay, frames_config(3, 64))
{
        start_after(&t, &c, 7);
        have_one(&t, 0, 8);
        have_one(&t, 1, 8);
        assert_takes(&t, "8");
        /* A number that only the optional one has becomes an event too. */
        have_one(&t, 2, 9);
        assert_takes(&t, "");
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "9");
        finish(&t);
}

DFM_TEST(counters_wrap, frames_config(2, 64))
{
        start_after(&t, &c, 65534);
        have(&t, 0, (const uint32_t[]){65535, 0, 1}, 3);
        have(&t, 1, (const uint32_t[]){65535, 0, 1}, 3);
        assert_takes(&t, "65535 65536 65537");
        /* A ROS that knows triggers announces L1 IDs. */
        have_after(&t, 0, 65538, (const uint32_t[]){65538}, 1);
        have_one(&t, 1, 2);
        assert_takes(&t, "65538");
        finish(&t);
}

/* The run begins where the counters wrap: the first ROS has missed the last numbers before that. */
TEST(a_run_may_begin_around_a_wrap)
{
        static const uint32_t before[] = {65534, 65535, 0, 1, 2, 3};

        for (int first = 0; first < 2; first++) {
                struct dfm_config c = frames_config(2, 64);
                struct dfm_driver t;

                start(&t, &c);
                if (first)
                        have(&t, 0, before, ARRAY_SIZE(before));
                have_range(&t, 1, 1, 3);
                if (!first)
                        have(&t, 0, before, ARRAY_SIZE(before));
                dfm_pass_ns(&t, WINDOW_NS);
                assert_takes(&t, "65537 65538 65539");
                have_one(&t, 1, 65540);
                have_one(&t, 0, 65540);
                assert_takes(&t, "65540");
                dfm_pass_ns(&t, 2 * NS_PER_S);
                assert_takes(&t, "");
                assert_int_equal(offered(&t)->implausible, 0);
                assert_int_equal(offered(&t)->not_taken, 3);
                finish(&t);
        }
}

DFM_TEST(a_lying_ros_costs_its_own_frames, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        have_range(&t, 1, 30000, 6);
        for (uint32_t k = 8; k < 12; k++) {
                char expected[16];

                have_one(&t, 0, k);
                dfm_pass_ns(&t, WINDOW_NS);
                snprintf(expected, sizeof expected, "%u", k);
                assert_takes(&t, expected);
        }
        dfm_pass_ns(&t, NS_PER_S);
        assert_takes(&t, "");
        assert_int_equal(offered(&t)->implausible, 6);
        /* A single number is never believed. */
        have_one(&t, 1, 40000);
        dfm_pass_ns(&t, 10 * NS_PER_S);
        assert_takes(&t, "");
        assert_true(dfm_deadline_ns(t.dfm) > t.now_ns);
        have_one(&t, 0, 12);
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "12");
        finish(&t);
}

/* In a pause, its numbers are the only ones for a while. */
DFM_TEST(a_liar_that_is_first_after_a_pause_is_not_believed, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        dfm_pass_ns(&t, 1);
        have_range(&t, 1, 5000, 6);
        dfm_pass_ns(&t, 3 * WINDOW_NS);
        assert_takes(&t, "");
        have_one(&t, 0, 8);
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "8");
        dfm_pass_ns(&t, NS_PER_S);
        assert_takes(&t, "");
        assert_int_equal(offered(&t)->implausible, 6);
        finish(&t);
}

/* A damaged number costs one frame: the next ones of this ROS count, and are waited for. */
DFM_TEST(a_ros_may_lie_once, frames_config(2, 64))
{
        static const uint32_t lies[] = {50000, 0x80000009u};

        for (size_t k = 0; k < ARRAY_SIZE(lies); k++) {
                start_after(&t, &c, 7);
                have_after(&t, 1, 8, (const uint32_t[]){lies[k], 8}, 2);
                have_range(&t, 0, 8, 2);
                assert_takes(&t, "8");
                have_after(&t, 1, 9, (const uint32_t[]){9}, 1);
                assert_takes(&t, "9");
                dfm_pass_ns(&t, NS_PER_S);
                assert_takes(&t, "");
                assert_int_equal(offered(&t)->implausible, 1);
                have_one(&t, 0, 10);
                have_after(&t, 1, 10, (const uint32_t[]){10}, 1);
                assert_takes(&t, "10");
                finish(&t);
        }
}

/* A single leading ROS agrees with nobody. */
DFM_TEST(a_leader_may_lie_once, frames_config(2, 64))
{
        static const struct ros_rule rules[] = {{.frames = true, .leads = true}, {.frames = true}};

        c.ros_rules = rules;
        start_after(&t, &c, 7);
        have_one(&t, 0, 5000);
        assert_takes(&t, "");
        dfm_pass_ns(&t, 1);
        have_one(&t, 0, 8);
        assert_takes(&t, "8");
        dfm_pass_ns(&t, NS_PER_S);
        have_one(&t, 0, 9);
        assert_takes(&t, "9");
        assert_int_equal(offered(&t)->implausible, 1);
        /* It goes on from there. */
        have_one(&t, 0, 20000);
        assert_takes(&t, "");
        have_one(&t, 0, 20001);
        assert_takes(&t, "20000 20001");
        finish(&t);
}

DFM_TEST(what_is_far_ends_with_its_epoch, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        have_range(&t, 0, 20000, 5);
        have_one(&t, 0, 8);
        for (uint16_t i = 0; i < 2; i++)
                ros_says_alive(&t, i, RUN_RUNNING, ALIVE_OUT_OF_STEP);
        assert_takes(&t, "8");
        assert_takes(&t, "");
        assert_int_equal(offered(&t)->resets, 1);
        assert_int_equal(offered(&t)->implausible, 5);
        finish(&t);
}

DFM_TEST(a_jump_is_believed_if_all_agree_or_nothing_else_comes, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        have_one(&t, 0, 20000);
        have_one(&t, 1, 20000);
        assert_takes(&t, "20000");
        dfm_pass_ns(&t, 1);
        /* The other ROS is silent. */
        have_range(&t, 1, 40000, 3);
        dfm_pass_ns(&t, WINDOW_NS);
        assert_takes(&t, "");
        have_one(&t, 1, 40003);
        dfm_pass_ns(&t, NS_PER_S - 1);
        assert_takes(&t, "");
        assert_int_equal(dfm_deadline_ns(t.dfm), t.now_ns + 1);
        dfm_pass_ns(&t, 1);
        assert_takes(&t, "40000 40001 40002 40003");
        finish(&t);
}

/* Whatever the order of announcements, numbers leave in ascending order, once. */
DFM_TEST(numbers_leave_in_order, frames_config(2, 64))
{
        static const uint32_t strides[] = {1, 5, 7, 11};

        start_after(&t, &c, 7);
        for (uint32_t round = 0; round < 20; round++) {
                uint32_t from = 8 + 12 * round;
                char expected[100] = "";
                size_t length = 0;

                for (uint32_t k = 0; k < 12; k++)
                        have_one(&t, k % 2, from + k * strides[round % 4] % 12);
                for (uint32_t k = 0; k < 12; k++)
                        length += (size_t)snprintf(expected + length, sizeof expected - length, "%s%u",
                                                   k ? " " : "", from + k);
                dfm_pass_ns(&t, WINDOW_NS);
                assert_takes(&t, expected);
        }
        finish(&t);
}

DFM_TEST(all_boards_begin_again, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        have_range(&t, 0, 8, 2);
        ros_says_alive(&t, 0, RUN_RUNNING, ALIVE_OUT_OF_STEP);
        assert_takes(&t, "");
        have_range(&t, 1, 8, 1);
        ros_says_alive(&t, 1, RUN_RUNNING, ALIVE_OUT_OF_STEP);
        /* Everything of before ends first; takes() answers KeepAlive. */
        assert_takes(&t, "8 9");
        assert_takes(&t, "");
        assert_int_equal(t.resets, 2);
        assert_int_equal(offered(&t)->resets, 1);
        memset(have_next, 0, sizeof have_next);
        /* A stray of before. */
        t.resets = 1;
        have_range(&t, 0, 10, 5);
        have_next[0] = 0;
        t.resets = 2;
        have_range(&t, 0, 0, 3);
        have_range(&t, 1, 0, 3);
        assert_takes(&t, "0 1 2");
        finish(&t);
}

DFM_TEST(one_board_that_begins_again_does_not_stop_the_others, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        ros_says_alive(&t, 0, RUN_RUNNING, ALIVE_OUT_OF_STEP);
        have_range(&t, 1, 8, 3);
        assert_takes(&t, "8 9 10");
        assert_int_equal(offered(&t)->resets, 0);
        finish(&t);
}

DFM_TEST(what_waits_at_the_end_is_not_taken, frames_config(2, 64))
{
        start_after(&t, &c, 7);
        have_range(&t, 0, 8, 3);
        dfm_stop(t.dfm, t.now_ns);
        have_range(&t, 1, 8, 3);
        takes(&t);
        assert_int_equal(offered(&t)->not_taken, 3);
        assert_int_equal(dfm_counts(t.dfm)->triggers, 1);
        finish(&t);
}
