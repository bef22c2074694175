/* The header of a lost frame follows from those around it, in any order that repeats, over seconds and gaps;
 * and a guess is counted as one. */
#include "../test.h"

#include <stdio.h>

#include "stream/rules/vdif_fill.h"
#include "vdif_sample.h"

#define PER_SECOND 10u

/* An order that repeats: frames of a thread, and the advance of their number until it starts over. */
struct order {
        const char *name;
        uint32_t n, advance;
        struct {
                uint32_t thread, later;
        } frames[16];
        uint32_t begin; /* the first frame of the recording */
};

static const struct order orders[] = {
        {"one thread", 1, 1, {{3, 0}}, 0},
        {"sets", 3, 1, {{5, 0}, {0, 0}, {2, 0}}, 0},
        {"begins within a set", 4, 1, {{0, 0}, {1, 0}, {2, 0}, {3, 0}}, 2},
        {"pairs", 8, 2, {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0}, {3, 1}}, 0},
        {"two senders", 8, 2, {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {3, 0}, {2, 1}, {3, 1}}, 3},
};

static struct vdif_plan plan;
static struct vdif_fill fill;

static void make_frame(const struct order *o, uint8_t *frame, uint64_t sequence)
{
        uint64_t i = o->begin + sequence, number = 8 + i / o->n * o->advance + o->frames[i % o->n].later;

        sample_frame(frame, (uint32_t)(100 + number / PER_SECOND), (uint32_t)(number % PER_SECOND),
                     o->frames[i % o->n].thread, 0xaa);
}

static void begin(const struct order *o, uint32_t frames_per_second)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        make_frame(o, frame, 0);
        assert_int_equal(vdif_plan_begin(&plan, frame, sizeof frame), 0);
        for (uint64_t i = 0; vdif_plan_add(&plan, frame, sizeof frame); i++)
                make_frame(o, frame, i + 1);
        plan.frames_per_second = frames_per_second;
        vdif_fill_begin(&fill, &plan);
}

/* Whether the next frame, which is lost, is filled in as it was. */
static bool is_filled(const struct order *o, uint64_t sequence)
{
        uint8_t expected[SAMPLE_FRAME_BYTES], frame[SAMPLE_FRAME_BYTES] = {};

        make_frame(o, expected, sequence);
        vdif_set_invalid(expected, true);
        vdif_fill_make(&fill, frame);
        return memcmp(frame, expected, VDIF_HEADER_BYTES) == 0;
}

static void record(const struct order *o, uint64_t sequence)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        make_frame(o, frame, sequence);
        vdif_fill_record(&fill, frame);
}

TEST_EACH(any_order_is_followed, k, ARRAY_SIZE(orders))
{
        const struct order *o = &orders[k];

        srand(7);
        begin(o, PER_SECOND);
        /* What the beginning of the recording does not show has to come once. */
        for (uint64_t i = 0; i < 5000; i++) {
                if (i < 2 * o->n && o->n != plan.n_threads)
                        record(o, i);
                else if (rand() % 10 >= 3)
                        record(o, i);
                else if (!is_filled(o, i))
                        fail_msg("%s: frame %llu", o->name, (unsigned long long)i);
        }
        assert_int_equal(fill.unsure, 0);
}

/* What the beginning does not show may be guessed wrongly, but then it is counted, and soon known. */
TEST_EACH(wrong_guesses_are_counted, k, ARRAY_SIZE(orders))
{
        const struct order *o = &orders[k];
        uint64_t wrong = 0, late = 0;

        srand(11);
        begin(o, PER_SECOND);
        for (uint64_t i = 0; i < 5000; i++) {
                if (rand() % 10 >= 3)
                        record(o, i);
                else if (!is_filled(o, i)) {
                        wrong++;
                        late += i >= 20 * o->n;
                }
        }
        /* Two frames that change their places are no wrong guess. */
        assert_int_equal(fill.unsure > 0, wrong > 0);
        assert_int_equal(late, 0);
}

