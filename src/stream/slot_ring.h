/* A lock-free ring of slots between two threads of a stream, one producer and one consumer. The slots lie one
 * after another in one mapping, so that consecutive ones can be read or written at once. Each side wakes the
 * other in one of several ways, the default of which costs a system call only if the other side sleeps. */
#pragma once

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a side that waits learns of new slots. */
enum wake_kind {
        WAKE_FUTEX,  /* sleeps, and is woken when as many slots are there as it waits for */
        WAKE_SIGNAL, /* a semaphore, posted after every `every` slots */
        WAKE_YIELD,  /* sched_yield() until slots are there */
        WAKE_POLL,   /* looks without pause */
};

struct wake {
        enum wake_kind kind;
        uint32_t every; /* WAKE_SIGNAL */
};

/* One direction: slots that one side has published, and the other may be waiting for. */
struct slot_gate {
        /* Written by the publishing side; at least release, so that the contents of slots are visible before.
         */
        _Alignas(64) _Atomic uint64_t count;
        uint64_t signalled; /* of `count`, by the semaphore; the publishing side's */
        /* Written by the waiting side; NEVER: it is awake. */
        _Alignas(64) _Atomic uint64_t wanted;
        _Atomic uint32_t word; /* futex(2) */
        sem_t semaphore;
        struct wake wake;
        _Atomic uint64_t wakes; /* system calls that woke */
};

struct slot_ring {
        uint8_t *bytes;
        uint32_t *sizes; /* bytes of each slot that are in use; written with it */
        uint64_t slots, stride_bytes;
        size_t mapped_bytes;
        struct slot_gate filled, emptied;
        _Atomic bool closed;
};

/* The bookkeeping of a slot also takes memory. */
#define SLOT_RING_SLOTS_MAX (UINT64_C(1) << 20)

/* `slots` is at most SLOT_RING_SLOTS_MAX, and rounded down to a power of two. `wake` is for the consumer; a
 * producer that waits for space always sleeps, as it waits for several slots. -ENOMEM, -EINVAL. */
int slot_ring_init(struct slot_ring *r, uint64_t slots, uint64_t stride_bytes, const struct wake *wake);
void slot_ring_fini(struct slot_ring *r);

/* Slot number n, counted from 0 through the life of the ring. */
static inline uint8_t *slot_ring_at(const struct slot_ring *r, uint64_t n)
{
        return r->bytes + (n & (r->slots - 1)) * r->stride_bytes;
}

static inline uint32_t *slot_ring_size(const struct slot_ring *r, uint64_t n)
{
        return &r->sizes[n & (r->slots - 1)];
}

/* Number of slots from n on that lie one after another. */
static inline uint64_t slot_ring_straight(const struct slot_ring *r, uint64_t n)
{
        return r->slots - (n & (r->slots - 1));
}

/* Slots that the producer has filled, and the consumer emptied, since the beginning. What the other side has
 * done is acquired, so that the slots may be used. */
static inline uint64_t slot_ring_filled(struct slot_ring *r)
{
        return atomic_load_explicit(&r->filled.count, memory_order_acquire);
}

static inline uint64_t slot_ring_emptied(struct slot_ring *r)
{
        return atomic_load_explicit(&r->emptied.count, memory_order_acquire);
}

/* The part of the ring that is in use, for a live line. Any thread. 0 before slot_ring_init(). */
unsigned slot_ring_percent(struct slot_ring *r);

/* Producer: all slots below `count` are filled. Consumer: all below `count` are free again. */
void slot_ring_fill(struct slot_ring *r, uint64_t count);
void slot_ring_empty(struct slot_ring *r, uint64_t count);

/* Consumer: waits until `count` slots were filled, at most wait_ns. Producer: likewise for emptied ones.
 * Returns the present number, which may be less; both return at once if the ring is closed. */
uint64_t slot_ring_wait_filled(struct slot_ring *r, uint64_t count, uint64_t wait_ns);
uint64_t slot_ring_wait_emptied(struct slot_ring *r, uint64_t count, uint64_t wait_ns);

/* Any thread: wakes both sides, which do not wait again. The contents remain. */
void slot_ring_close(struct slot_ring *r);
bool slot_ring_is_closed(const struct slot_ring *r);
