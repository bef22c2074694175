/* The ring of slots with each way of waking: no slot is lost or seen early, and no side hangs. Also runs
 * under the thread sanitizer. */
#include "../test.h"

#include <pthread.h>

#include "stream/slot_ring.h"
#include "sys/loop.h"

#define SLOTS 16u
#define ITEMS 50000u
/* No wait is shorter than the test may take: a lost wake-up shows as a time. */
#define LONG_NS (60 * NS_PER_S)

TEST(slots_lie_one_after_another)
{
        struct slot_ring r = {};

        assert_int_equal(slot_ring_init(&r, 21, 100, &(struct wake){WAKE_FUTEX, 0}), 0);
        assert_int_equal(r.slots, SLOTS);
        assert_ptr_equal(slot_ring_at(&r, 1), slot_ring_at(&r, 0) + 100);
        assert_ptr_equal(slot_ring_at(&r, SLOTS), slot_ring_at(&r, 0));
        assert_int_equal(slot_ring_straight(&r, 0), SLOTS);
        assert_int_equal(slot_ring_straight(&r, 3 * SLOTS + 15), 1);
        slot_ring_fini(&r);
        slot_ring_fini(&r);
        slot_ring_fini(NULL);
        assert_int_equal(slot_ring_init(&r, 0, 100, &(struct wake){WAKE_FUTEX, 0}), -EINVAL);
        assert_int_equal(slot_ring_init(&r, 4, 0, &(struct wake){WAKE_FUTEX, 0}), -EINVAL);
}

static void *produce(void *ctx)
{
        struct slot_ring *r = ctx;

        for (uint64_t n = 0; n < ITEMS; n++) {
                while (n - slot_ring_emptied(r) == r->slots)
                        slot_ring_wait_emptied(r, n - r->slots + 1, LONG_NS);
                memcpy(slot_ring_at(r, n), &n, sizeof n);
                *slot_ring_size(r, n) = (uint32_t)n;
                slot_ring_fill(r, n + 1);
        }
        return NULL;
}

static void move(const struct wake *wake, uint64_t wanted, uint64_t wait_ns)
{
        _cleanup_(slot_ring_fini) struct slot_ring r;
        pthread_t thread;
        uint64_t n = 0;

        assert_int_equal(slot_ring_init(&r, SLOTS, 24, wake), 0);
        assert_int_equal(pthread_create(&thread, NULL, produce, &r), 0);
        while (n < ITEMS) {
                uint64_t filled = slot_ring_wait_filled(&r, MIN(n + wanted, (uint64_t)ITEMS), wait_ns), found;

                for (; n < filled; n++) {
                        memcpy(&found, slot_ring_at(&r, n), sizeof found);
                        assert_int_equal(found, n);
                        assert_int_equal(*slot_ring_size(&r, n), n);
                }
                slot_ring_empty(&r, n);
        }
        pthread_join(thread, NULL);
}

TEST(each_way_of_waking_moves_all)
{
        move(&(struct wake){WAKE_FUTEX, 0}, 1, LONG_NS);
        move(&(struct wake){WAKE_FUTEX, 0}, SLOTS, LONG_NS);
        move(&(struct wake){WAKE_YIELD, 0}, 1, LONG_NS);
        move(&(struct wake){WAKE_SIGNAL, 1}, 1, LONG_NS);
        move(&(struct wake){WAKE_SIGNAL, 4}, 1, NS_PER_MS);
        /* A signal that never comes, because the ring is smaller: only the bound of the wait helps. */
        move(&(struct wake){WAKE_SIGNAL, ITEMS}, 1, NS_PER_US);
}

static const struct wake timed_wakes[] = {{WAKE_FUTEX, 0}, {WAKE_SIGNAL, 1}, {WAKE_YIELD, 0}, {WAKE_POLL, 0}};

TEST_EACH(a_wait_ends_in_time, i, ARRAY_SIZE(timed_wakes))
{
        _cleanup_(slot_ring_fini) struct slot_ring r;

        assert_int_equal(slot_ring_init(&r, SLOTS, 24, &timed_wakes[i]), 0);
        assert_int_equal(slot_ring_wait_filled(&r, 1, NS_PER_MS), 0);
        assert_int_equal(slot_ring_wait_emptied(&r, 1, NS_PER_MS), 0);
}

static void *close_ring(void *ctx)
{
        slot_ring_close(ctx);
        return NULL;
}

static const struct wake closed_wakes[] = {{WAKE_FUTEX, 0}, {WAKE_SIGNAL, 100}, {WAKE_YIELD, 0}};

TEST_EACH(closing_wakes_who_waits, i, ARRAY_SIZE(closed_wakes))
{
        uint64_t begin_ns = clock_now_ns();
        _cleanup_(slot_ring_fini) struct slot_ring r;
        pthread_t thread;

        assert_int_equal(slot_ring_init(&r, SLOTS, 24, &closed_wakes[i]), 0);
        assert_int_equal(pthread_create(&thread, NULL, close_ring, &r), 0);
        while (!slot_ring_is_closed(&r))
                slot_ring_wait_filled(&r, 1, LONG_NS);
        assert_int_equal(slot_ring_wait_emptied(&r, 1, LONG_NS), 0);
        pthread_join(thread, NULL);
        assert_true(clock_now_ns() - begin_ns < LONG_NS);
}

TEST(an_awake_consumer_costs_no_call)
{
        _cleanup_(slot_ring_fini) struct slot_ring r;

        assert_int_equal(slot_ring_init(&r, SLOTS, 24, &(struct wake){WAKE_FUTEX, 0}), 0);
        for (uint64_t n = 1; n <= SLOTS; n++)
                slot_ring_fill(&r, n);
        assert_int_equal(slot_ring_wait_filled(&r, SLOTS, LONG_NS), SLOTS);
        assert_int_equal(atomic_load(&r.filled.wakes), 0);
}
