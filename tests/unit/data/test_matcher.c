/* Frames of a board with a clock of its own find their triggers by time. */
#include "matcher_bench.h"

/* At any rate and with any drift, all frames find their triggers, from the first one on. */
TEST_EACH(all_frames_find_their_triggers, i, 36)
{
        static const double rates[] = {1, 30, 1000, 20000}, drifts[] = {0, 100e-6, -100e-6};
        const struct beam beam = {.rate_hz = rates[i % 4],
                                  .drift = drifts[i / 4 % 3],
                                  .jitter_ns = 200,
                                  .bits = i < 24 ? 0 : 32,
                                  .tick_ns = i < 12 ? 1 : 8};
        const struct board_clock *clock;

        begin((uint64_t)i, &beam);
        triggers(beam.rate_hz < 100 ? 2000 : 10000);
        assert_fields(check(), alone, 0, doubled, 0, lost, 0);
        assert_int_equal(b.right, b.expected);
        clock = matcher_clock(b.matcher);
        assert_true(beam.rate_hz > 300 || (clock->known && fabs(clock->drift - beam.drift) < 1e-6));
}

/* Frames and triggers are missing, and there are frames of no trigger. */
TEST_EACH(missing_frames_and_triggers_shift_nothing, i, 24)
{
        static const double rates[] = {30, 1000, 3000}, drifts[] = {100e-6, -100e-6};
        const struct beam beam = {.rate_hz = rates[i % 3],
                                  .noise_hz = i % 4 < 2 ? 0 : 3 * rates[i % 3],
                                  .drift = drifts[i / 3 % 2],
                                  .jitter_ns = 200,
                                  .frames_missing = 5,
                                  .triggers_missing = 5};
        const struct matcher_counts *c;

        begin((uint64_t)i, &beam);
        triggers(3000);
        c = check();
        assert_int_equal(c->lost, 0);
        /* While the offset was not known, frames may have waited in vain. */
        assert_in_range(b.right + c->doubled, b.expected - 64, b.expected + b.noise / 100);
        assert_in_range(b.chance, 0, b.noise / 100);
}

/* A ROS that starts in the middle of a run does not know which frame belongs to which trigger. */
TEST_EACH(a_restarted_ros_finds_the_offset, i, 12)
{
        static const double rates[] = {30, 1000, 5000};
        const struct beam beam = {
                .rate_hz = rates[i % 3], .drift = 80e-6, .jitter_ns = 200, .frames_missing = i < 6 ? 0 : 20};

        begin((uint64_t)i, &beam);
        triggers(200);
        teardown(NULL);
        begin_matcher(FRAMES_MAX);
        b.begins = false;
        triggers(1000);
        assert_int_equal(check()->lost, 0);
        assert_in_range(b.right, b.expected - 64, b.expected);
}

/* If triggers are periodic, many offsets are possible: none is assumed, unless the run begins there. */
TEST_EACH(periodic_triggers_show_no_offset, i, 4)
{
        const struct beam beam = {
                .rate_hz = i < 2 ? 50 : 4000, .periodic = true, .drift = 50e-6, .jitter_ns = 200};
        bool begins = i % 2;
        struct reasons reasons = {};

        begin(1, &beam);
        b.begins = begins;
        triggers(3000);
        assert_fields(check(), alone, begins ? 0 : 3000, no_offset, begins ? 0 : 3000);
        assert_int_equal(b.right, begins ? b.expected : 0);
        assert_int_equal(matcher_is_aligned(b.matcher), begins);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, !begins);
}

/* Frames before the first trigger, or without any, are no fault. */
TEST(frames_without_triggers_need_no_offset)
{
        const struct beam beam = {.rate_hz = 200, .triggers_missing = 100};
        struct reasons reasons = {};

        begin(1, &beam);
        triggers(100);
        assert_fields(check(), alone, 100, no_offset, 0);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, 0);
}

/* The clock of the board is set, and triggers are periodic from then on. */
TEST(an_offset_that_is_lost_for_good_is_reported)
{
        const struct beam beam = {.rate_hz = 1000, .jitter_ns = 200};
        struct reasons reasons = {};

        begin(1, &beam);
        triggers(1000);
        settle();
        b.board_ns += 10 * NS_PER_S;
        b.beam.periodic = true;
        triggers(1000);
        assert_int_equal(check()->lost, 1);
        assert_in_range(matcher_counts(b.matcher)->no_offset, 900, 1000);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, 2);
}

