/* The frames make the triggers: what the DFM makes of the numbers that ROSs announce. */
#include "dfm_order_driver.h"

FRAMES_TEST(a_number_is_taken_when_all_ross_have_it, 2, 64, 7)
{
        announce_range(t, 0, 8, 3);
        assert_takes(t, "");
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + 5 * NS_PER_MS); /* NumbersAck */
        announce_one(t, 1, 8);
        assert_takes(t, "8");
        /* 9 will not come from this ROS. */
        announce_one(t, 1, 10);
        assert_takes(t, "9 10");
        assert_int_equal(dfm_counts(t->dfm)->announced.confirmed, 3);
        assert_int_equal(offered(t)->missing, 0);
}

FRAMES_TEST(a_number_waits_for_the_window_at_most, 2, 64, 7)
{
        announce_one(t, 0, 9);
        dfm_pass_ns(t, WINDOW_NS / 2);
        announce_one(t, 0, 8); /* late */
        assert_takes(t, "");
        assert_takes_after(t, WINDOW_NS / 2 - 1, "");
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + 1);
        assert_takes_after(t, 1, "8 9");
        /* What others have of it adds no event. */
        announce_range(t, 1, 8, 2);
        assert_takes_after(t, WINDOW_NS, "");
        assert_int_equal(offered(t)->repeated, 0);
}

FRAMES_TEST(a_late_number_becomes_an_event_once, 2, 64, 6007)
{
        announce_one(t, 0, 6010);
        announce_one(t, 1, 6010);
        assert_takes(t, "6010");
        announce_one(t, 0, 6009);
        announce_one(t, 1, 6009);
        assert_takes(t, "6009");
        announce_one(t, 1, 6009);
        assert_takes_after(t, WINDOW_NS, "");
        /* 6008 was skipped. */
        assert_int_equal(offered(t)->missing, 1);
        announce_one(t, 1, 1008);
        assert_takes(t, "");
        assert_int_equal(dfm_counts(t->dfm)->announced.late, 1);
}

DFM_TEST_AS(the_run_begins_with_the_first_number_of_all, frames_config(2, 64), start(t, &c))
{
        announce_range(t, 0, 50, 10);
        assert_takes(t, "");
        announce_range(t, 1, 55, 3);
        assert_takes(t, "");
        assert_takes_after(t, WINDOW_NS, "55 56 57 58 59");
        assert_counts(offered(t), not_taken, 5, resets, 0);
}

/* The first number of a ROS is wrong, or its frame overtook others. */
DFM_TEST_AS(lower_numbers_than_the_first_one_of_all_are_events, frames_config(2, 64), start(t, &c))
{
        announce_range(t, 0, 0, 33);
        announce_one(t, 1, 30);
        assert_takes(t, "");
        dfm_pass_ns(t, WINDOW_NS / 2);
        announce_range(t, 1, 0, 33);
        assert_string_not_equal(takes(t), "");
        assert_counts(dfm_counts(t->dfm), triggers, 33, announced.late, 0);
        assert_int_equal(offered(t)->not_taken, 0);
}

/* ... and these come after the window. Other ROSs may be behind. */
DFM_TEST_AS(a_number_below_the_run_is_late_after_a_higher_one, frames_config(3, 64), start(t, &c))
{
        announce_range(t, 0, 28, 4);
        announce_one(t, 1, 30);
        assert_takes_after(t, WINDOW_NS, "30 31");
        assert_int_equal(offered(t)->not_taken, 2);
        announce_range(t, 2, 29, 3);
        assert_int_equal(dfm_counts(t->dfm)->announced.late, 0);
        announce_range(t, 1, 29, 3);
        assert_int_equal(dfm_counts(t->dfm)->announced.late, 1);
}

/* Without agreement of all, it begins where most agree. */
static const struct ros_rule leading_rules[] = {[0 ... 3] = {.frames = true, .leads = true}};

