/* The ROS with frames that carry the number of their trigger: which event each belongs to, the class in which
 * it ends, and boards whose numbers do not follow the triggers. */
#include "../ros_driver.h"

#include "evb/base/random.h"

static struct ros_config numbered(unsigned bits)
{
        struct ros_config c = ros_standard();

        c.describe = NULL;
        c.entries = 100;
        c.number_bits = bits;
        return c;
}

static enum ros_verdict frame_begins(struct ros_driver *t, uint64_t counter)
{
        struct ros_fragment f = {.bytes = 1000};
        uint64_t at;

        return ros_arrive(t->ros, &counter, &f, &at);
}

static void frame_comes(struct ros_driver *t, uint64_t counter)
{
        assert_true(frame_begins(t, counter) != ROS_FULL);
        ros_commit(t->ros);
}

static void frames_come(struct ros_driver *t, uint64_t from, uint64_t n)
{
        for (uint64_t i = 0; i < n; i++)
                frame_comes(t, from + i);
}

/* The trigger with this L1 ID is announced: SFI 0 builds its event. */
static void trigger(struct ros_driver *t, uint64_t event, uint32_t l1_id)
{
        t->message.n = 1;
        t->message.assign.with_info = false;
        t->message.assign.announces = true;
        t->message.assign.entries[0] = (struct assign_entry){.event = event, .l1_id = l1_id};
        assert_true(to_ros(t, ROLE_DFM, 0, MESSAGE_ASSIGN, 0));
}

/* Every frame is in one class. */
static void check_frames(struct ros_driver *t, uint64_t frames)
{
        const struct ros_counts *c = ros_counts(t->ros);

        assert_int_equal(c->used + c->late + c->duplicate + c->impossible + c->dropped + c->left_over,
                         frames);
}

static void end(struct ros_driver *t, uint64_t frames)
{
        check_frames(t, frames);
        ros_free(t->ros);
}

static void frames_match_by_number_in_any_order(void **state)
{
        struct ros_config c = numbered(32);
        struct ros_driver t;

        (void)state;
        ros_driver_init(&t, &c);
        trigger(&t, 0, 50);
        trigger(&t, 1, 52); /* trigger 51 was not taken */
        frame_comes(&t, 50);
        frame_comes(&t, 51);
        frame_comes(&t, 53);
        frame_comes(&t, 52); /* late by two: it waits for a newer one */
        assert_ros_sends(&t, 0, "e0[0,1000)");
        frame_comes(&t, 54);
        assert_ros_sends(&t, 0, "e1[0,1000)");
        trigger(&t, 2, 54);
        assert_ros_sends(&t, 0, "e2[0,1000)");
        trigger(&t, 3, 53);
        assert_ros_sends(&t, 0, "e3[0,1000)");
        ros_gets_keep_alive(&t, RUN_RUNNING, 4, 7);
        assert_int_equal(ros_counts(t.ros)->used, 4);
        assert_int_equal(ros_counts(t.ros)->left_over, 1);
        end(&t, 5);
}

/* The number of a fragment is that of its frame. */
static void a_fragment_has_the_l1_id_of_its_frame(void **state)
{
        struct ros_config c = numbered(16);
        struct ros_driver t;
        struct ros_job job;

        (void)state;
        ros_driver_init(&t, &c);
        trigger(&t, 0, 0x7fffe);
        trigger(&t, 1, 0x80001);
        frame_comes(&t, 0xfffe);
        frame_comes(&t, 0xffff);
        frame_comes(&t, 0x0001);
        assert_int_equal(ros_jobs(t.ros, 0, &job, 1), 1);
        assert_int_equal(job.job.chunk.l1_id, 0x7fffe);
        ros_sent(t.ros, 0, 1, 0);
        assert_int_equal(ros_jobs(t.ros, 0, &job, 1), 1);
        assert_int_equal(job.job.chunk.l1_id, 0x80001);
        end(&t, 3);
}

