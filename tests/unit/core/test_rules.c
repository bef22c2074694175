/* The small rules of the core: the trigger's schedule, assignment policies, patterns and faults. */
#include "../test.h"

#include <math.h>

#include "base/fault.h"
#include "base/pattern.h"
#include "core/dfm/dfm_internal.h"
#include "core/trigger.h"

TEST(periodic_triggers_never_drift)
{
        /* 3 kHz: a period of 333333.33 ns. After 10^9 triggers, no fraction of it is lost. */
        struct trigger t;

        trigger_init(&t, TRIGGER_PERIODIC, 3000000, 1, 1, 500);
        assert_int_equal(trigger_next_due(&t, 500, 10), 1);
        assert_int_equal(trigger_next_due(&t, 500 + 333332, 10), 0);
        assert_int_equal(trigger_next_due(&t, 500 + 333333, 10), 1);
        t.taken = 1000000000 - 1;
        trigger_next_due(&t, UINT64_MAX, 1);
        assert_int_equal(trigger_next_ns(&t), 500 + UINT64_C(333333333333333));
        /* Late callers catch up. */
        trigger_init(&t, TRIGGER_PERIODIC, 1000000, 1, 1, 0);
        assert_int_equal(trigger_next_due(&t, 10000000, 100), 11);
        assert_int_equal(trigger_next_due(&t, 20000000, 4), 4);
        assert_int_equal(trigger_next_due(&t, 20000000, 100), 6);
}

TEST(held_back_triggers_wait)
{
        struct trigger t;

        trigger_init(&t, TRIGGER_PERIODIC, 1000000, 1, 1, 0);
        trigger_next_due(&t, 0, 1);
        trigger_hold(&t, 7500000);
        assert_int_equal(trigger_next_due(&t, 7500000, 100), 1);
        assert_int_equal(trigger_next_ns(&t), 8500000);
        trigger_hold(&t, 8000000); /* none was due */
        assert_int_equal(trigger_next_ns(&t), 8500000);
}

TEST(burst_and_poisson_triggers_keep_their_rate)
{
        double sum = 0, square = 0, last = 0;
        enum { N = 100000 };
        struct trigger t;

        trigger_init(&t, TRIGGER_BURST, 1000000, 5, 1, 0);
        assert_int_equal(trigger_next_due(&t, 0, 100), 5);
        assert_int_equal(trigger_next_ns(&t), 5000000);
        assert_int_equal(trigger_next_due(&t, 5000000, 100), 5);

        trigger_init(&t, TRIGGER_POISSON, 1000000, 1, 9, 0);
        for (int i = 0; i < N; i++) {
                double now = (double)trigger_next_ns(&t), interval = now - last;

                sum += interval, square += interval * interval, last = now;
                trigger_next_due(&t, trigger_next_ns(&t), 1);
        }
        assert_true(fabs(sum / N / 1e6 - 1) < 0.02);
        assert_true(fabs(square / N / 2e12 - 1) < 0.05); /* variance of an exponential: its mean squared */

        trigger_init(&t, TRIGGER_PERIODIC, TRIGGER_RATE_MAX, 1, 1, 5);
        assert_int_equal(trigger_next_due(&t, 5, 1000), 1000);
        assert_true(trigger_next_ns(&t) <= 5);
}

TEST(the_sfi_with_most_of_its_credits_free_is_chosen)
{
        struct policy_sfi s[4] = {{.free = 2, .held = 8},
                                  {.free = 5, .held = 5},
                                  {.free = 4, .held = 0},
                                  {.free = 0, .held = 0}},
                          equal[3] = {{5, 1}, {5, 1}, {5, 1}}, none[3] = {};
        uint32_t last = POLICY_NONE, seen = 0;

        assert_int_equal(policy_choose(s, 4, POLICY_NONE), 2); /* all of its few credits are free */
        s[2].free = 0;
        assert_int_equal(policy_choose(s, 4, POLICY_NONE), 1);
        while (seen != 7) {
                last = policy_choose(equal, 3, last);
                assert_int_equal(seen >> last & 1, 0); /* equal SFIs take turns */
                seen |= 1u << last;
        }
        assert_int_equal(policy_choose(none, 3, 1), POLICY_NONE);
}

