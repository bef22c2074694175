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
        {true, 0, true},     {true, -1e-6, false},  {true, 0.3e-6, true},
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
        assert_int_equal(check()->lost, fabs(p->change) >= 1e-6);
        assert_in_range(b.right, p->is_found ? b.expected - 32 : 400, p->is_found ? b.expected : 400);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n > 0, matcher_counts(b.matcher)->lost > 0);
}

/* The drift was measured for a moment only, so after a short pause, each frame may be of several triggers. Of
 * periodic ones, the first is assumed if it is nearest.
 */
static const struct short_pause {
        bool periodic;
        double drift;
        uint64_t pause_ns;
        bool is_found;
} short_pauses[] = {
        {false, 80e-6, 3 * NS_PER_S, true},  {false, -80e-6, 3 * NS_PER_S, true},
        {false, 190e-6, 4 * NS_PER_S, true}, {false, -190e-6, NS_PER_S / 2, true},
        {true, 30e-6, 3 * NS_PER_S, true},   {true, -190e-6, NS_PER_S / 2, true},
        {true, 80e-6, 3 * NS_PER_S, false},  {true, -80e-6, 3 * NS_PER_S, false},
};

TEST_EACH(a_short_pause_before_the_drift_is_known_mixes_nothing, i, ARRAY_SIZE(short_pauses))
{
        const struct short_pause *p = &short_pauses[i];
        const struct beam beam = {
                .rate_hz = 4000, .periodic = p->periodic, .jitter_ns = 200, .drift = p->drift};
        struct reasons reasons = {};

        begin((uint64_t)i, &beam);
        triggers(3);
        pass_until(b.time_ns + 10 * NS_PER_MS);
        b.time_ns += p->pause_ns;
        triggers(200);
        assert_int_equal(check()->lost, !p->is_found);
        assert_int_equal(b.right, p->is_found ? b.expected : 3);
        matcher_reasons(b.matcher, &reasons);
        assert_true(p->is_found || reasons.n > 0);
}