DFM_TEST_AS(a_board_that_counts_from_elsewhere_does_not_begin_the_run, frames_config(4, 64), start(t, &c),
            c.ros_rules = leading_rules)
{
        announce_range(t, 3, 5, 3);
        announce_range(t, 0, 5000, 4);
        announce_range(t, 2, 5001, 3);
        announce_range(t, 1, 5001, 3);
        assert_takes(t, "");
        assert_takes_after(t, WINDOW_NS, "5001 5002 5003");
        assert_int_equal(offered(t)->not_taken, 4);
        announce_range(t, 3, 8, 3);
        assert_takes_after(t, WINDOW_NS, "");
}

DFM_TEST_AS(a_missing_ros_does_not_prevent_the_run, frames_config(2, 64), start(t, &c))
{
        announce_range(t, 0, 50, 3);
        assert_takes_after(t, WINDOW_NS - 1, "");
        assert_takes_after(t, 1, "50 51 52");
        /* Once it has left, nothing waits for it. */
        ros_says_alive(t, 1, RUN_ENDED, 0);
        announce_one(t, 0, 53);
        assert_takes(t, "53");
        assert_int_equal(dfm_leaders(t->dfm), 1);
}

FRAMES_TEST(optional_ross_do_not_delay, 3, 64, 7)
{
        announce_one(t, 0, 8);
        announce_one(t, 1, 8);
        assert_takes(t, "8");
        /* A number that only the optional one has becomes an event too. */
        announce_one(t, 2, 9);
        assert_takes(t, "");
        assert_takes_after(t, WINDOW_NS, "9");
}

FRAMES_TEST(counters_wrap, 2, 64, 65534)
{
        announced(t, 0, (const uint32_t[]){65535, 0, 1}, 3);
        announced(t, 1, (const uint32_t[]){65535, 0, 1}, 3);
        assert_takes(t, "65535 65536 65537");
        /* A ROS that has received triggers announces L1 IDs. */
        announce_after(t, 0, 65538, (const uint32_t[]){65538}, 1);
        announce_one(t, 1, 2);
        assert_takes(t, "65538");
}

/* The run begins where the counters wrap: the first ROS has missed the last numbers before that. */
DFM_TEST_EACH_AS(a_run_may_begin_around_a_wrap, first, 2, frames_config(2, 64), start(t, &c))
{
        static const uint32_t before[] = {65534, 65535, 0, 1, 2, 3};

        if (first)
                announced(t, 0, before, ARRAY_SIZE(before));
        announce_range(t, 1, 1, 3);
        if (!first)
                announced(t, 0, before, ARRAY_SIZE(before));
        assert_takes_after(t, WINDOW_NS, "65537 65538 65539");
        announce_one(t, 1, 65540);
        announce_one(t, 0, 65540);
        assert_takes(t, "65540");
        assert_takes_after(t, 2 * NS_PER_S, "");
        assert_counts(offered(t), implausible, 0, not_taken, 3);
}

/* A number that is ahead, although it would be fewer than DFM_ORDER_FAR behind a period later. */
DFM_TEST_AS(short_counters_begin_with_the_first_number, frames_config(2, 64), start(t, &c),
            c.number_period = 633)
{
        announce_range(t, 0, 0, 4);
        announce_range(t, 1, 9, 2);
        assert_takes_after(t, WINDOW_NS, "0 1 2 3 9 10");
}

FRAMES_TEST(a_lying_ros_costs_its_own_frames, 2, 64, 7)
{
        announce_range(t, 1, 30000, 6);
        for (uint32_t k = 8; k < 12; k++) {
                char expected[16];

                announce_one(t, 0, k);
                dfm_pass_ns(t, WINDOW_NS);
                snprintf(expected, sizeof expected, "%u", k);
                assert_takes(t, expected);
        }
        assert_takes_after(t, NS_PER_S, "");
        assert_int_equal(offered(t)->implausible, 6);
        /* A single number is never believed. */
        announce_one(t, 1, 40000);
        assert_takes_after(t, 10 * NS_PER_S, "");
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        announce_one(t, 0, 12);
        assert_takes_after(t, WINDOW_NS, "12");
}