/* The network loses the first triggers on their way to this ROS, which learns the number of the first one
 * from the DFM. Frames wait for 100 ms before the first trigger comes. */
TEST_EACH(the_first_triggers_may_be_lost, i, 6)
{
        const struct beam beam = {
                .rate_hz = 200, .periodic = true, .jitter_ns = 200, .triggers_missing = 100};
        static const uint64_t losts[] = {1, 10, 40};
        uint64_t lost = losts[i % 3];
        bool found = i < 2, known = i < 3;

        begin((uint64_t)i, &beam);
        for (int run = 0; run < 2; run++) {
                uint64_t first = b.triggers;

                b.beam.triggers_missing = 100;
                triggers(lost);
                b.beam.triggers_missing = 0;
                triggers(1);
                if (known)
                        matcher_set_first(b.matcher, (uint32_t)first);
                triggers(1000);
                settle();
                assert_int_equal(b.right, found ? b.expected : 0);
                assert_int_equal(b.wrong, 0);
                assert_fields(matcher_counts(b.matcher), contradicted, 0, lost, 0, not_here,
                              known ? lost : 0);
                begin_matcher(FRAMES_MAX);
        }
}

/* The board also sends frames before the first trigger of the run, or after a reset with which its clock
 * begins again. With periodic triggers, nothing shows which frame is the first trigger's. */
static const struct early {
        double rate_hz;
        unsigned frames;
        bool is_periodic, resets;
} earlies[] = {
        {200, 1, true, false},  {200, 15, true, false},  {200, 400, true, false}, {1000, 3, true, false},
        {3, 1, true, false},    {200, 1, true, true},    {200, 50, true, true},   {0.7, 1, true, false},
        {200, 50, false, true}, {200, 50, false, false}, {200, 0, true, false},
};

TEST_EACH(frames_before_the_first_trigger_shift_nothing, i, ARRAY_SIZE(earlies))
{
        const struct early *e = &earlies[i];
        const struct beam beam = {
                .rate_hz = e->rate_hz, .periodic = e->is_periodic, .jitter_ns = 200, .drift = 30e-6};
        bool is_hidden = e->is_periodic && e->frames > 0 && e->rate_hz > 1;
        uint64_t before = 0;

        begin((uint64_t)i, &beam);
        if (e->resets) {
                triggers(500);
                settle();
                before = b.right;
                b.time_ns += 3 * NS_PER_S;
                send_trigger(b.time_ns, b.triggers, 0, TRIGGER_RESET | TRIGGER_MARKER);
                b.board_ns = BEGIN_NS - b.time_ns;
                b.drift_from_ns = b.time_ns;
        }
        for (unsigned k = 0; k < e->frames; k++) {
                b.time_ns += 1000 + (uint64_t)interval_ns(beam.rate_hz);
                pass_until(b.time_ns);
                fly(b.time_ns, NOISE);
        }
        triggers(500);
        assert_fields(check(), early, is_hidden, contradicted, 0);
        assert_int_equal(b.wrong + b.chance, 0);
        assert_int_equal(b.right, is_hidden ? before : b.expected);
}

/* The first frame of periodic triggers may be lost, or the last one of the run before may come late. The
 * clock of the board shows it, unless it was set as well, or the pause was too long; but the offset of the
 * run before may have been wrong instead. */
#define PERIOD_NS (NS_PER_MS + 1000)
static const struct next_run {
        int missing; /* number of the first triggers without a frame; -1: one frame too many comes before */
        unsigned bits;
        uint64_t pause_ns;
        uint64_t set_ns;
        bool is_shifted, contradicts;
} next_runs[] = {
        {0, 64, NS_PER_S, 0, false, false},
        {1, 64, NS_PER_S, 0, false, true},
        {3, 64, 20 * NS_PER_S, 0, false, true},
        {-1, 64, NS_PER_S, 0, false, true},
        {1, 20, NS_PER_S, 0, false, true},
        {0, 20, 60 * NS_PER_S, 0, false, false},
        {0, 64, NS_PER_S, 700 * NS_PER_S, false, false},
        {1, 64, NS_PER_S, 700 * NS_PER_S, true, false},
        {0, 64, NS_PER_S, 740 * PERIOD_NS + 37 * NS_PER_US, false, false},
        {1, 64, 10000 * NS_PER_S, 0, true, false},
};

