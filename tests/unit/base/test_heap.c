/* The priority queue, compared with a plain list of the same items. */
#include "../test.h"

#include "evb/base/heap.h"
#include "evb/base/random.h"

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

static void it_behaves_like_a_plain_list(void **state)
{
        struct plain plain[ITEMS] = {};
        struct random random;
        struct heap h;

        (void)state;
        random_init(&random, 1);
        assert_int_equal(heap_init(&h, ITEMS), 0);
        for (uint32_t step = 0; step < 200000; step++) {
                uint32_t item = (uint32_t)random_below(&random, ITEMS);

                if (random_below(&random, 10) < (step / 1000 % 2 ? 7u : 3u)) {
                        plain[item] = (struct plain){true, random_below(&random, 20), step};
                        heap_put(&h, item, plain[item].key, step);
                } else {
                        plain[item].there = false;
                        heap_remove(&h, item);
                }
                assert_int_equal(heap_has(&h, item), plain[item].there);
                uint32_t first = first_of(plain);

                assert_int_equal(heap_first(&h), first);
                assert_int_equal(heap_first_key(&h), first == HEAP_NONE ? UINT64_MAX : plain[first].key);
        }
        heap_fini(&h);
}

static void items_come_out_in_order(void **state)
{
        struct heap h;

        (void)state;
        assert_int_equal(heap_init(&h, ITEMS), 0);
        for (uint32_t i = 0; i < ITEMS; i++)
                heap_put(&h, i, i * 37 % ITEMS / 2, i);
        for (uint64_t last = 0; h.n > 0; heap_remove(&h, heap_first(&h))) {
                assert_true(heap_first_key(&h) >= last);
                last = heap_first_key(&h);
        }
        assert_int_equal(heap_first(&h), HEAP_NONE);
        heap_remove(&h, 5);
        heap_fini(&h);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(it_behaves_like_a_plain_list),
                cmocka_unit_test(items_come_out_in_order),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
