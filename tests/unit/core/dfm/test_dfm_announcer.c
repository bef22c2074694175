/* The streams in which ROSs announce the numbers of frames: each number is taken over once, and counted. */
#include "dfm_order_driver.h"
#include "base/random.h"

FRAMES_TEST(numbers_without_room_wait_in_the_ros, 2, 16, 7)
{
        assert_dfm_says(t, "");
        /* 14 of 16 places are for numbers ahead. */
        announce_range(t, 0, 9, 20);
        assert_dfm_says_after(t, 5 * NS_PER_MS,
                              "ros0: NumbersAck 15 | ros1: NumbersAck 1 | sfi0: UpdateAck 1");
        assert_int_equal(t->dfm->order.n, 14);
        announce_range(t, 1, 8, 16);
        assert_takes(t, "8 9 10 11 12 13 14 15 16 17 18 19 20 21 22");
        numbers_next[0] = 15;
        announce_range(t, 0, 23, 6);
        numbers_next[1] = 16;
        announce_range(t, 1, 23, 6);
        assert_takes(t, "23 24 25 26 27 28");
}

FRAMES_TEST(a_blocked_ros_learns_of_room, 2, 16, 7)
{
        announce_range(t, 0, 8, 15);
        assert_dfm_says_after(t, 5 * NS_PER_MS,
                              "ros0: NumbersAck 15 | ros1: NumbersAck 1 | sfi0: UpdateAck 1");
        announce_range(t, 1, 8, 6);
        assert_int_equal(went_on, 0);
        assert_takes(t, "8 9 10 11 12 13");
        assert_int_equal(went_on, 1);
        assert_dfm_says_after(t, 5 * NS_PER_MS, "ros1: NumbersAck 7 | sfi0: UpdateAck 7");
}

/* Triggers are held back: numbers wait in the queue, then here, then in the ROSs; none is lost. */
FRAMES_TEST(numbers_wait_for_credits, 2, 64, 7, c.trigger_queue = 4)
{
        ros_says_switch(t, 0, false);
        announce_range(t, 0, 8, 20);
        announce_range(t, 1, 8, 20);
        assert_takes(t, "");
        assert_takes_after(t, 10 * NS_PER_S, "");
        assert_int_equal(dfm_run_view(t->dfm).waiting, 4);
        assert_int_equal(t->dfm->order.n, 16);
        ros_says_switch(t, 0, true);
        assert_takes(t, "8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27");
        assert_int_equal(offered(t)->refused, 0);
}

FRAMES_TEST(streams_lose_nothing_and_repeat_nothing, 2, 64, 7)
{
        announce_range(t, 1, 8, 8);
        /* A lost message: the next one is ignored until the first is repeated. */
        numbers_next[0] += 2;
        announce_range(t, 0, 10, 2);
        assert_takes(t, "");
        numbers_next[0] -= 4;
        announce_range(t, 0, 8, 4);
        assert_takes(t, "8 9 10 11");
        numbers_next[0] -= 4;
        announce_range(t, 0, 8, 4);
        assert_takes(t, "");
        assert_int_equal(dfm_counts(t->dfm)->announced.confirmed, 5);
        /* A previous process of the ROS, and a foreign sender. */
        t->message.n = 1;
        t->message.announced.incarnation = 2;
        driver_say(t, ROLE_ROS, 0, MESSAGE_NUMBERS, 0);
        assert_int_equal(dfm_counts(t->dfm)->foreign, 1);
        assert_false(driver_say(t, ROLE_SFI, 0, MESSAGE_NUMBERS, 0));
        assert_false(driver_say(t, ROLE_ROS, 2, MESSAGE_NUMBERS, 0));
}

