/* A hash map from 64-bit ids to 32-bit indices with fixed capacity, made for event numbers: 16 ids that
 * follow each other share a cache line of values, so ids in sequence cost few cache misses. Of sparse ids,
 * each takes a line of its own. One thread. Any id except UINT64_MAX, any index except IDMAP_NONE. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define IDMAP_NONE UINT32_MAX
#define IDMAP_LINE 16u

struct idmap {
        /* Where the values of LINE ids are, of which the first is LINE * (key - 1): open addressing with
         * linear probing and backward-shift deletion, which leaves no tombstones, so the map does not slow
         * down over time. */
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
/* Removes an entry; its value, or IDMAP_NONE. */
uint32_t idmap_remove(struct idmap *map, uint64_t id);
/* Prefetches the row of `id` into the cache. */
void idmap_prefetch(const struct idmap *map, uint64_t id);
