/* Publishes slots and wakes the side that waits for them. */
#include "stream/slot_ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "sys/loop.h"
#include "sys/memory.h"

/* Linux 5.14; glibc 2.34 does not define it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* A spinning side reads the clock once per this many turns. */
#define TURNS_PER_LOOK 256u

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *wait)
{
        return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, wait, NULL, 0);
}

static void gate_init(struct slot_gate *g, const struct wake *wake)
{
        atomic_init(&g->count, 0);
        atomic_init(&g->wanted, NEVER_NS);
        atomic_init(&g->word, 0);
        atomic_init(&g->wakes, 0);
        g->signalled = 0;
        g->wake = *wake;
        sem_init(&g->semaphore, 0, 0);
}

int slot_ring_init(struct slot_ring *r, uint64_t slots, uint64_t stride_bytes, const struct wake *wake)
{
        const struct wake back = {.kind = WAKE_FUTEX};

        if (slots == 0 || slots > SLOT_RING_SLOTS_MAX || stride_bytes == 0 || stride_bytes > UINT32_MAX)
                return -EINVAL;
        r->slots = UINT64_C(1) << (63 - __builtin_clzll(slots));
        r->stride_bytes = stride_bytes;
        r->mapped_bytes = r->slots * stride_bytes;
        r->bytes = memory_map(r->mapped_bytes);
        r->sizes = calloc(r->slots, sizeof *r->sizes);
        gate_init(&r->filled, wake);
        gate_init(&r->emptied, &back);
        atomic_init(&r->closed, false);
        if (r->bytes && r->sizes) {
                /* Touches the memory now, because page faults during the first round would delay packets. */
                if (madvise(r->bytes, r->mapped_bytes, MADV_POPULATE_WRITE) < 0)
                        memset(r->bytes, 0, r->mapped_bytes);
                return 0;
        }
        slot_ring_fini(r);
        return -ENOMEM;
}

void slot_ring_fini(struct slot_ring *r)
{
        if (!r || r->slots == 0)
                return;
        memory_unmap(r->bytes, r->mapped_bytes);
        free(r->sizes);
        sem_destroy(&r->filled.semaphore);
        sem_destroy(&r->emptied.semaphore);
        r->bytes = NULL;
        r->sizes = NULL;
        r->slots = 0;
}

void slot_ring_number(struct slot_ring *r, uint64_t n)
{
        atomic_store(&r->filled.count, n);
        atomic_store(&r->emptied.count, n);
        r->filled.signalled = r->emptied.signalled = n;
}

static void wake_sleeper(struct slot_gate *g)
{
        atomic_store_explicit(&g->wanted, NEVER_NS, memory_order_relaxed);
        atomic_fetch_add_explicit(&g->word, 1, memory_order_release);
        (void)futex(&g->word, FUTEX_WAKE, 1, NULL);
        atomic_fetch_add_explicit(&g->wakes, 1, memory_order_relaxed);
}

/* Here and in sleep_by_futex(), each side writes its own value before it reads the value of the other side.
 * Both operations are sequentially consistent, so at least one side sees the write of the other: the
 * publisher sees the wanted number, or the sleeper sees the published slots. */
static void gate_publish(struct slot_gate *g, uint64_t count)
{
        if (g->wake.kind == WAKE_FUTEX) {
                atomic_store_explicit(&g->count, count, memory_order_seq_cst);
                if (count >= atomic_load_explicit(&g->wanted, memory_order_seq_cst))
                        wake_sleeper(g);
                return;
        }
        atomic_store_explicit(&g->count, count, memory_order_release);
        if (g->wake.kind == WAKE_SIGNAL) {
                for (; count - g->signalled >= g->wake.every; g->signalled += g->wake.every) {
                        sem_post(&g->semaphore);
                        atomic_fetch_add_explicit(&g->wakes, 1, memory_order_relaxed);
                }
        }
}

void slot_ring_fill(struct slot_ring *r, uint64_t count)
{
        gate_publish(&r->filled, count);
}

void slot_ring_empty(struct slot_ring *r, uint64_t count)
{
        gate_publish(&r->emptied, count);
}

static bool is_reached(struct slot_ring *r, struct slot_gate *g, uint64_t count)
{
        return atomic_load_explicit(&g->count, memory_order_seq_cst) >= count ||
               atomic_load_explicit(&r->closed, memory_order_seq_cst);
}

static void sleep_by_futex(struct slot_ring *r, struct slot_gate *g, uint64_t count, uint64_t wait_ns)
{
        struct timespec wait = {.tv_sec = (time_t)(wait_ns / NS_PER_S),
                                .tv_nsec = (long)(wait_ns % NS_PER_S)};
        uint32_t word = atomic_load_explicit(&g->word, memory_order_acquire);

        atomic_store_explicit(&g->wanted, count, memory_order_seq_cst);
        if (!is_reached(r, g, count))
                (void)futex(&g->word, FUTEX_WAIT, word, &wait);
        atomic_store_explicit(&g->wanted, NEVER_NS, memory_order_relaxed);
}

static void sleep_by_semaphore(struct slot_gate *g, uint64_t wait_ns)
{
        uint64_t end_ns = clock_now_ns() + wait_ns;
        struct timespec end = {.tv_sec = (time_t)(end_ns / NS_PER_S), .tv_nsec = (long)(end_ns % NS_PER_S)};

        (void)sem_clockwait(&g->semaphore, CLOCK_MONOTONIC, &end);
}

/* Yields the core to its other hardware thread. */
static void relax(void)
{
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#endif
}

static void spin(struct slot_ring *r, struct slot_gate *g, uint64_t count, uint64_t wait_ns)
{
        uint64_t end_ns = clock_now_ns() + wait_ns;

        for (uint32_t turn = 1; !is_reached(r, g, count); turn++) {
                if (g->wake.kind == WAKE_YIELD)
                        sched_yield();
                else
                        relax();
                if (turn % TURNS_PER_LOOK == 0 && clock_now_ns() >= end_ns)
                        return;
        }
}

static uint64_t gate_wait(struct slot_ring *r, struct slot_gate *g, uint64_t count, uint64_t wait_ns)
{
        if (!is_reached(r, g, count)) {
                if (g->wake.kind == WAKE_FUTEX)
                        sleep_by_futex(r, g, count, wait_ns);
                else if (g->wake.kind == WAKE_SIGNAL)
                        sleep_by_semaphore(g, wait_ns);
                else
                        spin(r, g, count, wait_ns);
        }
        return atomic_load_explicit(&g->count, memory_order_acquire);
}

uint64_t slot_ring_wait_filled(struct slot_ring *r, uint64_t count, uint64_t wait_ns)
{
        return gate_wait(r, &r->filled, count, wait_ns);
}

uint64_t slot_ring_wait_emptied(struct slot_ring *r, uint64_t count, uint64_t wait_ns)
{
        return gate_wait(r, &r->emptied, count, wait_ns);
}

void slot_ring_close(struct slot_ring *r)
{
        atomic_store_explicit(&r->closed, true, memory_order_seq_cst);
        wake_sleeper(&r->filled);
        wake_sleeper(&r->emptied);
        sem_post(&r->filled.semaphore);
        sem_post(&r->emptied.semaphore);
}

bool slot_ring_is_closed(const struct slot_ring *r)
{
        return atomic_load_explicit(&r->closed, memory_order_acquire);
}

unsigned slot_ring_percent(struct slot_ring *r)
{
        return r->slots == 0 ? 0 : (unsigned)((slot_ring_filled(r) - slot_ring_emptied(r)) * 100 / r->slots);
}
