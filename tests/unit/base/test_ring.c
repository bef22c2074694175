/* The ring between two threads. Also runs under the thread sanitizer. */
#include "../test.h"

#include <pthread.h>
#include <sched.h>

#include "base/ring.h"

#define ITEMS 200000u

TEST(it_is_a_queue_in_one_thread)
{
        struct ring ring;
        uint32_t out[8];

        assert_int_equal(ring_init(&ring, 5, sizeof(uint32_t)), 0);
        for (uint32_t round = 0; round < 5; round++) {
                for (uint32_t i = 0; i < 8; i++)
                        assert_true(ring_push(&ring, &(uint32_t){round * 8 + i}));
                assert_false(ring_push(&ring, &(uint32_t){99}));
                assert_int_equal(ring_count(&ring), 8);
                assert_int_equal(ring_pop(&ring, out, 3), 3);
                assert_int_equal(ring_pop(&ring, out + 3, 8), 5);
                for (uint32_t i = 0; i < 8; i++)
                        assert_int_equal(out[i], round * 8 + i);
                assert_int_equal(ring_pop(&ring, out, 8), 0);
        }
        ring_fini(&ring);
        assert_true(ring_init(&ring, 0, 4) < 0);
        ring_fini(NULL);
}

struct wide {
        uint64_t number, copy[5];
};

static void *produce(void *ctx)
{
        for (uint64_t i = 0; i < ITEMS;) {
                struct wide w = {i, {i, i, i, i, i}};

                if (ring_push(ctx, &w))
                        i++;
                else
                        sched_yield();
        }
        return NULL;
}

TEST(it_is_a_queue_between_two_threads)
{
        _cleanup_(ring_fini) struct ring ring;
        struct wide w[16];
        pthread_t thread;
        uint64_t next = 0;

        assert_int_equal(ring_init(&ring, 64, sizeof(struct wide)), 0);
        assert_int_equal(pthread_create(&thread, NULL, produce, &ring), 0);
        while (next < ITEMS) {
                size_t n = ring_pop(&ring, w, 1 + next % ARRAY_SIZE(w));

                for (size_t i = 0; i < n; i++, next++) {
                        assert_int_equal(w[i].number, next);
                        assert_int_equal(w[i].copy[4], next);
                }
                if (n == 0)
                        sched_yield();
        }
        pthread_join(thread, NULL);
        assert_int_equal(ring_count(&ring), 0);
}