static void the_board_may_count_from_another_number(void **state)
{
        static const int64_t froms[] = {1, -1, 1000, -70000};

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(froms); i++) {
                struct ros_config c = numbered(16);
                struct ros_driver t;

                c.number_from = froms[i];
                ros_driver_init(&t, &c);
                frame_comes(&t, (uint64_t)froms[i] & 0xffff);
                trigger(&t, 0, 0);
                assert_ros_sends(&t, 0, "e0[0,1000)");
                trigger(&t, 1, 1);
                frame_comes(&t, (uint64_t)(froms[i] + 1) & 0xffff);
                assert_ros_sends(&t, 0, "e1[0,1000)");
                end(&t, 2);
        }
}

/* The ROS starts in the middle of a run, and frames come before or after the first trigger. */
static void the_first_trigger_finds_the_frames_that_wait(void **state)
{
        static const unsigned widths[] = {16, 24, 32, 64};

        (void)state;
        for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
                for (int early = 0; early < 20; early++) {
                        struct ros_config c = numbered(widths[w]);
                        struct ros_driver t;
                        uint64_t mask = widths[w] == 64 ? UINT64_MAX : (UINT64_C(1) << widths[w]) - 1;
                        uint32_t l1_id = 0xfffffff8; /* all widths wrap here */

                        ros_driver_init(&t, &c);
                        for (int i = 0; i < early; i++)
                                frame_comes(&t, (l1_id + (uint32_t)i) & mask);
                        for (int i = 0; i < 20; i++)
                                trigger(&t, 7000 + (uint64_t)i, l1_id + (uint32_t)i);
                        for (int i = early; i < 20; i++)
                                frame_comes(&t, (l1_id + (uint32_t)i) & mask);
                        assert_int_equal(ros_queued(t.ros, 0).jobs, 20);
                        end(&t, 20);
                }
        }
}

static void late_and_repeated_frames_are_counted_apart(void **state)
{
        struct ros_config c = numbered(24);
        struct ros_driver t;

        (void)state;
        ros_driver_init(&t, &c);
        for (uint64_t event = 0; event < 6; event++)
                trigger(&t, event, (uint32_t)event);
        frames_come(&t, 0, 1);
        frame_comes(&t, 0); /* held twice */
        frames_come(&t, 2, 2);
        assert_int_equal(ros_counts(t.ros)->duplicate, 1);
        ros_gets_clear(&t, 0);
        ros_gets_clear(&t, 1);
        frame_comes(&t, 0); /* used before */
        assert_int_equal(ros_counts(t.ros)->duplicate, 2);
        frame_comes(&t, 1); /* never came before */
        assert_int_equal(ros_counts(t.ros)->late, 1);
        frame_comes(&t, 1);
        assert_int_equal(ros_counts(t.ros)->late, 2);
        /* Nobody waits for it any more. */
        ros_says(&t);
        t.now_ns += c.wait_ns;
        ros_expire(t.ros, t.now_ns);
        frame_comes(&t, 4);
        assert_int_equal(ros_counts(t.ros)->late, 3);
        ros_gets_keep_alive(&t, RUN_RUNNING, 6, 7);
        assert_int_equal(ros_counts(t.ros)->used, 3);
        assert_int_equal(ros_counts(t.ros)->absent, 3);
        end(&t, 8);
}

static void a_frame_without_a_number_is_impossible(void **state)
{
        struct ros_config c = numbered(24);
        struct ros_fragment f = {.bytes = 3};
        struct ros_driver t;
        uint64_t at;

        (void)state;
        ros_driver_init(&t, &c);
        assert_int_equal(ros_arrive(t.ros, NULL, &f, &at), ROS_DISCARD);
        ros_commit(t.ros);
        assert_int_equal(ros_counts(t.ros)->impossible, 1);
        end(&t, 1);
}

