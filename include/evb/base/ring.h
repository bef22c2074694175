/* A bounded queue of fixed-size items between one producer thread and one consumer thread.
 * It never blocks and never grows; waking the other side is the caller's business. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
        /* Set at init, read by both. */
        uint8_t *items;
        uint32_t mask;
        uint32_t item_size_bytes;
        /* Written by the producer alone; `seen_tail` is its last view of `tail`. */
        _Alignas(64) _Atomic uint32_t head;
        uint32_t seen_tail;
        /* Written by the consumer alone; `seen_head` is its last view of `head`. */
        _Alignas(64) _Atomic uint32_t tail;
        uint32_t seen_head;
};

/* `capacity` is rounded up to a power of two, at most 2^31. Allocates; -ENOMEM, -EINVAL. */
int ring_init(struct ring *ring, uint32_t capacity, uint32_t item_size_bytes);
void ring_fini(struct ring *ring);

/* Producer: false where full. The item is copied. */
bool ring_push(struct ring *ring, const void *item);
/* Consumer: copies up to `n` items out in order, returns how many. */
size_t ring_pop(struct ring *ring, void *items, size_t n);
/* Either side: items in it, exact for the caller's own side, at most late for the other's. */
size_t ring_count(const struct ring *ring);
size_t ring_capacity(const struct ring *ring);