/* In a pause, its numbers are the only ones for a while. */
FRAMES_TEST(a_wrong_number_that_is_first_after_a_pause_is_not_believed, 2, 64, 7)
{
        dfm_pass_ns(t, 1);
        announce_range(t, 1, 5000, 6);
        assert_takes_after(t, 3 * WINDOW_NS, "");
        announce_one(t, 0, 8);
        assert_takes_after(t, WINDOW_NS, "8");
        assert_takes_after(t, NS_PER_S, "");
        assert_int_equal(offered(t)->implausible, 6);
}

/* A damaged number costs one frame: the next ones of this ROS count, and are waited for. */
static const uint32_t lies[] = {50000, 0x80000009u};

FRAMES_TEST_EACH(a_ros_may_lie_once, k, ARRAY_SIZE(lies), 2, 64, 7)
{
        announce_after(t, 1, 8, (const uint32_t[]){lies[k], 8}, 2);
        announce_range(t, 0, 8, 2);
        assert_takes(t, "8");
        announce_after(t, 1, 9, (const uint32_t[]){9}, 1);
        assert_takes(t, "9");
        assert_takes_after(t, NS_PER_S, "");
        assert_int_equal(offered(t)->implausible, 1);
        announce_one(t, 0, 10);
        announce_after(t, 1, 10, (const uint32_t[]){10}, 1);
        assert_takes(t, "10");
}

/* A single leading ROS has no other ROS to agree with. */
FRAMES_TEST(a_leader_may_lie_once, 2, 64, 7,
            c.ros_rules = (const struct ros_rule[]){{.frames = true, .leads = true}, {.frames = true}})
{
        announce_one(t, 0, 5000);
        assert_takes(t, "");
        dfm_pass_ns(t, 1);
        announce_one(t, 0, 8);
        assert_takes(t, "8");
        dfm_pass_ns(t, NS_PER_S);
        announce_one(t, 0, 9);
        assert_takes(t, "9");
        assert_int_equal(offered(t)->implausible, 1);
        /* The board continues from there. */
        announce_one(t, 0, 20000);
        assert_takes(t, "");
        announce_one(t, 0, 20001);
        assert_takes(t, "20000 20001");
}

FRAMES_TEST(what_is_far_ends_with_its_epoch, 2, 64, 7)
{
        announce_range(t, 0, 20000, 5);
        announce_one(t, 0, 8);
        for (uint16_t i = 0; i < 2; i++)
                ros_says_alive(t, i, RUN_RUNNING, ALIVE_OUT_OF_STEP);
        assert_takes(t, "8");
        assert_takes(t, "");
        assert_counts(offered(t), resets, 1, implausible, 5);
}

FRAMES_TEST(a_jump_is_believed_if_all_agree_or_nothing_else_comes, 2, 64, 7)
{
        announce_one(t, 0, 20000);
        announce_one(t, 1, 20000);
        assert_takes(t, "20000");
        dfm_pass_ns(t, 1);
        /* The other ROS is silent. */
        announce_range(t, 1, 40000, 3);
        assert_takes_after(t, WINDOW_NS, "");
        announce_one(t, 1, 40003);
        assert_takes_after(t, NS_PER_S - 1, "");
        assert_int_equal(dfm_deadline_ns(t->dfm), t->now_ns + 1);
        assert_takes_after(t, 1, "40000 40001 40002 40003");
}