static void a_broken_frame_may_come_again(void **state)
{
        struct ros_config c = numbered(24);
        struct ros_driver t;

        (void)state;
        ros_driver_init(&t, &c);
        trigger(&t, 0, 10);
        for (uint64_t counter = 10; counter < 12; counter++) {
                assert_int_equal(frame_begins(&t, counter), ROS_STORE);
                ros_skip(t.ros, 1);
        }
        assert_int_equal(ros_held(t.ros), 1); /* what the trigger expects */
        frame_comes(&t, 10);
        assert_ros_sends(&t, 0, "e0[0,1000)");
        /* Its event may end while it arrives. */
        for (int broken = 0; broken < 2; broken++) {
                trigger(&t, 1 + (uint64_t)broken, 11 + (uint32_t)broken);
                assert_int_equal(frame_begins(&t, 11 + (uint64_t)broken), ROS_STORE);
                ros_gets_clear(&t, 1 + (uint64_t)broken);
                if (broken)
                        ros_skip(t.ros, 1);
                else
                        ros_commit(t.ros);
        }
        assert_int_equal(ros_counts(t.ros)->late, 1);
        assert_int_equal(ros_held(t.ros), 1);
        end(&t, 2);
}

/* The board counts from 0 again, at many places of the run: none of its frames is taken for another
 * trigger's. Within a few numbers of a wrap of its counter this could not be seen. */
static void frames_of_a_restarted_board_match_nothing(void **state)
{
        static const unsigned widths[] = {16, 24, 32};
        struct random random;

        (void)state;
        random_init(&random, 11);
        for (int k = 0; k < 300; k++) {
                unsigned bits = widths[k % 3];
                struct ros_config c = numbered(bits);
                uint32_t at = 1000 + (uint32_t)random_below(&random, 63000), frames = 0;
                struct ros_driver t;

                ros_driver_init(&t, &c);
                for (uint32_t i = 0; i < 200; i++) {
                        trigger(&t, at + i, at + i);
                        if (i < 30) { /* then it restarts, and misses some triggers meanwhile */
                                frame_comes(&t, at + i);
                                frames++;
                                assert_int_equal(ros_queued(t.ros, 0).jobs, i + 1);
                        } else if (i >= 40) {
                                frame_comes(&t, i - 40);
                                frames++;
                        }
                        if (i >= 50)
                                ros_gets_keep_alive(&t, RUN_RUNNING, at + i - 50, 7);
                }
                assert_int_equal(ros_counts(t.ros)->fragments_sent + ros_queued(t.ros, 0).jobs, 30);
                assert_int_equal(ros_counts(t.ros)->restarts, 1);
                assert_true(ros_is_out_of_step(t.ros));
                end(&t, frames);
        }
}

/* Single late frames are good; a row of them means a restart, after which four frames must agree. */
static void a_row_of_strays_means_a_restart(void **state)
{
        struct ros_config c = numbered(32);
        struct ros_driver t;

        (void)state;
        ros_driver_init(&t, &c);
        for (uint64_t event = 0; event < 80; event++)
                trigger(&t, event, (uint32_t)event);
        frame_comes(&t, 40);
        frames_come(&t, 0, ROS_STRAYS_MAX - 1);
        assert_false(ros_is_out_of_step(t.ros));
        assert_ros_sends(&t, 0, "e40[0,1000)");
        frame_comes(&t, 41); /* they were only late */
        assert_int_equal(ros_queued(t.ros, 0).jobs, ROS_STRAYS_MAX);
        ros_sends(&t, 0);
        frames_come(&t, 15, ROS_STRAYS_MAX);
        assert_true(ros_is_out_of_step(t.ros));
        assert_int_equal(ros_counts(t.ros)->impossible, ROS_STRAYS_MAX);
        assert_ros_sends(&t, 0, "");
        frames_come(&t, 60, ROS_AGREEING_MIN - 1);
        frame_comes(&t, UINT32_MAX / 2); /* interrupts the row */
        assert_true(ros_is_out_of_step(t.ros));
        frames_come(&t, 60, ROS_AGREEING_MIN);
        assert_false(ros_is_out_of_step(t.ros));
        assert_int_equal(ros_queued(t.ros, 0).jobs, ROS_AGREEING_MIN);
        assert_int_equal(ros_counts(t.ros)->restarts, 1);
        end(&t, 1 + ROS_STRAYS_MAX + ROS_STRAYS_MAX + 2 * ROS_AGREEING_MIN);
}

