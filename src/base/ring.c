/* One producer, one consumer, and two indices that only grow. Each side keeps its last view of the other's
 * index, and reads the shared index only if that view says full or empty. */
#include "base/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

int ring_init(struct ring *ring, uint32_t capacity, uint32_t item_size_bytes)
{
        uint32_t size = 1;

        if (capacity == 0 || capacity > UINT32_C(1) << 31 || item_size_bytes == 0)
                return -EINVAL;
        while (size < capacity)
                size *= 2;
        *ring = (struct ring){.mask = size - 1, .item_size_bytes = item_size_bytes};
        ring->items = calloc(size, item_size_bytes);
        return ring->items ? 0 : -ENOMEM;
}

void ring_fini(struct ring *ring)
{
        if (!ring)
                return;
        free(ring->items);
        ring->items = NULL;
}

bool ring_push(struct ring *ring, const void *item)
{
        uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

        if (head - ring->seen_tail > ring->mask) {
                /* Acquire: the consumer has read the item that this push overwrites. */
                ring->seen_tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
                if (head - ring->seen_tail > ring->mask)
                        return false;
        }
        memcpy(ring->items + (size_t)(head & ring->mask) * ring->item_size_bytes, item,
               ring->item_size_bytes);
        /* Release: a thread that sees the new head sees the item. */
        atomic_store_explicit(&ring->head, head + 1, memory_order_release);
        return true;
}

size_t ring_pop(struct ring *ring, void *items, size_t n)
{
        uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        uint8_t *to = items;

        if (ring->seen_head - tail < n)
                /* Acquire: the items below this head are complete. */
                ring->seen_head = atomic_load_explicit(&ring->head, memory_order_acquire);
        n = MIN(n, (size_t)(ring->seen_head - tail));
        for (size_t i = 0; i < n; i++, to += ring->item_size_bytes)
                memcpy(to, ring->items + (size_t)((tail + i) & ring->mask) * ring->item_size_bytes,
                       ring->item_size_bytes);
        /* Release: the items are read before the producer overwrites them. */
        if (n > 0)
                atomic_store_explicit(&ring->tail, tail + (uint32_t)n, memory_order_release);
        return n;
}

size_t ring_count(const struct ring *ring)
{
        uint32_t tail = atomic_load_explicit((_Atomic uint32_t *)&ring->tail, memory_order_acquire);

        return atomic_load_explicit((_Atomic uint32_t *)&ring->head, memory_order_acquire) - tail;
}