/* The frame comes before its trigger, and an earlier trigger without a frame is as near. */
TEST(a_frame_after_a_short_pause_waits_for_its_trigger)
{
        const struct beam beam = {.rate_hz = 4000};
        uint64_t frame;

        begin(1, &beam);
        triggers(3);
        settle();
        b.time_ns += NS_PER_S;
        send_trigger(b.time_ns + 10 * NS_PER_US, b.triggers++, b.time_ns, 0);
        frame = b.time_ns += 200 * NS_PER_US;
        send_frame(frame + 20 * NS_PER_US, counter_at(frame), b.triggers);
        deliver(frame + 20 * NS_PER_US);
        send_trigger(frame + 200 * NS_PER_US, b.triggers++, frame, 0);
        b.expected++;
        triggers(100);
        check();
        assert_int_equal(b.right, b.expected);
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

/* Before the next spill, the counters are reset, and perhaps the clock of the board. */
static void next_spill(uint64_t pause_ns, bool has_reset, bool is_clock_reset)
{
        settle();
        b.time_ns += pause_ns;
        pass_until(b.time_ns);
        if (has_reset)
                send_trigger(b.time_ns, b.triggers, b.time_ns, TRIGGER_RESET | TRIGGER_MARKER);
        if (is_clock_reset) {
                b.board_ns = random_below(&b.random, NS_PER_S);
                b.drift_from_ns = b.time_ns;
        }
        b.time_ns += NS_PER_S;
        pass_until(b.time_ns);
}

/* A frame of no trigger comes shortly before that of the first trigger, and as near to this trigger as the
 * drift is uncertain. */
TEST_EACH(a_frame_before_the_first_trigger_after_a_pause_shifts_nothing, i, 16)
{
        static const uint64_t befores_ns[] = {2 * NS_PER_US, 5 * NS_PER_US, 10 * NS_PER_US, 20 * NS_PER_US};
        const struct beam beam = {.rate_hz = 200,
                                  .periodic = i % 2,
                                  .jitter_ns = 200,
                                  .drift = 80e-6,
                                  .double_ns = befores_ns[i / 4]};

        begin((uint64_t)i, &beam);
        triggers(200);
        for (int spill = 0; spill < 3; spill++) {
                next_spill(6 * NS_PER_S, i & 2, false);
                b.beam.doubles = spill == 0 ? 100 : 0;
                trigger();
                b.beam.doubles = 0;
                triggers(199);
        }
        assert_fields(check(), lost, 0, alone, 1, no_offset, 0);
        assert_int_equal(b.chance, 0);
        assert_int_equal(b.right, b.expected);
}

/* One period of the triggers earlier, a frame may look like that of the first trigger by its place, but not
 * by its time. So no offset is assumed, instead of a wrong one. */
TEST(a_pulse_before_the_first_trigger_shows_no_offset)
{
        const struct beam beam = {
                .rate_hz = 10000, .periodic = true, .jitter_ns = 200, .drift = 80e-6, .double_ns = 101000};

        begin(1, &beam);
        triggers(2000);
        next_spill(60 * NS_PER_S, false, false);
        b.beam.doubles = 100;
        trigger();
        b.beam.doubles = 0;
        triggers(199);
        assert_int_equal(check()->lost, 1);
        assert_int_equal(b.chance, 0);
        assert_int_equal(b.right, 2000);
}

/* The old offset, by which each frame may be near several triggers, is not that of the clock after the reset.
 */
TEST_EACH(a_narrow_clock_may_be_reset_after_a_pause, i, 20)
{
        const struct beam beam = {
                .rate_hz = 5000, .jitter_ns = 200, .drift = 80e-6, .bits = i < 10 ? 24 : 48, .tick_ns = 4};

        begin((uint64_t)i, &beam);
        triggers(200);
        for (int spill = 0; spill < 3; spill++) {
                next_spill(6 * NS_PER_S, true, true);
                triggers(200);
        }
        /* Some triggers really come within 1 us of each other. */
        assert_in_range(check()->ambiguous, 0, 10);
        assert_in_range(b.right, b.expected - 64, b.expected);
}

/* In the pause, a clock that starts over after 67 ms gains or loses half of that against the ROS's machine,
 * or more. The clock of the box shows this, unless the drift may change by too much: in 11 hours, by 80 ms.
 */
static const struct narrow_pause {
        double drift;
        uint64_t pause_ns;
        bool is_found;
} narrow_pauses[] = {
        {51e-6, 700 * NS_PER_S, true},     {51e-6, 1000 * NS_PER_S, true},   {-51e-6, 1000 * NS_PER_S, true},
        {100e-6, 5000 * NS_PER_S, true},   {-100e-6, 5000 * NS_PER_S, true}, {0, 5000 * NS_PER_S, true},
        {-40e-6, 40000 * NS_PER_S, false}, {40e-6, 40000 * NS_PER_S, false},
};

TEST_EACH(a_narrow_clock_may_drift_by_half_its_period, i, 2 * ARRAY_SIZE(narrow_pauses))
{
        const struct narrow_pause *p = &narrow_pauses[i / 2];
        const struct beam beam = {.rate_hz = 100,
                                  .periodic = i % 2,
                                  .jitter_ns = 200,
                                  .drift = p->drift,
                                  .bits = 24,
                                  .tick_ns = 4};
        struct reasons reasons = {};

        begin((uint64_t)i, &beam);
        triggers(400);
        next_spill(p->pause_ns, i & 4, false);
        triggers(400);
        check();
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(b.chance, 0);
        assert_true(b.right == b.expected || !p->is_found);
        assert_int_equal(reasons.n > 0, b.right < b.expected);
}

/* After 10,000 s, the drift is known to 20 ms of a period of 419 ms, so the clock would seem to go on by
 * chance. */
TEST_EACH(a_narrow_clock_may_be_reset_after_a_long_silence, i, 40)
{
        const struct beam beam = {.rate_hz = 10,
                                  .periodic = true,
                                  .jitter_ns = 200,
                                  .drift = -91e-6,
                                  .bits = 24,
                                  .tick_ns = 25};

        begin((uint64_t)i, &beam);
        triggers(100);
        next_spill(10000 * NS_PER_S, true, true);
        triggers(100);
        check();
        assert_int_equal(b.right, b.expected);
}

/* A frame of no trigger shows nothing, as no trigger comes at its time. */
TEST(noise_in_a_long_pause_of_a_narrow_clock_shifts_nothing)
{
        const struct beam beam = {.rate_hz = 100,
                                  .periodic = true,
                                  .jitter_ns = 200,
                                  .drift = -51e-6,
                                  .bits = 24,
                                  .tick_ns = 4};
        struct reasons reasons = {};

        begin(1, &beam);
        triggers(400);
        for (int i = 0; i < 10; i++) {
                next_spill(100 * NS_PER_S, false, false);
                fly(b.time_ns, NOISE);
        }
        triggers(400);
        assert_fields(check(), lost, 0, alone, 10, unproven, 0);
        assert_int_equal(b.right, b.expected);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, 0);
}

