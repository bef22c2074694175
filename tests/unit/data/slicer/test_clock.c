/* The clock of a board, measured by frames that the network and a busy machine delay. */
#include <math.h>

#include "base/random.h"
#include "slicer_bench.h"

#define PERIOD_NS (5 * NS_PER_MS)
#define BEGIN_NS (1000 * NS_PER_S)
#define AHEAD_NS (10 * (int64_t)NS_PER_S)

/* The time of a board whose clock was AHEAD_NS ahead when it began. */
static uint64_t time_ns(uint64_t sent_ns, double drift)
{
        return sent_ns + (uint64_t)(AHEAD_NS + (int64_t)llround(drift * (double)(sent_ns - BEGIN_NS)));
}

/* Sends frames from one time to another; each is delayed by up to 1 ms, and those of some seconds by 50 ms.
 */
static void send(struct board_clock *c, struct random *r, uint64_t from_ns, uint64_t until_ns, double drift)
{
        for (uint64_t at_ns = from_ns; at_ns < until_ns; at_ns += PERIOD_NS) {
                uint64_t busy_ns = at_ns / NS_PER_S % 4 == 1 ? 50 * NS_PER_MS : 0;

                board_clock_record(c, at_ns + busy_ns + random_below(r, NS_PER_MS), time_ns(at_ns, drift));
        }
}

TEST_EACH(drift_is_measured_despite_delays, i, 12)
{
        static const double drifts[] = {0, 48e-6, -100e-6, 1e-3};
        double drift = drifts[i % 4];
        uint64_t end_ns = BEGIN_NS + 29 * NS_PER_S;
        struct board_clock c = {};
        struct random r;

        random_init(&r, (uint64_t)i);
        send(&c, &r, BEGIN_NS, end_ns, drift);
        assert_false(c.known);
        for (int k = 0; k < 200; k++, end_ns += 10 * NS_PER_S) {
                send(&c, &r, end_ns, end_ns + 10 * NS_PER_S, drift);
                assert_true(c.known && c.error < (k < 4 ? 20e-6 : k < 40 ? 5e-6 : 1e-6));
                assert_true(fabs(c.drift - drift) < 2 * c.error);
                assert_true(llabs(board_clock_ahead_ns(&c, end_ns + 10 * NS_PER_S) - AHEAD_NS -
                                  llround(drift * (double)(end_ns + 10 * NS_PER_S - BEGIN_NS))) <
                            (int64_t)NS_PER_MS / 4);
        }
}

/* The machine is so busy that some seconds have no prompt frame at all: the error shows it. */
TEST_EACH(the_error_grows_with_the_delays, i, 10)
{
        struct board_clock c = {};
        struct random r;

        random_init(&r, (uint64_t)i);
        for (uint64_t at_ns = BEGIN_NS; at_ns < BEGIN_NS + 2000 * NS_PER_S;) {
                uint64_t busy_ns = random_below(&r, 20 * NS_PER_MS), until_ns = at_ns + NS_PER_S;

                for (; at_ns < until_ns; at_ns += PERIOD_NS)
                        board_clock_record(&c, at_ns + busy_ns, time_ns(at_ns, 48e-6));
                assert_true(!c.known || fabs(c.drift - 48e-6) < 2 * c.error);
        }
        assert_true(c.error < 10e-6 && fabs(c.drift - 48e-6) < 10e-6);
}

TEST(a_damaged_time_does_not_count)
{
        struct board_clock c = {};
        struct random r;

        random_init(&r, 1);
        for (uint64_t at_ns = BEGIN_NS; at_ns < BEGIN_NS + 60 * NS_PER_S; at_ns += 7 * NS_PER_S) {
                send(&c, &r, at_ns, at_ns + 7 * NS_PER_S, 48e-6);
                board_clock_record(&c, at_ns + 7 * NS_PER_S, time_ns(at_ns + 7 * NS_PER_S, 0) + NS_PER_S / 3);
        }
        assert_true(c.known && fabs(c.drift - 48e-6) < 10e-6);
}