/* A frame of the order "sets" that is given, whatever its place. */
static void record_frame(uint32_t seconds, uint32_t number, uint32_t thread)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        sample_frame(frame, seconds, number, thread, 0xaa);
        vdif_fill_record(&fill, frame);
}

static void check_lost(uint32_t seconds, uint32_t number, uint32_t thread)
{
        uint8_t frame[SAMPLE_FRAME_BYTES] = {};
        struct vdif_header h;

        vdif_fill_make(&fill, frame);
        assert_int_equal(vdif_read(&h, frame, sizeof frame), 0);
        assert_true(h.invalid);
        assert_fields(&h, seconds, seconds, frame, number, thread, thread);
}

static const struct order *const sets = &orders[1];

TEST(a_recording_with_a_gap_is_followed)
{
        begin(sets, PER_SECOND);
        for (uint64_t i = 0; i < 30; i++)
                record(sets, i);
        /* Time is missing in the recording itself. */
        record_frame(500, 3, 5);
        check_lost(500, 3, 0);
        check_lost(500, 3, 2);
        check_lost(500, 4, 5);
        record_frame(500, 4, 0);
        assert_int_equal(fill.unsure, 0);
        /* Time is missing where frames are lost: nobody knows which ones. */
        check_lost(500, 4, 2);
        record_frame(500, 7, 5);
        assert_int_equal(fill.unsure, 1);
        check_lost(500, 7, 0);
        record_frame(500, 7, 2);
        assert_int_equal(fill.unsure, 1);
}

TEST(a_thread_may_come_later)
{
        begin(sets, PER_SECOND);
        for (uint64_t i = 0; i < 6; i++)
                record(sets, i);
        /* From here on there are four. */
        for (uint32_t number = 0; number < 3; number++) {
                record_frame(101, number, 5);
                record_frame(101, number, 0);
                record_frame(101, number, 2);
                record_frame(101, number, 9);
        }
        check_lost(101, 3, 5);
        check_lost(101, 3, 0);
        check_lost(101, 3, 2);
        check_lost(101, 3, 9);
        check_lost(101, 4, 5);
        record_frame(101, 4, 0);
        assert_int_equal(fill.unsure, 0);
}

/* Zeros as time and thread, in place of frames that a player did not have; and damaged headers. */
TEST(fillers_set_no_time_and_take_their_places)
{
        uint8_t filler[SAMPLE_FRAME_BYTES], damaged[SAMPLE_FRAME_BYTES] = {};

        sample_frame(filler, 0, 0, 0, 0);
        vdif_set_invalid(filler, true);
        srand(5);
        begin(sets, PER_SECOND);
        for (uint64_t i = 0; i < 2000; i++) {
                int chance = rand() % 10;

                if (chance == 0)
                        vdif_fill_record(&fill, filler);
                else if (chance == 1)
                        vdif_fill_record(&fill, damaged);
                else if (chance > 4)
                        record(sets, i);
                else
                        assert_true(is_filled(sets, i));
        }
        assert_fields(&fill, unsure, 0, frames_per_second, PER_SECOND);
}

/* As the correlator at the DRAO writes them: no frame tells of another. */
TEST(frames_without_an_order_are_guesses)
{
        static const uint32_t times[][2] = {{363, 162}, {354, 87},  {355, 80}, {355, 80}, {349, 133},
                                            {349, 134}, {349, 134}, {352, 50}, {352, 50}, {362, 245}};
        uint8_t frame[SAMPLE_FRAME_BYTES] = {};

        sample_frame(frame, 77, 363, 162, 0);
        assert_int_equal(vdif_plan_begin(&plan, frame, sizeof frame), 0);
        assert_true(vdif_plan_add(&plan, frame, sizeof frame));
        vdif_fill_begin(&fill, &plan);
        for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
                if (i != 2 && i != 5 && i != 6)
                        record_frame(77, times[i][0], times[i][1]);
                else
                        vdif_fill_make(&fill, frame);
        }
        assert_int_equal(fill.unsure, 3);
        /* The thread and time of the last frame are the best that is known. */
        check_lost(77, 362, 245);
        assert_int_equal(fill.unsure, 4);
}

