/* A priority queue of fixed capacity over the items 0 to capacity - 1. It holds each item at most once; items
 * may be moved or removed at any time. The item with the smallest key comes first. Operations take O(log n),
 * and O(1) on average if items are added in ascending order of their keys, as deadlines mostly are, or in
 * descending order. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HEAP_NONE UINT32_MAX

struct heap {
        struct heap_node {
                uint64_t key, tie;
                uint32_t item;   /* HEAP_NONE: removed from the queue */
        } * nodes;               /* a binary heap of the items that were not added in order */
        struct heap_node *queue; /* a ring of the other items, in order; the end nodes are never gaps */
        uint64_t head, tail;     /* of the ring, free-running */
        uint32_t *places;        /* position of each item in `nodes` or in the ring; 0: absent */
        uint32_t n_nodes, queue_mask, capacity;
};

/* -ENOMEM, -EINVAL: the capacity exceeds 2^29. */
int heap_init(struct heap *h, uint32_t capacity);
void heap_fini(struct heap *h);

/* Adds the item, or moves it to its new key. Among equal keys the smaller `tie` comes first. */
void heap_put(struct heap *h, uint32_t item, uint64_t key, uint64_t tie);
void heap_remove(struct heap *h, uint32_t item); /* no effect if the item is absent */
uint32_t heap_first(const struct heap *h);       /* HEAP_NONE: empty */
uint64_t heap_first_key(const struct heap *h);   /* UINT64_MAX: empty */