/* Whatever the order of announcements, numbers leave in ascending order, once. */
FRAMES_TEST(numbers_leave_in_order, 2, 64, 7)
{
        static const uint32_t strides[] = {1, 5, 7, 11};

        for (uint32_t round = 0; round < 20; round++) {
                uint32_t from = 8 + 12 * round;
                char expected[100] = "";
                size_t length = 0;

                for (uint32_t k = 0; k < 12; k++)
                        announce_one(t, k % 2, from + k * strides[round % 4] % 12);
                for (uint32_t k = 0; k < 12; k++)
                        length += (size_t)snprintf(expected + length, sizeof expected - length, "%s%u",
                                                   k ? " " : "", from + k);
                assert_takes_after(t, WINDOW_NS, expected);
        }
}

FRAMES_TEST(all_boards_begin_again, 2, 64, 7)
{
        announce_range(t, 0, 8, 2);
        ros_says_alive(t, 0, RUN_RUNNING, ALIVE_OUT_OF_STEP);
        assert_takes(t, "");
        announce_range(t, 1, 8, 1);
        ros_says_alive(t, 1, RUN_RUNNING, ALIVE_OUT_OF_STEP);
        /* All earlier events end first; takes() answers KeepAlive. */
        assert_takes(t, "8 9");
        assert_takes(t, "");
        assert_int_equal(t->resets, 2);
        assert_int_equal(offered(t)->resets, 1);
        memset(numbers_next, 0, sizeof numbers_next);
        /* A stray from before the reset. */
        t->resets = 1;
        announce_range(t, 0, 10, 5);
        numbers_next[0] = 0;
        t->resets = 2;
        announce_range(t, 0, 0, 3);
        announce_range(t, 1, 0, 3);
        assert_takes(t, "0 1 2");
}

FRAMES_TEST(one_board_that_begins_again_does_not_stop_the_others, 2, 64, 7)
{
        ros_says_alive(t, 0, RUN_RUNNING, ALIVE_OUT_OF_STEP);
        announce_range(t, 1, 8, 3);
        assert_takes(t, "8 9 10");
        assert_int_equal(offered(t)->resets, 0);
}

/* A board announced three numbers before the stop. The other one follows after it, or lacks these frames. */
FRAMES_TEST_EACH(numbers_from_before_a_stop_are_events, follows, 2, 2, 64, 7)
{
        announce_range(t, 0, 8, 3);
        dfm_stop(t->dfm, t->now_ns);
        assert_takes(t, "");
        announce_end(t, 0);
        assert_takes(t, "");
        if (follows)
                announce_range(t, 1, 8, 4);
        assert_takes(t, follows ? "8 9 10" : "");
        announce_end(t, 1);
        assert_takes(t, follows ? "11" : "8 9 10");
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_counts(dfm_counts(t->dfm), triggers, follows ? 5 : 4, offered.not_taken, 0, abandoned, 0);
}

/* The message that was lost is repeated: what it has are the numbers before the end. */
FRAMES_TEST_EACH(an_end_overtakes_no_number, blocked, 2, 2, blocked ? 8 : 64, 7,
                 c.ros_rules = (const struct ros_rule[]){{.frames = true, .leads = true}, {.frames = true}})
{
        uint32_t here = 1;

        if (blocked) {
                announce_range(t, 0, 8, 9);
                takes(t);
                here = numbers_acked[0];
        }
        assert_true(here < 10);
        dfm_stop(t->dfm, t->now_ns);
        numbers_next[0] = 10;
        announce_end(t, 0);
        takes(t);
        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
        numbers_next[0] = here;
        announce_range(t, 0, 7 + here, 10 - here);
        announce_end(t, 0);
        takes(t);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_counts(dfm_counts(t->dfm), triggers, 10, offered.not_taken, 0, abandoned, 0);
}

