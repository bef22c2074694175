/* A lock-free ring of slots between two threads of a stream, one producer and one consumer. The slots are
 * contiguous in one mapping, so that consecutive slots can be read or written at once. Each side wakes the
 * other in one of several ways; the default costs a system call only if the other side sleeps. */
#pragma once

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a waiting side detects new slots. */
enum wake_kind {
        WAKE_FUTEX,  /* sleeps until the number of slots that it waits for is available */
        WAKE_SIGNAL, /* a semaphore, posted after every `every` slots */
        WAKE_YIELD,  /* calls sched_yield() until slots are available */
        WAKE_POLL,   /* polls without pause */
};

struct wake {
        enum wake_kind kind;
        uint32_t every; /* WAKE_SIGNAL */
};

/* One direction: slots that one side has published, and for which the other may be waiting. */
struct slot_gate {
        /* Written by the publishing side, at least with release order, so that the contents of slots are
         * visible first. */
        _Alignas(64) _Atomic uint64_t count;
        uint64_t signalled; /* part of `count` signalled by the semaphore; used by the publishing side */
        /* Written by the waiting side; NEVER: it is awake. */
        _Alignas(64) _Atomic uint64_t wanted;
        _Atomic uint32_t word; /* word for futex(2) */
        sem_t semaphore;
        struct wake wake;
        _Atomic uint64_t wakes; /* number of system calls that woke the other side */
};

struct slot_ring {
        uint8_t *bytes;
        uint32_t *sizes; /* bytes in use of each slot; written with the slot */
        uint64_t slots, stride_bytes;
        size_t mapped_bytes;
        struct slot_gate filled, emptied;
        _Atomic bool closed;
};

/* The number of slots is limited because the bookkeeping of each slot also needs memory. */
#define SLOT_RING_SLOTS_MAX (UINT64_C(1) << 20)

/* `slots` is at most SLOT_RING_SLOTS_MAX, and is rounded down to a power of two. `wake` is for the consumer;
 * a producer that waits for space always sleeps, because it waits for several slots. -ENOMEM, -EINVAL. */
int slot_ring_init(struct slot_ring *r, uint64_t slots, uint64_t stride_bytes, const struct wake *wake);
void slot_ring_fini(struct slot_ring *r);
/* Numbers the slots from n on instead of 0. Call this before the ring is used. */
void slot_ring_number(struct slot_ring *r, uint64_t n);

/* Slot number n, counted from 0, or from slot_ring_number(), since the ring was created. */
static inline uint8_t *slot_ring_at(const struct slot_ring *r, uint64_t n)
{
        return r->bytes + (n & (r->slots - 1)) * r->stride_bytes;
}

static inline uint32_t *slot_ring_size(const struct slot_ring *r, uint64_t n)
{
        return &r->sizes[n & (r->slots - 1)];
}

/* Number of contiguous slots from n on. */
static inline uint64_t slot_ring_straight(const struct slot_ring *r, uint64_t n)
{
        return r->slots - (n & (r->slots - 1));
}

/* Number of slots that the producer has filled, or the consumer has emptied, since the beginning. Writes of
 * the other side are acquired, so that the slots may be used. */
static inline uint64_t slot_ring_filled(struct slot_ring *r)
{
        return atomic_load_explicit(&r->filled.count, memory_order_acquire);
}

static inline uint64_t slot_ring_emptied(struct slot_ring *r)
{
        return atomic_load_explicit(&r->emptied.count, memory_order_acquire);
}

/* Percentage of the ring in use, for a live line. Any thread. 0 before slot_ring_init(). */
unsigned slot_ring_percent(struct slot_ring *r);

/* Producer: publishes that all slots below `count` are filled. Consumer: publishes that all below `count` are
 * free again. */
void slot_ring_fill(struct slot_ring *r, uint64_t count);
void slot_ring_empty(struct slot_ring *r, uint64_t count);

/* Consumer: waits until `count` slots have been filled, at most wait_ns. Producer: the same for emptied
 * slots. Returns the present number, which may be less than `count`. Both return at once if the ring is
 * closed. */
uint64_t slot_ring_wait_filled(struct slot_ring *r, uint64_t count, uint64_t wait_ns);
uint64_t slot_ring_wait_emptied(struct slot_ring *r, uint64_t count, uint64_t wait_ns);

/* Any thread: wakes both sides, which then no longer wait. The contents remain. */
void slot_ring_close(struct slot_ring *r);
bool slot_ring_is_closed(const struct slot_ring *r);