/* Nothing newer follows the last frame of a silent board. */
static void a_last_late_frame_is_believed_in_time(void **state)
{
        struct ros_config c = numbered(32);
        struct ros_driver t;

        (void)state;
        ros_driver_init(&t, &c);
        for (uint64_t event = 0; event < 3; event++)
                trigger(&t, event, (uint32_t)event);
        frame_comes(&t, 2);
        frame_comes(&t, 1);
        assert_ros_sends(&t, 0, "e2[0,1000)");
        t.now_ns += c.wait_ns;
        ros_expire(t.ros, t.now_ns);
        assert_ros_sends(&t, 0, "e0 pending | e1[0,1000)");
        end(&t, 2);
}

/* Once the board has been out of step for as long as a frame may take, events end without it at once. */
static void events_do_not_wait_for_a_board_that_is_out_of_step(void **state)
{
        struct ros_config c = numbered(32);
        struct ros_driver t;

        (void)state;
        ros_driver_init(&t, &c);
        trigger(&t, 0, 5000000);
        frame_comes(&t, 5000000);
        ros_sends(&t, 0);
        frames_come(&t, 0, ROS_STRAYS_MAX);
        ros_expire(t.ros, t.now_ns);
        trigger(&t, 1, 5000001);
        assert_ros_sends(&t, 0, "");
        t.now_ns += c.wait_ns;
        ros_expire(t.ros, t.now_ns);
        assert_ros_sends(&t, 0, "e1 pending");
        trigger(&t, 2, 5000002);
        assert_ros_sends(&t, 0, "e2 pending");
        /* The counters of all are reset: the board is in step again. */
        ros_resynchronise(t.ros, 3);
        ros_resynchronise(t.ros, 3);
        assert_false(ros_is_out_of_step(t.ros));
        trigger(&t, 3, 0);
        frame_comes(&t, 0);
        frame_comes(&t, 1);
        trigger(&t, 4, 1);
        assert_ros_sends(&t, 0, "e3[0,1000) | e4[0,1000)");
        end(&t, 3 + ROS_STRAYS_MAX);
}

/* At a reset, frames and requests of the triggers before it may still be on their way. */
static void a_reset_does_not_mix_old_and_new_numbers(void **state)
{
        struct ros_config c = numbered(24);
        struct ros_driver t;

        (void)state;
        ros_driver_init(&t, &c);
        for (uint64_t event = 0; event < 10; event++)
                trigger(&t, event, 1000 + (uint32_t)event);
        frames_come(&t, 1000, 8);
        ros_sends(&t, 0);
        ros_resynchronise(t.ros, 12);
        frame_comes(&t, 1008);
        assert_ros_sends(&t, 0, "e8[0,1000)");
        trigger(&t, 10, 1010); /* an announcement was lost: the SFI requests it */
        trigger(&t, 12, 0);
        frame_comes(&t, 1010);
        frame_comes(&t, 0);
        assert_ros_sends(&t, 0, "e10[0,1000) | e12[0,1000)");
        for (uint64_t i = 1; i < 1020; i++) {
                trigger(&t, 12 + i, (uint32_t)i);
                frame_comes(&t, i);
                assert_int_equal(ros_queued(t.ros, 0).jobs, 1);
                ros_sends(&t, 0);
                ros_gets_keep_alive(&t, RUN_RUNNING, 12 + i, 7);
        }
        end(&t, 10 + 1020);
}

