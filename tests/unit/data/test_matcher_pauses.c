/* Frames of a board with a clock of its own, if no trigger comes for a while, so that its drift may change,
 * or if the board sends two frames for each trigger: frames may be in no event, but not in a wrong one. */
#include "matcher_bench.h"

/* The drift is known, so its product with a long pause shows. */
TEST(a_board_continues_after_long_pauses)
{
        const struct beam beam = {.rate_hz = 1000, .jitter_ns = 200, .drift = 100e-6};

        begin(1, &beam);
        for (int i = 0; i < 4; i++) {
                triggers(2000);
                b.time_ns += 1000 * NS_PER_S;
        }
        assert_fields(check(), lost, 0, alone, 0);
        assert_int_equal(b.right, b.expected);
}

/* In the middle of a pause, the drift changes. */
static void pause_beam(uint64_t pause_ns, double change)
{
        settle();
        b.time_ns += pause_ns / 2;
        b.board_ns += (uint64_t)llround(b.beam.drift * (double)(b.time_ns - b.drift_from_ns));
        b.drift_from_ns = b.time_ns;
        b.beam.drift += change;
        b.time_ns += pause_ns / 2;
        pass_until(b.time_ns);
}

/* By up to 2 ppb per second, and 2 ppm, frames find their triggers; also periodic ones, if all offsets that
 * are possible are within half of their period. */
static const struct pause {
        bool periodic;
        uint64_t pause_ns;
        double change;
} pauses[] = {
        {false, 30 * NS_PER_S, 5e-8},   {true, 30 * NS_PER_S, 5e-8},     {false, 60 * NS_PER_S, 1e-7},
        {true, 60 * NS_PER_S, 1e-7},    {false, 600 * NS_PER_S, 1e-6},   {true, 600 * NS_PER_S, 1e-6},
        {false, 3600 * NS_PER_S, 2e-6}, {false, 36000 * NS_PER_S, 2e-6},
};

TEST_EACH(the_drift_may_change_in_a_pause, i, ARRAY_SIZE(pauses))
{
        const struct pause *p = &pauses[i];
        const struct beam beam = {.rate_hz = 200, .periodic = p->periodic, .jitter_ns = 200, .drift = 5e-6};
        struct reasons reasons = {};

        begin((uint64_t)i, &beam);
        triggers(400);
        for (int k = 0; k < 4; k++) {
                pause_beam(p->pause_ns, k % 2 ? -p->change : p->change);
                triggers(400);
        }
        assert_fields(check(), lost, 0, alone, 0, ambiguous, 0);
        assert_int_equal(b.right, b.expected);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, 0);
}

/* The drift changes by more than that, or more than one trigger is possible: periodic triggers show no offset
 * then, random ones show it anew. If the first frame also comes at the time of the first trigger, it is used.
 */
static const struct long_pause {
        bool periodic;
        double change;
        bool is_found;
} long_pauses[] = {
        {true, 0, true},     {true, -1e-6, true},   {true, 0.3e-6, true},
        {true, 1e-6, false}, {true, 1.5e-6, false}, {false, 20e-6, true},
};

TEST_EACH(frames_are_in_no_wrong_event_after_a_long_pause, i, ARRAY_SIZE(long_pauses))
{
        const struct long_pause *p = &long_pauses[i];
        const struct beam beam = {.rate_hz = 200, .periodic = p->periodic, .jitter_ns = 200, .drift = 80e-6};
        struct reasons reasons = {};

        begin((uint64_t)i, &beam);
        triggers(400);
        pause_beam(7200 * NS_PER_S, 2 * p->change);
        triggers(400);
        assert_int_equal(check()->lost, p->change >= 1e-6);
        assert_in_range(b.right, p->is_found ? b.expected - 32 : 400, p->is_found ? b.expected : 400);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n > 0, matcher_counts(b.matcher)->lost > 0);
}

/* Another frame comes 50 us before that of each second or third trigger: after a pause, it is as near to the
 * trigger as the drift is uncertain. If such a frame comes with each trigger, both offsets are possible, and
 * none is assumed. */
TEST_EACH(double_pulses_shift_nothing, i, 18)
{
        static const unsigned percents[] = {40, 90, 100};
        const struct beam beam = {.rate_hz = i < 6 ? 200 : 60,
                                  .periodic = i % 2,
                                  .jitter_ns = 200,
                                  .drift = 11e-6,
                                  .doubles = i < 6 ? 0 : percents[i / 2 % 3],
                                  .double_ns = 50 * NS_PER_US};

        begin((uint64_t)i, &beam);
        triggers(i < 6 ? 400 : 100);
        b.beam.doubles = percents[i / 2 % 3];
        pause_beam(300 * NS_PER_S, 0);
        triggers(i < 6 ? 400 : 100);
        check();
        assert_int_equal(b.chance, 0);
        if (i < 2)
                assert_int_equal(b.right, b.expected);
}

TESTS_BETWEEN(NULL, teardown)