TEST_EACH(the_next_run_continues_with_the_clock_of_the_board, i, ARRAY_SIZE(next_runs))
{
        const struct next_run *n = &next_runs[i];
        const struct beam beam = {.rate_hz = 1000,
                                  .periodic = true,
                                  .jitter_ns = 200,
                                  .drift = 50e-6,
                                  .bits = n->bits,
                                  .tick_ns = 61};
        struct reasons reasons = {};

        begin((uint64_t)i, &beam);
        triggers(2000);
        check();
        b.time_ns += n->pause_ns;
        pass_until(b.time_ns);
        begin_matcher(FRAMES_MAX);
        b.board_ns += n->set_ns;
        if (n->missing < 0)
                fly(b.time_ns, NOISE);
        b.beam.frames_missing = 100;
        triggers((uint64_t)MAX(n->missing, 0));
        b.beam.frames_missing = 0;
        triggers(2000);
        settle();
        assert_int_equal(b.wrong > 0, n->is_shifted);
        assert_int_equal(b.right, n->is_shifted ? 0 : b.expected);
        assert_fields(matcher_counts(b.matcher), contradicted, n->contradicts, lost, 0, alone,
                      n->missing < 0);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, n->contradicts);
        assert_int_equal(matcher_is_unreliable(b.matcher), n->contradicts);
}

/* The next runs continue with the wrong offset, and say so. */
TEST(an_offset_that_was_wrong_in_the_previous_run_is_reported)
{
        const struct beam beam = {.rate_hz = 1000, .periodic = true, .jitter_ns = 200, .frames_missing = 100};

        begin(1, &beam);
        triggers(1);
        b.beam.frames_missing = 0;
        for (int run = 0; run < 3; run++) {
                triggers(1000);
                settle();
                assert_true(b.wrong > 900);
                assert_fields(matcher_counts(b.matcher), contradicted, run > 0, lost, 0);
                begin_matcher(FRAMES_MAX);
        }
}

/* If triggers are not periodic, frames without a trigger contradict no offset. */
TEST_EACH(noise_contradicts_no_offset, i, 6)
{
        const struct beam beam = {.rate_hz = i % 2 == 0 ? 6 : 1000,
                                  .jitter_ns = 200,
                                  .noise_hz = i % 3 == 0 ? 0 : 2,
                                  .drift = 20e-6};

        begin((uint64_t)i, &beam);
        triggers(500);
        settle();
        for (int run = 0; run < 10; run++) {
                begin_matcher(FRAMES_MAX);
                triggers(50);
                settle();
                assert_fields(matcher_counts(b.matcher), contradicted, 0);
        }
}

/* The first frame is that of the second trigger, which the next frames show. The frame may be in a wrong
 * event, which is reported. So slow triggers show no other offset. */
TEST(a_wrong_assumption_is_reported)
{
        const struct beam beam = {.rate_hz = 0.7, .jitter_ns = 200};
        struct reasons reasons = {};

        begin(3, &beam);
        b.beam.frames_missing = 100;
        trigger();
        b.beam.frames_missing = 0;
        triggers(100);
        settle();
        assert_fields(matcher_counts(b.matcher), wrong, 1, lost, 1);
        assert_true(b.wrong <= 2);
        assert_int_equal(matcher_past(b.matcher).fit.matches, 0);
        assert_true(matcher_counts(b.matcher)->no_offset > 90);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, 2);
}

/* The clock of the board was set while it ran: the offset is searched again, and no frame is wrong. */
TEST_EACH(a_clock_that_was_set_is_found_again, i, 6)
{
        static const int64_t steps_ns[] = {10 * NS_PER_S, -10 * (int64_t)NS_PER_S, 50 * NS_PER_US};
        const struct beam beam = {.rate_hz = 1000, .jitter_ns = 200, .noise_hz = i < 3 ? 0 : 500};
        struct reasons reasons = {};

        begin((uint64_t)i, &beam);
        triggers(1000);
        settle();
        b.board_ns += (uint64_t)steps_ns[i % 3];
        triggers(1000);
        assert_fields(check(), lost, 1, wrong, 0, no_offset, 0);
        assert_in_range(b.right, b.expected - 200, b.expected - 1);
        matcher_reasons(b.matcher, &reasons);
        assert_true(reasons.n > 0);
}

