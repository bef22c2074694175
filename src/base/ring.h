/* A bounded queue of fixed-size items between one producer thread and one consumer thread. It never blocks
 * and never grows; the caller wakes the other side. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
        /* Set at init; read by both. */
        uint8_t *items;
        uint32_t mask;
        uint32_t item_size_bytes;
        /* Written only by the producer; `seen_tail` is its last view of `tail`. */
        _Alignas(64) _Atomic uint32_t head;
        uint32_t seen_tail;
        /* Written only by the consumer; `seen_head` is its last view of `head`. */
        _Alignas(64) _Atomic uint32_t tail;
        uint32_t seen_head;
};

/* Allocates. `capacity` is rounded up to a power of two, at most 2^31. -ENOMEM, -EINVAL. */
int ring_init(struct ring *ring, uint32_t capacity, uint32_t item_size_bytes);
void ring_fini(struct ring *ring);

/* Producer: copies an item in. False: full. */
bool ring_push(struct ring *ring, const void *item);
/* Consumer: copies up to `n` items out in order; returns their number. */
size_t ring_pop(struct ring *ring, void *items, size_t n);
/* Either side: the number of items; the other side's changes may appear late. */
size_t ring_count(const struct ring *ring);