TEST(without_a_rate_seconds_stay)
{
        begin(sets, 0);
        for (uint32_t i = 0; i < 30; i++)
                check_lost(100, 8 + i / 3, sets->frames[i % 3].thread);
}

TEST(the_rate_is_learned)
{
        begin(sets, 0);
        record(sets, 0);
        assert_int_equal(fill.frames_per_second, 0);
        for (uint64_t i = 1; i < 15; i++)
                (void)is_filled(sets, i);
        /* A frame that contradicts the order. */
        record_frame(101, 30, 5);
        assert_int_equal(fill.frames_per_second, 0);
        begin(sets, 0);
        record(sets, 0);
        for (uint64_t i = 1; i < 50; i++)
                (void)is_filled(sets, i);
        /* Two seconds later. */
        record(sets, 50);
        assert_fields(&fill, frames_per_second, PER_SECOND, unsure, 0);
        for (uint64_t i = 51; i < 200; i++)
                assert_true(is_filled(sets, i));
        record_frame(500, 3, 5);
        assert_int_equal(fill.frames_per_second, PER_SECOND);
}

/* As in a recording of the VLBA. */
TEST(threads_may_have_seconds_of_their_own)
{
        static const uint32_t seconds[] = {100, 60, 100};
        uint8_t frame[SAMPLE_FRAME_BYTES];

        sample_frame(frame, 100, 0, 0, 0);
        assert_int_equal(vdif_plan_begin(&plan, frame, sizeof frame), 0);
        for (uint32_t i = 0; i < 3; i++) {
                sample_frame(frame, seconds[i], 0, i, 0);
                assert_true(vdif_plan_add(&plan, frame, sizeof frame));
        }
        vdif_fill_begin(&fill, &plan);
        for (uint32_t i = 0; i < 300; i++) {
                uint32_t number = i / 3, second = seconds[i % 3] + number / PER_SECOND;

                if (i > 3 * PER_SECOND && i % 4 == 0)
                        check_lost(second, number % PER_SECOND, i % 3);
                else
                        record_frame(second, number % PER_SECOND, i % 3);
        }
        assert_fields(&fill, frames_per_second, PER_SECOND, unsure, 0);
}

/* The first frames of the first second that begins are lost. */
TEST(the_rate_is_learned_from_what_follows_a_gap)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];

        begin(sets, 0);
        for (uint64_t i = 0; i < 5; i++)
                record(sets, i);
        make_frame(sets, frame, 9);
        vdif_fill_look_ahead(&fill, 4, frame);
        assert_int_equal(fill.frames_per_second, PER_SECOND);
        for (uint64_t i = 5; i < 9; i++)
                assert_true(is_filled(sets, i));
        vdif_fill_record(&fill, frame);
        assert_int_equal(fill.unsure, 0);
}

/* A header states twice the rate, or half. */
TEST(frames_correct_the_rate_of_a_header)
{
        static const uint32_t wrong[] = {2 * PER_SECOND, PER_SECOND / 2};

        for (size_t k = 0; k < ARRAY_SIZE(wrong); k++) {
                begin(sets, wrong[k]);
                for (uint64_t i = 0; i < 8; i++)
                        record(sets, i);
                assert_int_equal(fill.frames_per_second, PER_SECOND);
                for (uint64_t i = 8; i < 100; i++)
                        assert_true(is_filled(sets, i));
        }
        /* Time that is missing between two seconds is no other rate; nor is a wrong number. */
        begin(sets, PER_SECOND);
        record(sets, 0);
        record_frame(101, 0, 0);
        assert_int_equal(fill.frames_per_second, PER_SECOND);
        record_frame(101, 5000, 2);
        record_frame(101, 1, 5);
        assert_int_equal(fill.frames_per_second, PER_SECOND);
}

