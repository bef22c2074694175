/* Sequence numbers: losses are counted exactly, and no single number can spoil the counts. */
#include "../test.h"

#include "base/random.h"
#include "protocol/sequence.h"

static void record_all(struct sequence *q, uint32_t from, uint32_t n)
{
        for (uint32_t k = 0; k < n; k++)
                assert_int_equal(sequence_receive(q, from + k), SEQUENCE_NEW);
}

TEST(gaps_count_as_lost_until_filled)
{
        struct sequence q = {};

        record_all(&q, UINT32_MAX - 2, 5); /* across the wrap-around */
        assert_int_equal(q.expected, 5);
        assert_int_equal(sequence_receive(&q, 5), SEQUENCE_NEW); /* without 2, 3 and 4 */
        assert_int_equal(sequence_lost(&q), 3);
        assert_int_equal(sequence_receive(&q, 3), SEQUENCE_LATE);
        assert_int_equal(sequence_receive(&q, 3), SEQUENCE_REPEAT);
        assert_int_equal(sequence_receive(&q, 5), SEQUENCE_REPEAT);
        assert_int_equal(sequence_lost(&q), 2);
        /* Numbers before the first are not missing and offset no loss. */
        assert_int_equal(sequence_receive(&q, UINT32_MAX - 3), SEQUENCE_REPEAT);
        assert_int_equal(sequence_lost(&q), 2);
        assert_int_equal(q.suspects + q.resyncs, 0);
}

TEST(repeats_do_not_hide_losses)
{
        struct sequence q = {};

        for (uint32_t k = 0; k < 100; k += 2) {
                assert_int_equal(sequence_receive(&q, k), SEQUENCE_NEW);
                assert_int_equal(sequence_receive(&q, k), SEQUENCE_REPEAT);
        }
        assert_int_equal(sequence_lost(&q), 49);
}

TEST(a_single_far_number_changes_nothing)
{
        static const uint32_t far[] = {1u << 31, 0xFFFF0000, 1010 + SEQUENCE_WINDOW, 1u << 20, 1905000000};
        struct sequence q = {};

        record_all(&q, 0, 1000);
        for (uint32_t i = 0; i < 5; i++) {
                assert_int_equal(sequence_receive(&q, far[i]), SEQUENCE_SUSPECT);
                assert_int_equal(q.next, 1000 + i);
                /* Three that agree count as one if the true sender continues in between. */
                assert_int_equal(sequence_receive(&q, far[i] + 1), SEQUENCE_SUSPECT);
                assert_int_equal(sequence_receive(&q, far[i] + 2), SEQUENCE_SUSPECT);
                record_all(&q, 1000 + i, 1);
        }
        assert_int_equal(sequence_lost(&q), 0);
        assert_fields(&q, resyncs, 0, suspects, 15);
}

TEST(a_long_outage_is_counted)
{
        struct sequence q = {};

        record_all(&q, 0, 10);
        for (uint32_t k = 0; k < SEQUENCE_AGREE - 1; k++)
                assert_int_equal(sequence_receive(&q, 500000 + 2 * k), SEQUENCE_SUSPECT);
        assert_int_equal(sequence_lost(&q), 0);
        assert_int_equal(sequence_receive(&q, 500006), SEQUENCE_NEW);
        /* From 10 to 500006, of which four arrived. */
        assert_int_equal(sequence_lost(&q), 499997 - 4);
        assert_int_equal(q.resyncs, 1);
        record_all(&q, 500007, 100);
        assert_int_equal(sequence_lost(&q), 499997 - 4);
}

/* The first numbers after a jump may overtake each other. */
TEST(a_restart_is_not_a_loss_and_hides_none)
{
        static const uint32_t first[] = {1, 0, 2};
        struct sequence q = {};

        record_all(&q, 0, 10000);
        record_all(&q, 10005, 1);
        for (int i = 0; i < 3; i++)
                assert_int_equal(sequence_receive(&q, first[i]), SEQUENCE_SUSPECT);
        record_all(&q, 3, 20000);
        assert_int_equal(sequence_lost(&q), 5);
        assert_int_equal(q.resyncs, 1);
        /* Far ahead, beyond what any sender can have sent. */
        for (uint32_t k = 0; k < 3; k++)
                assert_int_equal(sequence_receive(&q, 1u << 30 | k), SEQUENCE_SUSPECT);
        record_all(&q, 1u << 30 | 3, 10);
        assert_int_equal(sequence_lost(&q), 5);
}