/* After a reset, the clock of the board may begin again or not. */
TEST_EACH(after_a_reset_both_begin_again, i, 6)
{
        const struct beam beam = {
                .rate_hz = i < 4 ? 1000 : 0.7, .periodic = i >= 2, .jitter_ns = 200, .drift = 30e-6};

        begin((uint64_t)i, &beam);
        triggers(500);
        settle();
        b.time_ns += 3 * NS_PER_S;
        send_trigger(b.time_ns, b.triggers, 0, TRIGGER_RESET | TRIGGER_MARKER);
        if (i % 2) {
                b.board_ns = BEGIN_NS - b.time_ns;
                b.drift_from_ns = b.time_ns;
        }
        triggers(2000);
        assert_fields(check(), alone, 0, lost, 0);
        assert_int_equal(b.right, b.expected);
}

/* A counter of 34 s starts over while the board is silent. */
TEST_EACH(a_silent_board_continues_after_its_counter_started_over, i, 3)
{
        const struct beam beam = {.rate_hz = 200, .jitter_ns = 100, .bits = 32, .tick_ns = 8, .drift = 20e-6};

        begin((uint64_t)i, &beam);
        triggers(5000);
        settle();
        b.time_ns += (uint64_t)(i + 1) * 30 * NS_PER_S;
        triggers(1000);
        assert_int_equal(check()->lost, 0);
        assert_int_equal(b.right, b.expected);
}

/* A clock of 20 bits of 1 us starts over after 1.05 s, in which there are 256 triggers. The ROS is held up
 * for longer than that: frames and triggers come, and are read together. */
#define CLOCK_NS (UINT64_C(1048576) * NS_PER_US)
static const struct hold {
        unsigned frames, missing; /* triggers with frames, and without ones after them */
        bool periodic;
        bool in_turn; /* it is held up between the beginning of a turn and reading */
        bool ends;    /* no frame comes after this */
        uint64_t unproven;
} holds[] = {
        {320, 0, true, false, false, 0},  {320, 0, true, true, false, 0},
        {320, 0, true, false, true, 128}, {100, 256, true, false, false, 100},
        {320, 0, false, false, false, 0}, {320, 0, false, true, false, 0},
        {320, 0, false, false, true, 0},  {100, 256, false, false, false, 0},
};

TEST_EACH(a_ros_that_was_held_up_mixes_nothing, i, ARRAY_SIZE(holds))
{
        const struct hold *h = &holds[i];
        const struct beam beam = {
                .rate_hz = 1e9 / (4096000 - 1000), .periodic = h->periodic, .bits = 20, .tick_ns = 1000};
        uint64_t times_ns[356], begin_ns;
        struct reasons reasons = {};

        begin((uint64_t)i, &beam);
        triggers(400);
        begin_ns = b.time_ns + 4 * NS_PER_MS;
        pass_until(begin_ns);
        for (unsigned k = 0; k < h->frames + h->missing; k++)
                times_ns[k] = b.time_ns += 1000 + (uint64_t)interval_ns(beam.rate_hz);
        for (unsigned k = 0; k < h->frames + h->missing; k++, b.triggers++) {
                send_trigger(h->in_turn ? begin_ns : b.time_ns, b.triggers, times_ns[k], 0);
                if (k < h->frames)
                        send_frame(h->in_turn ? begin_ns : b.time_ns, counter_at(times_ns[k]), b.triggers);
                b.expected += k < h->frames;
        }
        deliver_late(h->in_turn ? begin_ns : b.time_ns, b.time_ns);
        if (!h->ends)
                triggers(400);
        check();
        assert_fields(matcher_counts(b.matcher), unproven, h->unproven, lost, 0, turned, 0);
        assert_int_equal(b.right, b.expected - h->unproven);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, h->unproven > 0);
        assert_false(matcher_is_unreliable(b.matcher));
}

/* The network delays frames by more than half of the period, so their times are taken for later ones: this
 * shows as soon as the delay shrinks. */
