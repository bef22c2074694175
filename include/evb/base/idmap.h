/* A hash map from 64-bit ids to 32-bit indices, of fixed capacity, with deletion; made for event numbers.
 * Open addressing, linear probing, backward-shift deletion: no tombstones, so it is as fast after a day as at
 * start. One thread. Every id but UINT64_MAX is allowed. */
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

/* Room for `capacity` ids (at most 2^30), at a load of a half or less. -ENOMEM, -EINVAL. */
int idmap_init(struct idmap *map, uint32_t capacity);
void idmap_fini(struct idmap *map);

/* IDMAP_NONE where absent. */
uint32_t idmap_get(const struct idmap *map, uint64_t id);
/* Adds or changes; false where `capacity` ids are in it and `id` is not one of them. */
bool idmap_put(struct idmap *map, uint64_t id, uint32_t value);
/* The value that `id` had, or IDMAP_NONE. */
uint32_t idmap_remove(struct idmap *map, uint64_t id);
/* Brings the cells of `id` into the cache ahead of a get. */
void idmap_prefetch(const struct idmap *map, uint64_t id);
