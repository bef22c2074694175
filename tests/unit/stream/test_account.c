/* The accounts of a stream: every packet is received, late, duplicate, or lost, whatever the network does. */
#include "../test.h"

#include "base/random.h"
#include "stream/rules/account.h"

#define CAPACITY 64u
#define WINDOW 8u

static struct account a;

static int begin(void **state)
{
        return account_init(&a, CAPACITY, WINDOW);
}

static int end(void **state)
{
        account_fini(&a);
        return 0;
}

/* Decides what can be decided; returns how many were given up. */
static uint64_t decide(uint64_t until, bool all)
{
        uint64_t before = a.given_up;
        bool arrived;

        while (account_decide(&a, until, all, &arrived))
                ;
        return a.given_up - before;
}

TEST_WITH(packets_in_order_are_decided_at_once, begin, end)
{
        bool arrived = false;

        for (uint64_t i = 0; i < 1000; i++) {
                assert_int_equal(account_accept(&a, i, i + CAPACITY), ACCOUNT_NEW);
                assert_true(account_decide(&a, a.end, false, &arrived));
                assert_true(arrived);
                assert_false(account_decide(&a, a.end, false, &arrived));
        }
        assert_fields(&a, received, 1000, base, 1000, out_of_order, 0);
}

TEST_WITH(a_packet_may_be_overtaken_by_a_window, begin, end)
{
        for (uint64_t i = 1; i <= WINDOW - 1; i++)
                assert_int_equal(account_accept(&a, i, CAPACITY), ACCOUNT_NEW);
        assert_int_equal(decide(a.end, false), 0);
        assert_int_equal(a.base, 0);
        assert_int_equal(account_accept(&a, 0, CAPACITY), ACCOUNT_NEW);
        assert_int_equal(decide(a.end, false), 0);
        assert_fields(&a, base, WINDOW, out_of_order, 1);
}

TEST_WITH(then_its_place_is_given_up_and_it_is_late, begin, end)
{
        for (uint64_t i = 1; i <= WINDOW; i++)
                assert_int_equal(account_accept(&a, i, CAPACITY), ACCOUNT_NEW);
        assert_int_equal(decide(a.end, false), 1);
        assert_int_equal(a.base, WINDOW + 1);
        assert_int_equal(account_accept(&a, 0, CAPACITY), ACCOUNT_LATE);
        assert_int_equal(account_accept(&a, 0, CAPACITY), ACCOUNT_DUPLICATE);
        assert_int_equal(account_accept(&a, 3, CAPACITY), ACCOUNT_DUPLICATE);
        assert_fields(&a, received, WINDOW, late, 1, duplicate, 2, out_of_order, 0);
}

TEST_WITH(a_packet_beyond_the_ring_waits_for_its_place, begin, end)
{
        assert_int_equal(account_accept(&a, 10, 10), ACCOUNT_BEYOND);
        assert_int_equal(account_accept(&a, CAPACITY, UINT64_MAX), ACCOUNT_BEYOND);
        assert_int_equal(a.received, 0);
        /* Others are given up until it fits. */
        assert_int_equal(decide(CAPACITY, false), CAPACITY - WINDOW);
        assert_int_equal(account_accept(&a, CAPACITY, UINT64_MAX), ACCOUNT_NEW);
        assert_int_equal(a.end, CAPACITY + 1);
}

TEST_WITH(the_end_decides_all, begin, end)
{
        assert_int_equal(account_accept(&a, 2, CAPACITY), ACCOUNT_NEW);
        assert_int_equal(decide(5, true), 4);
        assert_int_equal(a.base, 5);
        assert_int_equal(a.received + a.given_up, 5);
}

TEST_WITH(the_next_one_is_found, begin, end)
{
        assert_int_equal(account_next(&a, 1), 0);
        assert_int_equal(account_accept(&a, 5, CAPACITY), ACCOUNT_NEW);
        assert_int_equal(account_next(&a, 1), 5);
        assert_int_equal(decide(account_next(&a, 1), true), 5);
        assert_int_equal(account_next(&a, 1), 5);
        assert_int_equal(decide(a.end, false), 0);
        assert_int_equal(account_next(&a, 1), 6);
}

TEST_WITH(what_is_too_old_is_a_duplicate, begin, end)
{
        decide(3 * (uint64_t)CAPACITY, true);
        assert_int_equal(account_accept(&a, 0, UINT64_MAX), ACCOUNT_DUPLICATE);
        assert_int_equal(account_accept(&a, 2 * CAPACITY, UINT64_MAX), ACCOUNT_LATE);
        assert_int_equal(account_accept(&a, 2 * CAPACITY - 1, UINT64_MAX), ACCOUNT_DUPLICATE);
        assert_int_equal(a.late, 1);
}

/* A network that loses, duplicates and delays at random, and a ring that is full at times. */
TEST_WITH(the_accounts_balance, begin, end)
{
        enum { PACKETS = 20000 };
        struct random random;
        uint64_t arrived = 0, taken = 0;

        for (uint64_t seed = 0; seed < 20; seed++) {
                account_fini(&a);
                assert_int_equal(account_init(&a, CAPACITY, WINDOW), 0);
                random_init(&random, seed);
                arrived = taken = 0;
                for (uint64_t i = 0; i < PACKETS; i++) {
                        uint64_t back = random_below(&random, 10) == 0 ? random_below(&random, 200) : 0,
                                 sequence = i - MIN(back, i),
                                 limit = a.base + 1 + random_below(&random, CAPACITY);

                        if (random_below(&random, 20) == 0)
                                continue;
                        arrived++;
                        while (account_accept(&a, sequence, limit) == ACCOUNT_BEYOND) {
                                decide(MIN(sequence + 1, limit), false);
                                limit = a.base + CAPACITY;
                        }
                        taken++;
                        decide(a.end, false);
                        assert_true(a.end - a.base <= WINDOW);
                }
                decide(PACKETS, true);
                assert_int_equal(arrived, taken);
                assert_int_equal(a.base, PACKETS);
                assert_int_equal(a.received + a.given_up, PACKETS);
                assert_int_equal(a.received + a.late + a.duplicate, arrived);
                assert_true(a.late <= a.given_up);
        }
}

TEST(sizes_are_checked)
{
        struct account b;

        assert_int_equal(account_init(&b, 0, 0), -EINVAL);
        assert_int_equal(account_init(&b, 64, 64), -EINVAL);
        account_fini(NULL);
}