/* A clock that was set, or frames that are held up from then on, are not drift. */
TEST_EACH(a_step_is_not_drift, i, 2)
{
        uint64_t step_ns = BEGIN_NS + 40 * NS_PER_S, end_ns = step_ns + 40 * NS_PER_S;
        uint64_t by_ns = i ? 2 * NS_PER_S : -2 * NS_PER_S;
        struct board_clock c = {};
        unsigned known = 0;

        for (uint64_t at_ns = BEGIN_NS; at_ns < end_ns; at_ns += PERIOD_NS) {
                board_clock_record(&c, at_ns, at_ns + (at_ns < step_ns ? 0 : by_ns));
                known += c.known;
                assert_false(c.known && at_ns > step_ns + 2 * NS_PER_S && at_ns < step_ns + 30 * NS_PER_S);
                assert_true(fabs(c.drift) < 1e-9);
        }
        assert_true(known > 14 * NS_PER_S / PERIOD_NS);
        assert_true(c.known && board_clock_ahead_ns(&c, end_ns) == (int64_t)by_ns);
}

/* Frames each 20 ms, whose times gain 500 ppm, are in the slices in which they were sent. When the board's
 * time begins again, so does the measurement. */
SLICER_TEST(a_drift_is_followed_until_the_time_begins_again, c.bits = 64, c.tick_ns = 1,
            c.slice_ns = NS_PER_S, c.window_ns = NS_PER_S / 50, c.idle_max_ns = NS_PER_S, c.frames_max = 4096,
            c.slices_max = 64, c.follows = true)
{
        uint64_t time;

        for (uint64_t at = 0; at < 100 * NS_PER_S; at += 20 * NS_PER_MS, b.now_ns += 20 * NS_PER_MS) {
                comes(10 * NS_PER_S + at + at / 2000);
                delivers(false, false);
        }
        /* 99.98 s were sent, and 100.03 s are shown by the clock. */
        assert_int_equal(b.slices, 99);
        for (time = 1000 * NS_PER_S; slicer_counts(b.slicer)->restarts == 0;
             time += 20 * NS_PER_MS, b.now_ns += 20 * NS_PER_MS)
                comes(time);
        time = (time / NS_PER_S + 2) * NS_PER_S;
        come(COUNTS(time, time + NS_PER_S - 1, time + NS_PER_S, time + 2 * NS_PER_S));
        delivers(false, false);
        assert_slice(time / NS_PER_S, COUNTS(time, time + NS_PER_S - 1));
}

/* Frames each 20 ms in the middle of a slice; the clock gains 200 ppm, so 120 ms in the pause. */
SLICER_TEST_EACH(a_drift_is_followed_over_a_pause, loses, 2, c.bits = 64, c.tick_ns = 1,
                 c.slice_ns = 20 * NS_PER_MS, c.window_ns = 40 * NS_PER_MS, c.idle_max_ns = NS_PER_S,
                 c.frames_max = 4096, c.slices_max = 64, c.follows = true)
{
        uint64_t begin_ns = 100 * NS_PER_S + 10 * NS_PER_MS, end_ns = begin_ns + 60 * NS_PER_S, times[10];
        uint64_t from_ns = end_ns + 600 * NS_PER_S;

        for (uint64_t at = begin_ns; at < end_ns; at += 20 * NS_PER_MS, b.now_ns += 20 * NS_PER_MS) {
                uint64_t gained = (at - begin_ns) / 5000;

                comes(loses ? at - gained : at + gained);
                delivers(false, false);
        }
        b.now_ns += from_ns - end_ns;
        delivers(true, false);
        for (size_t i = 0; i < ARRAY_SIZE(times); i++, b.now_ns += 20 * NS_PER_MS) {
                uint64_t at = from_ns + i * 20 * NS_PER_MS, gained = (at - begin_ns) / 5000;

                times[i] = loses ? at - gained : at + gained;
                comes(times[i]);
                delivers(false, false);
        }
        for (size_t i = 0; i < 5; i++)
                assert_slice(from_ns / (20 * NS_PER_MS) + i, 1, &times[i]);
}
