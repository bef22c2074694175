/* The priority queue, compared with a plain list of the same items. */
#include "../test.h"

#include "base/heap.h"
#include "base/random.h"

#define ITEMS 100u

struct plain {
        bool there;
        uint64_t key, tie;
};

static uint32_t first_of(const struct plain *p)
{
        uint32_t first = HEAP_NONE;

        for (uint32_t i = 0; i < ITEMS; i++) {
                if (!p[i].there)
                        continue;
                if (first == HEAP_NONE || p[i].key < p[first].key ||
                    (p[i].key == p[first].key && p[i].tie < p[first].tie))
                        first = i;
        }
        return first;
}

#define STEPS 200000u

/* Keys within `window` above a floor that rises, or falls, by one every `pace` steps: with a wide window most
 * come out of order, with a narrow one in order. */
static void behaves_like_a_plain_list(uint64_t window, uint32_t pace, bool falls)
{
        struct plain plain[ITEMS] = {};
        struct random random;
        _cleanup_(heap_fini) struct heap h;

        random_init(&random, 1);
        assert_int_equal(heap_init(&h, ITEMS), 0);
        for (uint32_t step = 0; step < STEPS; step++) {
                uint32_t item = (uint32_t)random_below(&random, ITEMS);
                uint64_t floor = (falls ? STEPS - step : step) / pace;

                if (random_below(&random, 10) < (step / 1000 % 2 ? 7u : 3u)) {
                        plain[item] = (struct plain){true, floor + random_below(&random, window), step};
                        heap_put(&h, item, plain[item].key, step);
                } else {
                        plain[item].there = false;
                        heap_remove(&h, item);
                }
                assert_int_equal(h.places[item] != 0, plain[item].there);
                uint32_t first = first_of(plain);

                assert_int_equal(heap_first(&h), first);
                assert_int_equal(heap_first_key(&h), first == HEAP_NONE ? UINT64_MAX : plain[first].key);
        }
}

TEST(it_behaves_like_a_plain_list)
{
        behaves_like_a_plain_list(20, UINT32_MAX, false);
}

TEST(it_holds_deadlines)
{
        behaves_like_a_plain_list(1, 1, false);
        behaves_like_a_plain_list(3, 1, false);
        behaves_like_a_plain_list(200, 1, false);
}

TEST(it_holds_what_comes_in_reverse)
{
        behaves_like_a_plain_list(1, 1, true);
        behaves_like_a_plain_list(3, 1, true);
        behaves_like_a_plain_list(200, 1, true);
}

/* One item stays while others come and go in order: the ring fills with removed nodes. */
static void stays(bool falls)
{
        uint64_t middle = 100 * ITEMS;
        _cleanup_(heap_fini) struct heap h;

        assert_int_equal(heap_init(&h, ITEMS), 0);
        heap_put(&h, 0, middle, 0);
        for (uint32_t step = 1; step < 100 * ITEMS; step++) {
                uint32_t item = 1 + step % (ITEMS - 1);

                heap_put(&h, item, falls ? middle - step : middle + step, step);
                assert_int_equal(heap_first(&h), falls ? item : 0);
                assert_true(h.places[item] != 0);
                if (step % 7 != 0)
                        heap_remove(&h, item);
        }
        heap_remove(&h, 0);
        assert_true(falls ? heap_first_key(&h) < middle : heap_first_key(&h) > middle);
}

TEST(one_may_stay_for_ever)
{
        stays(false);
        stays(true);
}

TEST(items_come_out_in_order)
{
        _cleanup_(heap_fini) struct heap h;

        assert_int_equal(heap_init(&h, ITEMS), 0);
        for (uint32_t i = 0; i < ITEMS; i++)
                heap_put(&h, i, i * 37 % ITEMS / 2, i);
        for (uint64_t last = 0; heap_first(&h) != HEAP_NONE; heap_remove(&h, heap_first(&h))) {
                assert_true(heap_first_key(&h) >= last);
                last = heap_first_key(&h);
        }
        assert_int_equal(heap_first(&h), HEAP_NONE);
        heap_remove(&h, 5);
}