/* Two events with the same number: the second one gets no fragment. */
static void a_number_belongs_to_one_event(void **state)
{
        struct ros_config c = numbered(32);
        struct ros_driver t;

        (void)state;
        ros_driver_init(&t, &c);
        trigger(&t, 0, 7);
        trigger(&t, 1, 7);
        frame_comes(&t, 7);
        assert_ros_sends(&t, 0, "e1 lost | e0[0,1000)");
        ros_gets_clear(&t, 0);
        trigger(&t, 2, 7);
        assert_ros_sends(&t, 0, "e2 lost");
        end(&t, 1);
}

/* A full buffer: frames of triggers that never came give way, and those ahead of the trigger wait. */
static void frames_without_a_trigger_do_not_block_others(void **state)
{
        struct ros_config c = numbered(32);
        struct ros_driver t;

        (void)state;
        for (int datagrams = 0; datagrams < 2; datagrams++) {
                c.entries = 10;
                c.datagrams = datagrams;
                ros_driver_init(&t, &c);
                frames_come(&t, 0, 10);
                /* Before the first trigger, a front-end that cannot wait keeps its newest frames. */
                assert_int_equal(frame_begins(&t, 10), datagrams ? ROS_STORE : ROS_FULL);
                if (datagrams)
                        ros_commit(t.ros);
                assert_int_equal(ros_counts(t.ros)->left_over, 10 + datagrams);
                trigger(&t, 0, 30);
                for (uint64_t i = 10 + (uint64_t)datagrams; i <= 30; i++)
                        frame_comes(&t, i);
                assert_ros_sends(&t, 0, "e0[0,1000)");
                frames_come(&t, 31, 0);
                assert_int_equal(frame_begins(&t, 31), ROS_FULL);
                ros_skip(t.ros, 1);
                assert_int_equal(ros_counts(t.ros)->dropped, 1);
                end(&t, 32);
        }
}

/* No data are lost if no trigger can come for them. */
static void frames_after_the_end_are_left_over(void **state)
{
        struct ros_config c = numbered(32);
        struct ros_driver t;

        (void)state;
        c.entries = 10;
        ros_driver_init(&t, &c);
        trigger(&t, 0, 0);
        frame_comes(&t, 0);
        ros_gets_keep_alive(&t, RUN_ENDED, 1, 7);
        for (uint64_t i = 1; i < 15; i++) {
                if (frame_begins(&t, i) == ROS_FULL)
                        ros_skip(t.ros, 1);
                else
                        ros_commit(t.ros);
        }
        assert_int_equal(ros_counts(t.ros)->dropped, 0);
        assert_int_equal(ros_counts(t.ros)->left_over, 14);
        end(&t, 15);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(frames_match_by_number_in_any_order),
                cmocka_unit_test(a_fragment_has_the_l1_id_of_its_frame),
                cmocka_unit_test(the_board_may_count_from_another_number),
                cmocka_unit_test(the_first_trigger_finds_the_frames_that_wait),
                cmocka_unit_test(late_and_repeated_frames_are_counted_apart),
                cmocka_unit_test(a_frame_without_a_number_is_impossible),
                cmocka_unit_test(a_broken_frame_may_come_again),
                cmocka_unit_test(frames_of_a_restarted_board_match_nothing),
                cmocka_unit_test(a_row_of_strays_means_a_restart),
                cmocka_unit_test(a_last_late_frame_is_believed_in_time),
                cmocka_unit_test(events_do_not_wait_for_a_board_that_is_out_of_step),
                cmocka_unit_test(a_reset_does_not_mix_old_and_new_numbers),
                cmocka_unit_test(a_number_belongs_to_one_event),
                cmocka_unit_test(frames_without_a_trigger_do_not_block_others),
                cmocka_unit_test(frames_after_the_end_are_left_over),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
