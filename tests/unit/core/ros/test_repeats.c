/* Boards that send several frames for a trigger, and networks that repeat frames: the first frame of each
 * number is in its event, and a repeated one costs nothing but itself. */
#include "numbered_driver.h"

#include "base/random.h"

#define TRIGGERS 600

/* Triggers, and a board that falls behind them by `lag` at most. */
struct board {
        struct ros_driver t;
        struct random random;
        uint32_t lag, triggers, next;
        bool rises; /* the lag, from 0 */
        uint64_t frames;
};

static void begin(struct board *b, uint32_t lag)
{
        struct ros_config c = numbered(16);

        c.entries = 2 * TRIGGERS;
        *b = (struct board){.lag = lag};
        random_init(&b->random, lag);
        ros_driver_init(&b->t, &c);
}

static void triggers_until(struct board *b, uint32_t n)
{
        for (; b->triggers < MIN(n, TRIGGERS); b->triggers++)
                trigger(&b->t, b->triggers, b->triggers);
}

static void send_number(struct board *b, uint32_t number)
{
        frame_comes(&b->t, number);
        b->frames++;
}

/* The frame of the next trigger. */
static void send_next(struct board *b)
{
        uint32_t lag = b->rises ? MIN(b->lag, 3 * b->next) : b->lag;

        triggers_until(b, b->next + 1 + lag - (uint32_t)random_below(&b->random, lag / 2 + 1));
        send_number(b, b->next++);
}

/* All triggers have their fragments, and all other frames count as duplicates. */
static void finish(struct board *b)
{
        const struct ros_counts *c = ros_counts(b->t.ros);

        assert_int_equal(b->next, TRIGGERS);
        assert_int_equal(ros_queued(b->t.ros, 0).jobs, TRIGGERS);
        assert_int_equal(c->duplicate, b->frames - TRIGGERS);
        assert_int_equal(c->impossible + c->late + c->dropped + c->restarts, 0);
        assert_false(ros_is_out_of_step(b->t.ros));
        ros_driver_fini(&b->t);
}

static const uint32_t lags[] = {0, 1, 5, 40, 250};

static const uint32_t copies[] = {2, 3, 15, 16, 17, 128};

TEST_EACH(each_trigger_may_have_several_frames, k, ARRAY_SIZE(copies) * ARRAY_SIZE(lags))
{
        struct board b;

        begin(&b, lags[k / ARRAY_SIZE(copies)]);
        b.rises = true;
        while (b.next < TRIGGERS) {
                send_next(&b);
                for (uint32_t i = 1; i < copies[k % ARRAY_SIZE(copies)]; i++)
                        send_number(&b, b.next - 1);
        }
        finish(&b);
}

/* The second frames come on another path, which takes longer. */
TEST(the_second_frames_may_be_behind)
{
        for (uint32_t behind = 1; behind < 50; behind += 6) {
                for (size_t k = 0; k < ARRAY_SIZE(lags); k++) {
                        struct board b;

                        begin(&b, lags[k]);
                        while (b.next < TRIGGERS) {
                                send_next(&b);
                                if (b.next > behind)
                                        send_number(&b, b.next - 1 - behind);
                        }
                        finish(&b);
                }
        }
}

/* Each repeated frame is followed by a pause of the board, which triggers do not wait for. The frames after
 * it are behind by more than usual. */
TEST(a_pause_may_follow_a_repeated_frame)
{
        for (uint32_t pause = 1; pause < 40; pause += 4) {
                for (uint32_t behind = 0; behind < 10; behind += 3) {
                        struct board b;

                        begin(&b, 0);
                        while (b.next < TRIGGERS) {
                                send_next(&b);
                                if (b.next % 50 != 49)
                                        continue;
                                send_number(&b, b.next - 1 - behind);
                                triggers_until(&b, b.next + pause);
                        }
                        finish(&b);
                }
        }
}

/* Among the first frames, a repeated one may be the beginning of a new count: those after it wait until one
 * is as close to the triggers as before. */
TEST(a_frame_may_be_repeated_at_the_beginning)
{
        for (uint32_t at = 1; at < 40; at++) {
                for (uint32_t behind = 0; behind < MIN(at, 5u); behind++) {
                        struct board b;

                        begin(&b, 0);
                        while (b.next < at)
                                send_next(&b);
                        send_number(&b, at - 1 - behind);
                        triggers_until(&b, at + 10);
                        while (b.next < TRIGGERS)
                                send_next(&b);
                        finish(&b);
                }
        }
}

/* The counters were wrong for a while, and follow the triggers again. */
TEST(a_board_with_two_frames_comes_back_in_step)
{
        struct board b;

        begin(&b, 5);
        while (b.next < 100)
                send_next(&b);
        for (uint32_t i = 0; i < ROS_STRAYS_MAX; i++)
                send_number(&b, 40000 + i);
        assert_true(ros_is_out_of_step(b.t.ros));
        while (b.next < TRIGGERS) {
                send_next(&b);
                send_number(&b, b.next - 1);
        }
        assert_false(ros_is_out_of_step(b.t.ros));
        assert_int_equal(ros_queued(b.t.ros, 0).jobs, TRIGGERS);
        assert_counts(ros_counts(b.t.ros), duplicate, TRIGGERS - 100, impossible, ROS_STRAYS_MAX);
        ros_driver_fini(&b.t);
}

/* Some boards say so that they are alive. */
TEST(empty_frames_cost_nothing_but_themselves)
{
        struct ros_fragment f = {};
        struct board b;
        uint64_t at;

        begin(&b, 5);
        for (uint32_t i = 0; b.next < TRIGGERS; i++) {
                send_next(&b);
                for (uint32_t k = 0; k < i % 40; k++, b.frames++, b.t.frames++) {
                        assert_int_equal(ros_arrive(b.t.ros, NULL, &f, &at), ROS_DISCARD);
                        ros_commit(b.t.ros);
                }
        }
        assert_int_equal(ros_queued(b.t.ros, 0).jobs, TRIGGERS);
        assert_counts(ros_counts(b.t.ros), impossible, b.frames - TRIGGERS, restarts, 0);
        ros_driver_fini(&b.t);
}

/* It counts from 0 again, soon after the beginning: none of the new frames is used. */
TEST(a_board_with_two_frames_may_restart)
{
        for (uint32_t before = 1; before < 40; before++) {
                for (uint32_t away = 0; away < 300; away += 50) {
                        struct board b;

                        begin(&b, 0);
                        while (b.next < before) {
                                send_next(&b);
                                send_number(&b, b.next - 1);
                        }
                        for (uint32_t i = 0; i < 120; i++) {
                                triggers_until(&b, before + away + i / 2 + 1);
                                send_number(&b, i / 2);
                        }
                        assert_int_equal(ros_queued(b.t.ros, 0).jobs, before);
                        assert_true(ros_is_out_of_step(b.t.ros));
                        ros_driver_fini(&b.t);
                }
        }
}

/* Its counter stays where it is while triggers come: it does not follow them. */
TEST(a_counter_that_is_stuck_is_out_of_step)
{
        struct board b;

        begin(&b, 0);
        while (b.next < 100)
                send_next(&b);
        for (uint32_t i = 100; i < TRIGGERS; i++) {
                triggers_until(&b, i + 1);
                send_number(&b, 99);
        }
        assert_true(ros_is_out_of_step(b.t.ros));
        assert_int_equal(ros_counts(b.t.ros)->duplicate, TRIGGERS - 100);
        ros_driver_fini(&b.t);
}