/* ... for as long as events are open. If none can become an event then, all of them are abandoned. */
FRAMES_TEST_EACH(a_stop_waits_for_room, in_vain, 2, 2, 8, 7, c.trigger_queue = 4,
                 c.ros_rules = (const struct ros_rule[]){{.frames = true, .leads = true}, {.frames = true}})
{
        announce_one(t, 0, 8);
        dfm_says_with(t, false);
        sfi_acks(t, 0, 2);
        ros_says_switch(t, 1, false);
        announce_range(t, 0, 9, 20);
        assert_takes(t, "");
        numbers_next[0] = numbers_acked[0];
        announce_range(t, 0, 7 + numbers_acked[0], 10);
        assert_takes(t, "");
        dfm_stop(t->dfm, t->now_ns);
        dfm_pass_ns(t, t->config.node_timeout_ns);
        ros_reports(t, 0);
        ros_reports(t, 1, .flags = ALIVE_XOFF);
        sfi_says_alive(t, 0, RUN_RUNNING, 0);
        assert_takes(t, "");
        sfi_ends(t, 0, 1, EVENT_COMPLETE, 0);
        if (in_vain) {
                dfm_pass_ns(t, t->config.node_timeout_ns);
                ros_reports(t, 1, .flags = ALIVE_XOFF);
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                takes(t);
        } else {
                ros_says_switch(t, 1, true);
                assert_takes(t, "9 10 11 12 13 14 15 16 17 18 19");
                numbers_next[0] = numbers_acked[0];
                announce_range(t, 0, 20, 3);
                announce_end(t, 0);
                assert_takes(t, "20 21 22");
        }
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_counts(dfm_counts(t->dfm), triggers, in_vain ? 2 : 16, abandoned, in_vain ? 11 : 0);
        assert_int_equal(dfm_view(t->dfm, ROLE_ROS, 0).cut_short, in_vain);
}