TEST(long_delays_make_a_run_unreliable)
{
        const struct beam beam = {
                .rate_hz = 1e9 / (4096000 - 1000), .periodic = true, .bits = 20, .tick_ns = 1000};
        struct reasons reasons = {};
        uint64_t begin_ns, times_ns[240];

        begin(1, &beam);
        triggers(400);
        begin_ns = b.time_ns;
        for (unsigned k = 0; k < ARRAY_SIZE(times_ns); k++) {
                b.time_ns += 4096000;
                times_ns[k] = b.time_ns;
                pass_until(b.time_ns);
                send_trigger(b.time_ns, b.triggers + k, b.time_ns, 0);
                deliver(b.time_ns);
        }
        assert_true(b.time_ns - begin_ns > CLOCK_NS * 7 / 8);
        for (unsigned k = 0; k < ARRAY_SIZE(times_ns); k++)
                send_frame(b.time_ns, counter_at(times_ns[k]), b.triggers++);
        deliver(b.time_ns);
        triggers(400);
        settle();
        assert_true(matcher_counts(b.matcher)->turned > 0 && matcher_is_unreliable(b.matcher));
        matcher_reasons(b.matcher, &reasons);
        assert_true(reasons.n > 0);
}

/* A second frame of a trigger is dropped, and a frame between two triggers is uncertain; both are reported.
 */
TEST_EACH(uncertain_frames_are_reported, later, 2)
{
        const struct beam beam = {.rate_hz = 1000};
        struct reasons reasons = {};
        const struct matcher_counts *c = NULL;
        uint64_t now_ns;

        begin(1, &beam);
        triggers(100);
        settle();
        now_ns = b.time_ns + 3 * NS_PER_S;
        send_trigger(now_ns, 1000, now_ns, 0);
        send_frame(now_ns, counter_at(now_ns), 1000);
        send_frame(now_ns, counter_at(now_ns + 100), 1000);
        deliver(now_ns);
        pass_until(now_ns + 100 * NS_PER_MS);
        c = matcher_counts(b.matcher);
        assert_fields(c, doubled, 1, doubled_number, 1000, ambiguous, 0);
        now_ns += NS_PER_S;
        send_trigger(now_ns, 1001, now_ns, 0);
        if (!later)
                send_trigger(now_ns, 1002, now_ns + 700, 0);
        send_frame(now_ns, counter_at(now_ns), 1001);
        deliver(now_ns);
        pass_until(now_ns + 750 * NS_PER_MS);
        assert_int_equal(c->ambiguous, !later);
        if (later)
                send_trigger(now_ns, 1002, now_ns + 700, 0);
        assert_fields(c, ambiguous, 1, ambiguous_number, 1001);
        assert_int_equal(b.wrong, 0);
        matcher_reasons(b.matcher, &reasons);
        assert_int_equal(reasons.n, 2);
}

/* Datagrams may come twice or in another order; triggers without a time are reported. */
TEST(datagrams_may_be_repeated_and_overtaken)
{
        const struct beam beam = {.rate_hz = 1000};
        uint64_t now_ns;

        begin(1, &beam);
        triggers(100);
        settle();
        now_ns = b.time_ns + NS_PER_S;
        send_trigger(now_ns, 1001, now_ns + 5 * NS_PER_MS, 0);
        send_trigger(now_ns, 1000, now_ns, 0);
        send_trigger(now_ns, 1001, now_ns + 5 * NS_PER_MS, 0);
        send_trigger(now_ns, 1002, 0, 0);
        send_frame(now_ns, counter_at(now_ns + 5 * NS_PER_MS), 1001);
        send_frame(now_ns, counter_at(now_ns), 1000);
        deliver(now_ns);
        pass_until(now_ns + 100 * NS_PER_MS);
        assert_fields(matcher_counts(b.matcher), passed, 102, ambiguous, 0, untimed, 1);
        assert_int_equal(b.wrong, 0);
}