static void say_anything(struct dfm_driver *t, struct random *r, uint32_t base)
{
        uint16_t ros = (uint16_t)random_below(r, 3);
        uint32_t sequence = numbers_next[ros];

        if (random_below(r, 8) == 0)
                sequence += (uint32_t)random_below(r, 9) - 4;
        if (random_below(r, 50) == 0)
                sequence = (uint32_t)random_next(r);
        t->message.n = random_below(r, 6);
        t->message.announced.incarnation = random_below(r, 30) > 0;
        t->message.announced.resets = t->resets - (random_below(r, 30) == 0);
        t->message.announced.knows = random_below(r, 2);
        t->message.announced.last = false;
        t->message.announced.next = (uint32_t)random_next(r);
        for (size_t k = 0; k < t->message.n; k++)
                t->message.announced.numbers[k] = random_below(r, 10) > 0
                                                          ? base + (uint32_t)random_below(r, 40)
                                                          : (uint32_t)random_next(r);
        if (t->message.announced.incarnation == 1 && t->message.announced.resets == t->resets &&
            sequence == numbers_next[ros])
                numbers_next[ros] += (uint32_t)t->message.n;
        assert_true(driver_say(t, ROLE_ROS, ros, MESSAGE_NUMBERS, sequence));
}

/* Each number that is taken over is offered once, or counted; and the DFM never has work that it does not do.
 */
FRAMES_TEST(whatever_ross_announce_is_counted, 3, 64, 7)
{
        struct random r;

        random_init(&r, 1);
        for (uint32_t round = 0; round < 20000; round++) {
                const struct dfm_counts *counts = dfm_counts(t->dfm);
                uint32_t resets = t->resets;

                say_anything(t, &r, round / 4);
                if (random_below(&r, 100) == 0)
                        ros_says_alive(t, (uint16_t)random_below(&r, 3), RUN_RUNNING, ALIVE_OUT_OF_STEP);
                dfm_pass_ns(t, random_below(&r, 20) * NS_PER_MS);
                if (random_below(&r, 4) == 0)
                        takes(t);
                if (t->resets != resets)
                        memset(numbers_acked, 0, sizeof numbers_acked);
                if (t->resets != resets || random_below(&r, 20) == 0)
                        memcpy(numbers_next, numbers_acked, sizeof numbers_next);
                assert_int_equal(counts->announced.numbers, counts->offered.triggers +
                                                                    counts->announced.confirmed +
                                                                    counts->announced.late + t->dfm->order.n);
        }
        for (int k = 0; k < 3; k++)
                takes(t);
        assert_true(dfm_deadline_ns(t->dfm) > t->now_ns);
        assert_true(dfm_counts(t->dfm)->triggers > 1000);
}

/* Another DFM process: numbers that ROSs already have as triggers count as accepted, and the run continues
 * with the next number. */
