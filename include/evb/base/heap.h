/* A priority queue of fixed capacity over the items 0 to capacity - 1. It holds each item at most once; items
 * may be moved or removed at any time. The item with the smallest key comes first. All operations take O(log
 * n). One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HEAP_NONE UINT32_MAX

struct heap {
        struct heap_node {
                uint64_t key, tie;
                uint32_t item;
        } * nodes;
        uint32_t *places; /* of each item in `nodes`; HEAP_NONE: absent */
        uint32_t n, capacity;
};

int heap_init(struct heap *h, uint32_t capacity); /* -ENOMEM */
void heap_fini(struct heap *h);

/* Adds the item, or moves it to its new key. Among equal keys the smaller `tie` comes first. */
void heap_put(struct heap *h, uint32_t item, uint64_t key, uint64_t tie);
void heap_remove(struct heap *h, uint32_t item); /* no effect if the item is absent */
bool heap_has(const struct heap *h, uint32_t item);
uint32_t heap_first(const struct heap *h);     /* HEAP_NONE: empty */
uint64_t heap_first_key(const struct heap *h); /* UINT64_MAX: empty */