/* Datagrams of 600 triggers, each of which comes twice; the first one reports a reset. */
TEST(large_datagrams_may_be_repeated)
{
        const struct beam beam = {.rate_hz = 20000};
        uint64_t times_ns[600];

        begin(1, &beam);
        for (uint64_t from = 0; from < 6000; from += ARRAY_SIZE(times_ns)) {
                for (uint64_t k = 0; k < ARRAY_SIZE(times_ns); k++) {
                        b.time_ns += 1000 + (uint64_t)interval_ns(beam.rate_hz);
                        times_ns[k] = b.time_ns;
                        assert_int_equal(send_frame(b.time_ns, counter_at(b.time_ns), from + k), ROS_STORE);
                }
                for (int twice = 0; twice < 2; twice++) {
                        for (uint64_t k = 0; k < ARRAY_SIZE(times_ns); k++)
                                send_trigger(b.time_ns + (uint64_t)twice * NS_PER_MS, from + k, times_ns[k],
                                             from + k == 0 ? TRIGGER_RESET : 0);
                        deliver(b.time_ns + (uint64_t)twice * NS_PER_MS);
                }
        }
        check();
        assert_fields(matcher_counts(b.matcher), passed, 6000, alone, 0, doubled, 0, ambiguous, 0, lost, 0);
}

/* The time of the trigger box goes back. */
TEST(a_box_whose_clock_was_set_is_found_again)
{
        const struct beam beam = {.rate_hz = 1000, .jitter_ns = 200};

        begin(1, &beam);
        triggers(1000);
        settle();
        for (int i = 0; i < 300; i++)
                send_trigger(b.time_ns, 5000 + (uint64_t)i, b.time_ns + NS_PER_S + (uint64_t)i, 0);
        triggers(1000);
        assert_int_equal(check()->lost, 1);
        assert_in_range(b.right, b.expected - 64, b.expected);
}

/* Without room in the core, frames wait; without room for waiting frames, the oldest one gives up. */
TEST(frames_wait_for_room)
{
        const struct beam beam = {.rate_hz = 1000, .jitter_ns = 200};
        uint64_t counter = 0;
        uint8_t *to;

        begin(1, &beam);
        triggers(100);
        settle();
        b.is_full = true;
        b.time_ns += 3 * NS_PER_S;
        triggers(50);
        settle();
        assert_fields(matcher_counts(b.matcher), passed, 100, waiting, 50);
        b.is_full = false;
        assert_int_equal(check()->passed, 150);

        begin(1, &beam);
        for (uint64_t i = 0; i < FRAMES_MAX; i++)
                assert_int_equal(send_frame(b.time_ns, i, NOISE), ROS_STORE);
        assert_int_equal(send_frame(b.time_ns, 0, NOISE), ROS_FULL);
        matcher_deliver(b.matcher, &(struct matcher_turn){b.time_ns, b.time_ns, b.time_ns, true}, NULL,
                        b.buffer);
        assert_fields(matcher_counts(b.matcher), alone, 1, waiting, FRAMES_MAX - 1);
        assert_int_equal(matcher_arrive(b.matcher, b.time_ns, &counter, 8, &to), ROS_STORE);
        matcher_skip(b.matcher);
        assert_int_equal(matcher_arrive(b.matcher, b.time_ns, NULL, 1, &to), ROS_DISCARD);
        matcher_commit(b.matcher);
        assert_fields(matcher_counts(b.matcher), frames, FRAMES_MAX + 2, no_room, 1, no_time, 1);
        b.state = RUN_ENDED;
        deliver(b.time_ns);
        assert_fields(matcher_counts(b.matcher), waiting, 0, alone, FRAMES_MAX);
}

/* However short its period is, the process does not run all the time. */
TEST_EACH(the_socket_is_looked_at_again_and_again, i, 3)
{
        static const unsigned bits[] = {8, 16, 32};
        static const uint64_t looks_ns[] = {250 * NS_PER_US, 250 * NS_PER_US, (UINT64_C(1) << 32) / 16};
        const struct beam beam = {.bits = bits[i], .tick_ns = 1};

        begin(1, &beam);
        assert_int_equal(matcher_deadline_ns(b.matcher) - b.time_ns, looks_ns[i]);
}

TEST(an_invalid_configuration_is_refused)
{
        struct matcher_config config = {.window_ns = 1, .tick_ns = 1, .bits = 8, .frames_max = 1};
        struct matcher *m;

        config.tick_ns = 0;
        assert_int_equal(matcher_new(&m, &config), -EINVAL);
        assert_null(matcher_free(NULL));
}

TESTS_BETWEEN(NULL, teardown)