/* Returns the time of the scan that the frame of this second begins, with one more of this second after it;
 * 0: none. Records the frame. */
static int64_t add_to_scan(struct vdif_scan *s, uint32_t seconds, bool invalid)
{
        uint8_t frame[SAMPLE_FRAME_BYTES];
        int64_t now_s = 0;

        sample_frame(frame, seconds, 5, 0, 0);
        vdif_set_invalid(frame, invalid);
        if (!vdif_scan_is_due(s, &plan, frame, frame, &now_s))
                now_s = 0;
        else
                vdif_scan_begin(s, now_s);
        vdif_scan_record(s, &plan, frame);
        return now_s > 0 ? now_s - 1388534400 : 0; /* since 2014 */
}

TEST(a_scan_begins_at_a_multiple_of_its_time)
{
        struct vdif_scan s = {.each_s = 60};

        begin(&orders[0], 0);
        vdif_scan_begin(&s, 1388534400 + 100);
        for (uint32_t seconds = 100; seconds < 300; seconds++)
                assert_int_equal(add_to_scan(&s, seconds, false), seconds % 60 == 0 ? seconds : 0);
        /* Its first frames are missing; one of another thread is late. */
        assert_int_equal(add_to_scan(&s, 300, true), 0);
        assert_int_equal(add_to_scan(&s, 301, false), 301);
        assert_int_equal(add_to_scan(&s, 299, false), 0);
        assert_int_equal(add_to_scan(&s, 359, false), 0);
        assert_int_equal(add_to_scan(&s, 1000, false), 1000);
        assert_int_equal(add_to_scan(&s, 1000000, false), 1000000); /* after a pause */
        assert_int_equal(s.unconfirmed, 0);
        s.each_s = 0;
        assert_int_equal(add_to_scan(&s, 1000100, false), 0);
}

/* The time of a frame that comes an hour after the previous one, that of the frame after it, and whether it
 * begins a scan. */
TEST(a_wrong_time_begins_no_scan)
{
        static const struct {
                uint32_t seconds, next;
                bool due;
        } cases[] = {{3700, 100, false}, {3700, 159, false},  {3700, 3700, true}, {3700, 3701, true},
                     {3700, 3699, true}, {3700, 9999, false}, {101, 100, false},  {160, 161, false},
                     {3700, 200, false}, {180, 179, false},   {180, 180, true}};
        struct vdif_scan s = {.each_s = 60};
        uint8_t frame[SAMPLE_FRAME_BYTES], next[SAMPLE_FRAME_BYTES];
        int64_t now_s;

        begin(&orders[0], 0);
        vdif_scan_begin(&s, 1388534400 + 130);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                sample_frame(frame, cases[i].seconds, 5, 0, 0);
                sample_frame(next, cases[i].next, 5, 0, 0);
                assert_int_equal(vdif_scan_is_due(&s, &plan, frame, next, &now_s), cases[i].due);
                assert_int_equal(vdif_scan_needs_next(&s, &plan, frame), cases[i].seconds >= 180);
        }
        /* The last frame of a stream has none after it. */
        sample_frame(frame, 3700, 5, 0, 0);
        assert_false(vdif_scan_is_due(&s, &plan, frame, NULL, &now_s));
        vdif_scan_record(&s, &plan, frame);
        assert_int_equal(s.unconfirmed, 1);
        /* At the end of a scan, the next frame does not matter. */
        sample_frame(frame, 179, 5, 0, 0);
        vdif_scan_record(&s, &plan, frame);
        sample_frame(frame, 180, 5, 0, 0);
        sample_frame(next, 100, 5, 0, 0);
        assert_true(vdif_scan_is_due(&s, &plan, frame, next, &now_s));
}