/* The ROS is held up while the first triggers after a pause come, so it reads their frames late. */
static void hold_up(uint64_t n)
{
        uint64_t counters[16], first = b.triggers, times_ns[16];

        assert_true(n <= ARRAY_SIZE(counters));
        for (uint64_t i = 0; i < n; i++) {
                times_ns[i] = b.time_ns += (uint64_t)interval_ns(b.beam.rate_hz);
                counters[i] = counter_at(b.time_ns);
        }
        b.time_ns += 3 * NS_PER_MS;
        for (uint64_t i = 0; i < n; i++)
                send_trigger(b.time_ns, first + i, times_ns[i], 0);
        for (uint64_t i = 0; i < n; i++)
                assert_int_equal(send_frame(b.time_ns, counters[i], first + i), ROS_STORE);
        b.triggers += n;
        deliver(b.time_ns);
}

/* In the pause, the clock loses more than half of its period. The frame that is read in time shows this only
 * together with the triggers, so the ones before it must not be dated by it alone. */
TEST(frames_read_late_after_a_long_silence_are_in_no_wrong_event)
{
        const struct beam beam = {.rate_hz = 24.18,
                                  .periodic = true,
                                  .jitter_ns = 200,
                                  .drift = -19.7e-6,
                                  .bits = 24,
                                  .tick_ns = 15};

        begin(1, &beam);
        triggers(330);
        next_spill(7937 * NS_PER_S, false, false);
        hold_up(5);
        triggers(50);
        check();
        assert_true(matcher_counts(b.matcher)->unproven > 0);
        assert_int_equal(b.right, 380);
}

/* The core has no room from before one long silence until after the next one. */
TEST_EACH(frames_that_wait_through_silences_are_in_no_wrong_event, i, 4)
{
        const struct beam beam = {.rate_hz = 100,
                                  .periodic = true,
                                  .jitter_ns = 200,
                                  .drift = i & 1 ? -51e-6 : 51e-6,
                                  .bits = 24,
                                  .tick_ns = 4};
        struct reasons reasons = {};

        begin((uint64_t)i, &beam);
        triggers(400);
        settle();
        b.is_full = true;
        triggers(10);
        for (int k = 0; k < 2; k++) {
                b.time_ns += 1000 * NS_PER_S;
                triggers(i & 2 ? 1 : 100);
        }
        b.is_full = false;
        triggers(400);
        check();
        assert_in_range(b.right, b.expected - (i & 2 ? 1 : 100), b.expected);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n > 0, b.right < b.expected);
}

TESTS_BETWEEN(NULL, teardown)