TEST(patterns_are_fixed_and_checked)
{
        uint64_t key = pattern_key(1, 2, 3);
        uint8_t whole[400], part[400];

        assert_int_not_equal(key, pattern_key(2, 2, 3));
        assert_int_not_equal(key, pattern_key(1, 3, 3));
        assert_int_not_equal(key, pattern_key(1, 2, 4));
        /* Fixed values, so that existing files stay verifiable: the words are key + k * step. */
        pattern_fill(UINT64_C(0x0102030405060708), whole, 0, 16);
        assert_memory_equal(
                whole, ((uint8_t[]){8, 7, 6, 5, 4, 3, 2, 1, 0x1d, 0x83, 0x50, 0x84, 0xbd, 0x7c, 0x39, 0x9f}),
                16);
        pattern_fill(key, whole, 0, sizeof whole);
        for (size_t offset = 0; offset < 40; offset++) {
                for (size_t n = 0; n < 60; n++) {
                        memset(part, 0, sizeof part);
                        pattern_fill(key, part, offset, n);
                        assert_memory_equal(part, whole + offset, n);
                        assert_int_equal(part[n], 0);
                        assert_int_equal(pattern_check(key, part, offset, n), n);
                        for (size_t i = 0; i < n; i++) {
                                part[i] ^= 0x10;
                                assert_int_equal(pattern_check(key, part, offset, n), i);
                                part[i] ^= 0x10;
                        }
                }
        }
}

TEST(faults_occur_at_their_rates)
{
        struct fault_config c = {.loss = 0.05, .reorder = 0.1, .duplicate = 0.02, .seed = 4};
        uint32_t counts[4] = {}, overtaken = 0;
        enum { N = 100000 };
        struct fault f;

        fault_init(&f, &c);
        for (int i = 0; i < N; i++) {
                enum fault_fate fate = fault_decide(&f, &overtaken);

                counts[fate]++;
                if (fate == FAULT_HOLD)
                        assert_in_range(overtaken, 1, FAULT_OVERTAKEN_MAX);
        }
        assert_in_range(counts[FAULT_LOSE], N / 20 - 400, N / 20 + 400);
        assert_in_range(counts[FAULT_HOLD], N / 10 - 500, N / 10 + 500);
        assert_in_range(counts[FAULT_DOUBLE], N / 50 - 300, N / 50 + 300);
        fault_init(&f, &(struct fault_config){.seed = 4});
        for (int i = 0; i < 1000; i++)
                assert_int_equal(fault_decide(&f, &overtaken), FAULT_PASS);
}

/* Far below the newest number, those that came are known unless some were skipped. */
TEST(old_numbers_are_known_unless_some_were_skipped)
{
        const uint64_t first = 7, skipped = 10000, last = 20000, leap = 2 * DFM_NUMBERS_WINDOW;
        struct dfm_numbers n = {};
        uint64_t missing = 0;

        for (uint64_t k = first; k < last; k++) {
                if (k != skipped)
                        assert_int_equal(dfm_numbers_accept(&n, k, &missing), OFFER_QUEUED);
                if (k == skipped) {
                        assert_int_equal(dfm_numbers_state(&n, first - 1), NUMBER_OLD);
                        assert_int_equal(dfm_numbers_state(&n, first), NUMBER_SEEN);
                }
        }
        assert_int_equal(missing, 1);
        assert_int_equal(dfm_numbers_state(&n, skipped), NUMBER_OLD);
        assert_int_equal(dfm_numbers_state(&n, skipped + 1), NUMBER_SEEN);
        assert_int_equal(dfm_numbers_state(&n, last), NUMBER_NEW);
        assert_int_equal(dfm_numbers_accept(&n, last + leap, &missing), OFFER_QUEUED);
        assert_int_equal(dfm_numbers_state(&n, last - 1), NUMBER_OLD);
        assert_int_equal(dfm_numbers_state(&n, last + leap - DFM_NUMBERS_WINDOW), NUMBER_OLD);
        assert_int_equal(dfm_numbers_state(&n, last + leap - 1), NUMBER_NEW);
}
