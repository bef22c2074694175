/* A hash map from 64-bit ids to 32-bit indices with fixed capacity, made for event numbers. Open addressing
 * with linear probing and backward-shift deletion leaves no tombstones, so it does not slow down over time.
 * One thread. Any id except UINT64_MAX. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDMAP_NONE UINT32_MAX

struct idmap {
        struct idmap_cell {
                uint64_t id;
                uint32_t value;
        } * cells;
        uint32_t mask, count, capacity;
};

/* Allocates space for `capacity` ids (at most 2^30) at a load of at most one half. -ENOMEM, -EINVAL. */
int idmap_init(struct idmap *map, uint32_t capacity);
void idmap_fini(struct idmap *map);

/* IDMAP_NONE: absent. */
uint32_t idmap_get(const struct idmap *map, uint64_t id);
/* Adds or changes an entry. False: the map is full and `id` is absent. */
bool idmap_put(struct idmap *map, uint64_t id, uint32_t value);
/* Removes an entry; its value, or IDMAP_NONE. */
uint32_t idmap_remove(struct idmap *map, uint64_t id);
/* Prefetches the cells of `id` into the cache. */
void idmap_prefetch(const struct idmap *map, uint64_t id);
