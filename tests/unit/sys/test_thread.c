/* A consumer that sleeps while its ring is empty misses no item. Also runs under the thread sanitizer. */
#include "../test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/ring.h"
#include "sys/loop.h"
#include "sys/thread.h"

#define ITEMS 100000u

struct pair {
        struct ring ring;
        struct waker waker;
        uint64_t sum;
};

static void *consume(void *ctx)
{
        struct pair *p = ctx;
        uint32_t item;

        for (uint32_t taken = 0; taken < ITEMS;) {
                if (ring_pop(&p->ring, &item, 1) == 1) {
                        p->sum += item;
                        taken++;
                        continue;
                }
                waker_prepare(&p->waker);
                /* No timeout: a lost wake-up hangs the test, which then fails by meson's timeout. */
                if (ring_count(&p->ring) == 0)
                        waker_wait(&p->waker, -1);
                waker_done(&p->waker);
        }
        return NULL;
}

TEST(no_wake_up_is_lost)
{
        struct pair p = {};
        pthread_t thread;

        assert_int_equal(ring_init(&p.ring, 16, sizeof(uint32_t)), 0);
        assert_int_equal(waker_init(&p.waker), 0);
        assert_int_equal(thread_start(&thread, "consumer", NULL, 0, consume, &p), 0);
        for (uint32_t i = 0; i < ITEMS; i++) {
                while (!ring_push(&p.ring, &i))
                        waker_wake(&p.waker);
                waker_wake(&p.waker);
        }
        pthread_join(thread, NULL);
        assert_int_equal(p.sum, (uint64_t)ITEMS * (ITEMS - 1) / 2);
        waker_fini(&p.waker);
        ring_fini(&p.ring);
}

static int calls;

static void count(void *ctx, uint32_t events)
{
        uint64_t n;

        assert_int_equal(read(((struct loop_io *)ctx)->fd, &n, sizeof n), sizeof n);
        calls++;
}

TEST(the_loop_waits_for_descriptors_and_time)
{
        _cleanup_(waker_fini) struct waker w;
        struct loop *loop;
        struct loop_io io = {.events = 1 /* EPOLLIN */, .ready = count, .ctx = &io};
        uint64_t begin;

        assert_int_equal(waker_init(&w), 0);
        assert_int_equal(loop_new(&loop), 0);
        io.fd = w.fd;
        assert_int_equal(loop_add(loop, &io), 0);
        begin = clock_now_ns();
        assert_int_equal(loop_wait(loop, begin + 2000000), 0);
        assert_true(loop_now_ns(loop) >= begin + 2000000 && calls == 0);
        waker_prepare(&w);
        waker_wake(&w);
        assert_int_equal(loop_wait(loop, UINT64_MAX), 0);
        assert_int_equal(calls, 1);
        loop_remove(loop, &io);
        waker_prepare(&w);
        waker_wake(&w);
        assert_int_equal(loop_wait(loop, 0), 0);
        assert_int_equal(calls, 1);
        loop_free(loop);
}