/* ... unless no SFI builds them any more. The numbers that a ROS did not announce yet are unknown. */
FRAMES_TEST_EACH(numbers_without_an_sfi_are_abandoned_at_a_stop, n, 4, 2, 64, 7)
{
        announce_range(t, 0, 8, n);
        announce_end(t, 1);
        for (uint16_t i = 0; i < t->config.n_sfi; i++)
                sfi_says_alive(t, i, RUN_ENDED, 0);
        dfm_stop(t->dfm, t->now_ns);
        assert_takes(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_counts(dfm_counts(t->dfm), triggers, 1, offered.not_taken, n, abandoned, n);
        assert_true(dfm_view(t->dfm, ROLE_ROS, 0).cut_short);
        assert_false(dfm_view(t->dfm, ROLE_ROS, 1).cut_short);
}

/* A ROS that does not answer, or is gone, delays the end no longer than node_timeout_ns after the events. */
FRAMES_TEST_EACH(a_stop_waits_for_each_ros, leaves, 2, 2, 64, 7)
{
        announce_range(t, 0, 8, 3);
        dfm_stop(t->dfm, t->now_ns);
        announce_end(t, 0);
        assert_takes(t, "");
        if (leaves)
                ros_says_alive(t, 1, RUN_ENDED, 0);
        else {
                for (uint64_t k = 0; k < t->config.node_timeout_ns / (50 * NS_PER_MS); k++) {
                        assert_int_equal(dfm_state(t->dfm), RUN_DRAINING);
                        dfm_pass_ns(t, 50 * NS_PER_MS);
                        for (uint16_t i = 0; i < 2; i++)
                                ros_says_alive(t, i, RUN_RUNNING, 0);
                        sfi_says_alive(t, 0, RUN_RUNNING, 0);
                        takes(t);
                }
                dfm_pass_ns(t, WINDOW_NS);
        }
        takes(t);
        assert_int_equal(dfm_view(t->dfm, ROLE_ROS, 1).cut_short, !leaves);
        assert_false(dfm_view(t->dfm, ROLE_ROS, 0).cut_short);
        assert_int_equal(dfm_state(t->dfm), RUN_ENDED);
        assert_counts(dfm_counts(t->dfm), triggers, 4, offered.not_taken, 0);
}

/* A ROS may collect the frames of a fragment for as long as events wait for it. */
FRAMES_TEST(a_stop_waits_longer_than_for_a_node, 2, 64, 7, c.frame_wait_ns = 2 * c.node_timeout_ns)
{
        dfm_stop(t->dfm, t->now_ns);
        announce_end(t, 0);
        for (uint64_t k = 0; k < t->config.frame_wait_ns / (50 * NS_PER_MS); k++) {
                dfm_pass_ns(t, 50 * NS_PER_MS);
                for (uint16_t i = 0; i < 2; i++)
                        ros_says_alive(t, i, RUN_RUNNING, 0);
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                assert_takes(t, "");
        }
        announce_range(t, 1, 8, 1);
        announce_end(t, 1);
        assert_takes(t, "8");
        assert_false(dfm_view(t->dfm, ROLE_ROS, 1).cut_short);
}

/* A stop ends a pause: boards have read out the frames that wait. */
FRAMES_TEST_EACH(what_waits_in_a_pause_becomes_events_at_a_stop, in_pause, 2, 2, 64, 7)
{
        if (in_pause)
                dfm_pause(t->dfm, t->now_ns, true);
        announce_range(t, 0, 8, 3);
        dfm_pause(t->dfm, t->now_ns, true);
        announce_range(t, 1, 8, 3);
        assert_takes_after(t, WINDOW_NS, "");
        dfm_stop(t->dfm, t->now_ns);
        announce_range(t, 0, 11, 1);
        for (uint16_t i = 0; i < 2; i++)
                announce_end(t, i);
        assert_takes(t, "8 9 10 11");
        assert_counts(dfm_counts(t->dfm), triggers, 5, offered.not_taken, 0, abandoned, 0);
}

/* What waits at the stop follows the numbers that were taken, unless it is far ahead. */
FRAMES_TEST(a_leap_just_before_the_stop_is_implausible, 2, 64, 7,
            c.ros_rules = (const struct ros_rule[]){{.frames = true, .leads = true}, {.frames = true}})
{
        announce_range(t, 0, 8, 3);
        assert_takes(t, "8 9 10");
        dfm_pass_ns(t, 1);
        announce_one(t, 0, 5000);
        assert_takes_after(t, 3 * NS_PER_S, "");
        dfm_stop(t->dfm, t->now_ns);
        announce_end(t, 0);
        takes(t);
        assert_counts(offered(t), implausible, 1, not_taken, 0);
}

/* Two boards that count from different numbers. */
FRAMES_TEST(boards_that_are_apart_are_named, 2, 64, 7)
{
        struct dfm_apart a;

        announce_range(t, 0, 8, 2);
        announce_range(t, 1, 5008, 2);
        assert_takes_after(t, WINDOW_NS, "8 9");
        assert_false(dfm_numbers_apart(t->dfm, &a));
        announce_range(t, 0, 10, 2);
        announce_range(t, 1, 5010, 2);
        assert_takes_after(t, NS_PER_S, "10 11");
        takes(t);
        assert_true(dfm_numbers_apart(t->dfm, &a));
        assert_fields(&a, ahead, 1, behind, 0, by, 5000);
}

/* In slices of time, a board whose frames come too late announces nothing more, but its clock goes on. */
FRAMES_TEST(the_difference_of_clocks_does_not_grow, 2, 64, 7, c.slice_ns = 50 * NS_PER_MS)
{
        const uint32_t next = 5012 + (uint32_t)(WINDOW_NS / c.slice_ns);
        struct dfm_apart a;

        announce_range(t, 0, 8, 4);
        announce_range(t, 1, 5008, 4);
        assert_takes_after(t, WINDOW_NS, "8 9 10 11");
        takes(t);
        for (uint32_t number = next; number < next + 80; number++) {
                dfm_pass_ns(t, 50 * NS_PER_MS);
                all_say_alive(t);
                announce_one(t, 1, number);
                takes(t);
        }
        assert_true(dfm_numbers_apart(t->dfm, &a));
        assert_fields(&a, ahead, 1, behind, 0);
        assert_true(a.by >= 4999 && a.by <= 5001);
}