DFM_TEST_AS(a_resumed_run_continues, frames_config(2, 64), dfm_driver_init(t, &c))
{
        memset(numbers_next, 0, sizeof numbers_next);
        t->resets = 1;
        all_say_alive(t);
        sfi_grants(t, 0, 1000);
        assert_takes(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        /* Numbers that come before all ROSs have said what they know are not taken over. */
        announce_after(t, 0, 70000, NULL, 0);
        assert_dfm_says(t, "ros0: NumbersAck 0");
        announce_after(t, 0, 70000, (const uint32_t[]){70000, 70001}, 2);
        assert_dfm_says(t, "");
        assert_dfm_says_after(t, 5 * NS_PER_MS, "ros0: NumbersAck 0");
        announce_after(t, 1, 70001, NULL, 0);
        assert_dfm_says(t, "ros1: NumbersAck 0 | ros0: NumbersAck 0 go on");
        numbers_next[0] = 0;
        announce_after(t, 0, 70000, (const uint32_t[]){70000, 70001}, 2);
        announce_after(t, 1, 70001, (const uint32_t[]){70001}, 1);
        assert_takes(t, "70001");
        assert_int_equal(dfm_counts(t->dfm)->announced.confirmed, 2);
}

static bool was_seen(const struct dfm_came *c, uint64_t number)
{
        return bits_get(c->seen, number % DFM_NUMBERS_WINDOW);
}

/* Four triggers became events, two of them since the record, in which bit k of `seen` is for the number k.
 * Both ROSs were replaced and have no triggers. */
static void resume_with(struct dfm_driver *t, bool has_record, uint64_t next, uint32_t waiting, uint64_t seen,
                        uint64_t missing)
{
        struct dfm_config c = frames_config(2, 64);

        c.previous_processes = !has_record ? NULL
                                           : outside_record((struct dfm_came){.offered.missing = missing,
                                                                              .next = next,
                                                                              .waiting = waiting,
                                                                              .seen = {seen},
                                                                              .numbered = true});
        memset(numbers_next, 0, sizeof numbers_next);
        outside_resumes(t, &c);
        assert_takes(t, "");
        assert_int_equal(dfm_state(t->dfm), RUN_RUNNING);
        sfi_grants(t, 0, 1000);
        for (uint16_t i = 0; i < 2; i++)
                announced(t, i, NULL, 0);
        assert_takes(t, "");
}

static void with_ross_that_know_none(bool has_record, const char *taken)
{
        struct dfm_driver t;

        resume_with(&t, has_record, 13, 1, 7 << 10, 0);
        for (uint16_t i = 0; i < 2; i++)
                announce_range(&t, i, 13, 2);
        assert_takes(&t, taken);
        assert_int_equal(offered(&t)->unclear, !has_record);
        dfm_driver_fini(&t);
}

TEST(no_number_becomes_an_event_twice)
{
        with_ross_that_know_none(true, "14");
        with_ross_that_know_none(false, "13 14");
}

/* 9 and 12 were events, and 13 and 14 are. */
DFM_TEST_AS(a_number_that_was_missing_comes_under_another_dfm, dfm_standard(),
            resume_with(t, true, 13, 0, 1 << 9 | 1 << 12, 2))
{
        for (uint16_t i = 0; i < 2; i++)
                announced(t, i, (const uint32_t[]){13, 11, 12, 15}, 4);
        assert_takes(t, "11 15");
        assert_counts(offered(t), missing, 1, unclear, 0);
}

/* 10 to 16 without 14 waited behind 8 and 9, and the first two of them became events. */
DFM_TEST_AS(what_waited_in_the_previous_dfm_comes_again, dfm_standard(),
            resume_with(t, true, 17, 6, 0x1ff00 & ~(1 << 14), 1))
{
        for (uint16_t i = 0; i < 2; i++)
                announced(t, i, (const uint32_t[]){10, 11, 12, 13, 15, 16}, 6);
        assert_takes(t, "12 13 15 16");
        assert_int_equal(offered(t)->missing, 1);
}

/* One that waited is further back than the record tells. */
DFM_TEST_AS(what_waited_too_far_apart_is_not_known, dfm_standard(), resume_with(t, true, 5000, 3, 0, 0))
{
        assert_int_equal(offered(t)->unclear, 1);
}

/* Another DFM counts on from the record: a number that is not the next one would let it take another one for
 * an event. */
FRAMES_TEST(a_late_number_is_recorded, 2, 64, 7)
{
        uint64_t version;

        version = dfm_processes_version(t->dfm);
        announce_one(t, 0, 9);
        announce_one(t, 1, 9);
        assert_takes(t, "9");
        assert_true(dfm_processes_version(t->dfm) > version);
        version = dfm_processes_version(t->dfm);
        announce_one(t, 0, 8);
        assert_takes(t, "8");
        assert_true(dfm_processes_version(t->dfm) > version);
}

/* The first one before its NumbersAck, further ones by the next KeepAlive: another DFM does not call the run
 * complete. */
FRAMES_TEST(numbers_too_late_are_recorded, 2, 64, 6007)
{
        static struct dfm_processes record;
        uint64_t version = dfm_processes_version(t->dfm);

        announce_one(t, 0, 1);
        (void)dfm_makes(t);
        assert_int_equal(dfm_processes_version(t->dfm), version + 1);
        assert_takes(t, "");
        announce_one(t, 0, 2);
        assert_takes(t, "");
        assert_int_equal(dfm_processes_version(t->dfm), version + 1);
        assert_takes_after(t, c.keep_alive_ns, "");
        assert_true(dfm_processes_version(t->dfm) > version + 1);
        dfm_processes_fill(t->dfm, &record);
        assert_int_equal(record.figures.announced.late, 2);
}

/* What the record says of the announced numbers counts on. */
TEST(announced_numbers_count_on)
{
        const struct dfm_announced before = {.numbers = 12, .confirmed = 5, .late = 3};
        struct dfm_config c = frames_config(2, 64);
        struct dfm_processes *record = (struct dfm_processes *)outside_record(
                (struct dfm_came){.next = 13, .seen = {0xff << 5}, .numbered = true});
        struct dfm_driver t;

        record->figures.announced = before;
        c.previous_processes = record;
        memset(numbers_next, 0, sizeof numbers_next);
        outside_resumes(&t, &c);
        assert_takes(&t, "");
        assert_counts(&dfm_counts(t.dfm)->announced, numbers, 4 + 5 + 3, confirmed, 5, late, 3);
        dfm_driver_fini(&t);
}

TEST(a_late_number_that_waits_is_recorded_as_missing)
{
        static struct dfm_processes record;
        struct dfm_config c = frames_config(2, 64);
        struct dfm_driver t;

        memset(numbers_next, 0, sizeof numbers_next);
        dfm_driver_start(&t, &c);
        ross_know(&t, 1);
        for (uint32_t k = 0; k < 6; k++) {
                announce_one(&t, k % 2, (const uint32_t[]){7, 9, 8}[k / 2]);
                assert_takes(&t, "");
        }
        dfm_processes_fill(t.dfm, &record);
        assert_fields(&record.came, next, 10, waiting, 2);
        assert_true(was_seen(&record.came, 7) && was_seen(&record.came, 9) && !was_seen(&record.came, 8));
        sfi_grants(&t, 0, 1000);
        assert_takes(&t, "7 9 8");
        dfm_processes_fill(t.dfm, &record);
        assert_int_equal(record.came.waiting, 0);
        assert_true(was_seen(&record.came, 8));
        dfm_driver_fini(&t);
}

/* Passes some keep-alive times; each ROS reports its frames. Returns whether the DFM waits for the leader. */
static bool awaits(struct dfm_driver *t, unsigned times, const uint64_t frames[static 2],
                   const uint64_t more[static 2])
{
        bool found = false;

        for (unsigned k = 1; k <= times; k++) {
                dfm_pass_ns(t, t->config.keep_alive_ns);
                sfi_says_alive(t, 0, RUN_RUNNING, 0);
                for (uint16_t i = 0; i < 2; i++)
                        ros_reports(t, i, .frames = frames[i] + k * more[i]);
                found = keep_alive_flags(t) & KEEP_ALIVE_AWAITS_FRAMES;
        }
        return found;
}

/* Frames of other boards show that the leader should send some. After the last trigger, all are silent. */
DFM_TEST_AS(a_silent_leader_is_awaited, frames_config(2, 64), start(t, &c),
            c.ros_rules = (const struct ros_rule[]){{.frames = true, .leads = true}, {.frames = true}})
{
        assert_false(awaits(t, 6, (uint64_t[]){0, 0}, (uint64_t[]){0, 0}));
        assert_false(awaits(t, 6, (uint64_t[]){0, 0}, (uint64_t[]){10, 10}));
        assert_false(awaits(t, 2, (uint64_t[]){60, 60}, (uint64_t[]){0, 1}));
        assert_false(awaits(t, 6, (uint64_t[]){60, 62}, (uint64_t[]){0, 0}));
        assert_true(awaits(t, 6, (uint64_t[]){60, 62}, (uint64_t[]){0, 10}));
        assert_false(awaits(t, 1, (uint64_t[]){60, 122}, (uint64_t[]){10, 10}));
}