/* It restarts before it has sent much, so its numbers look like repeats. */
TEST(a_restart_after_few_messages_is_detected)
{
        struct sequence q = {};

        record_all(&q, 0, 400);
        record_all(&q, 410, 90);
        for (uint32_t k = 0; k < SEQUENCE_REPEATS - 1; k++)
                assert_int_equal(sequence_receive(&q, k), SEQUENCE_REPEAT);
        record_all(&q, SEQUENCE_REPEATS - 1, 2);
        assert_int_equal(sequence_receive(&q, 100), SEQUENCE_NEW);
        assert_int_equal(sequence_lost(&q), 10 + 100 - SEQUENCE_REPEATS - 1);
        assert_int_equal(q.resyncs, 1);
}

TEST(a_known_restart_is_followed_at_once)
{
        struct sequence q = {};

        record_all(&q, 0, 100);
        record_all(&q, 103, 1);
        sequence_restart(&q);
        assert_int_equal(sequence_lost(&q), 3);
        record_all(&q, 0, 50);
        assert_int_equal(sequence_lost(&q), 3);
        sequence_begin(&q, 0);
        record_all(&q, 1, 1); /* number 0 is missing */
        assert_int_equal(sequence_lost(&q), 4);
        assert_int_equal(q.suspects, 0);
}

/* The network may swap the first messages: none of them repeats another one, and what is between them is
 * missing. */
TEST(the_first_message_may_overtake_others)
{
        struct sequence q = {};

        assert_false(sequence_precede(&q, 5));
        record_all(&q, 2, 3);
        assert_false(sequence_precede(&q, 2));
        assert_true(sequence_precede(&q, UINT32_MAX));
        assert_int_equal(sequence_lost(&q), 2);
        assert_false(sequence_precede(&q, UINT32_MAX));
        assert_int_equal(sequence_receive(&q, UINT32_MAX), SEQUENCE_REPEAT);
        assert_int_equal(sequence_receive(&q, 1), SEQUENCE_LATE);
        assert_int_equal(sequence_lost(&q), 1);
        assert_false(sequence_precede(&q, UINT32_MAX - SEQUENCE_APART - 1));
        assert_true(sequence_precede(&q, UINT32_MAX - SEQUENCE_APART));
        assert_int_equal(sequence_lost(&q), SEQUENCE_APART);
        /* Of numbers too far behind the newest one, nothing is known. */
        sequence_begin(&q, 8);
        record_all(&q, 8, SEQUENCE_WINDOW - 4);
        assert_false(sequence_precede(&q, 3));
        assert_true(sequence_precede(&q, 4));
}

TEST(a_claim_reveals_lost_messages)
{
        struct sequence q = {};

        assert_false(sequence_claim(&q, 5)); /* numbers before the first one do not count */
        assert_int_equal(sequence_lost(&q), 0);
        record_all(&q, 0, 10);
        assert_true(sequence_claim(&q, 15));
        assert_int_equal(sequence_lost(&q), 5);
        /* It was only late. */
        record_all(&q, 10, 5);
        assert_int_equal(sequence_lost(&q), 0);
        assert_true(sequence_claim(&q, 12)); /* overtaken */
        assert_int_equal(sequence_lost(&q), 0);
        assert_false(sequence_claim(&q, 15 + SEQUENCE_GAP_MAX + 1));
        assert_false(sequence_claim(&q, 1u << 31));
        assert_false(sequence_claim(&q, 1u << 31 | 100));
        assert_int_equal(sequence_lost(&q), 0);
        assert_int_equal(q.suspects, 3);
        assert_true(sequence_claim(&q, 20));
        sequence_restart(&q);
        assert_int_equal(sequence_lost(&q), 5);
}

/* Whatever is lost, repeated and delayed, the count equals the numbers that never arrived. */
TEST(counts_are_exact)
{
        for (uint64_t seed = 1; seed <= 50; seed++) {
                enum { N = 20000 };
                static bool came[N];
                struct sequence q = {};
                struct random random;
                uint64_t lost = 0;

                memset(came, 0, sizeof came);
                random_init(&random, seed);
                came[0] = true;
                sequence_receive(&q, 0);
                for (uint32_t i = 0; i < N; i++) {
                        uint32_t number = i - (uint32_t)random_below(&random, i < 60 ? i + 1 : 60);

                        if (random_unit(&random) < 0.7)
                                number = i;
                        assert_int_equal(sequence_receive(&q, number) == SEQUENCE_REPEAT, came[number]);
                        came[number] = true;
                }
                for (uint32_t i = 0; i < q.next; i++)
                        lost += !came[i];
                assert_int_equal(sequence_lost(&q), lost);
                assert_int_equal(q.suspects, 0);
        }
}
