/* A hash map from 64-bit ids to 32-bit indices with fixed capacity, made for event numbers: 16 consecutive
 * ids share a cache line of values, so sequential ids cost few cache misses. Sparse ids take a line each. One
 * thread. Accepts any id except UINT64_MAX, and any index except IDMAP_NONE. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDMAP_NONE UINT32_MAX
#define IDMAP_LINE 16u

struct idmap {
        /* Maps IDMAP_LINE consecutive ids, the first of which is IDMAP_LINE * (key - 1), to the line of their
         * values. Open addressing with linear probing and backward-shift deletion leaves no tombstones, so
         * the map does not slow down over time. */
        struct idmap_row {
                uint64_t key;
                uint32_t line, used;
        } * rows;
        void *memory;                  /* of the rows */
        uint32_t (*lines)[IDMAP_LINE]; /* a free line begins with the number of the next free one */
        uint32_t mask, count, capacity, free_line, untouched_line;
};

/* Allocates space for `capacity` ids (at most 2^30). -ENOMEM, -EINVAL. */
int idmap_init(struct idmap *map, uint32_t capacity);
void idmap_fini(struct idmap *map);

/* IDMAP_NONE: absent. */
uint32_t idmap_get(const struct idmap *map, uint64_t id);
/* Adds or changes an entry. False: the map is full and `id` is absent. */
bool idmap_put(struct idmap *map, uint64_t id, uint32_t value);
/* Removes an entry. Returns its value, or IDMAP_NONE. */
uint32_t idmap_remove(struct idmap *map, uint64_t id);
/* Prefetches the row of `id` into the cache. */
void idmap_prefetch(const struct idmap *map, uint64_t id);
