/* Maps event numbers to indices: a hash table whose rows each lead to a line of values. */
#include "base/idmap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define CACHE_LINE_BYTES 64u
/* Binary logarithm of the rows per cache line; rows of consecutive keys share a cache line. */
#define ROW_BITS 2u
/* Memory from calloc() is empty, so a large map with few entries touches few pages. */
#define EMPTY 0u

/* Fibonacci hashing: an even distribution at the cost of one multiplication. */
static uint32_t home(const struct idmap *map, uint64_t key)
{
        uint32_t line = (uint32_t)(((key >> ROW_BITS) * UINT64_C(0x9E3779B97F4A7C15)) >> 32);

        return (line << ROW_BITS | (uint32_t)(key & ((1u << ROW_BITS) - 1))) & map->mask;
}

int idmap_init(struct idmap *map, uint32_t capacity)
{
        uint32_t rows = 4;

        if (capacity > UINT32_C(1) << 30)
                return -EINVAL;
        while (rows < 2 * capacity)
                rows *= 2;
        *map = (struct idmap){.mask = rows - 1, .capacity = capacity, .free_line = IDMAP_NONE};
        map->memory = calloc(1, rows * sizeof *map->rows + CACHE_LINE_BYTES);
        map->lines = aligned_alloc(CACHE_LINE_BYTES, MAX(capacity, 1u) * sizeof *map->lines);
        if (!map->memory || !map->lines) {
                idmap_fini(map);
                return -ENOMEM;
        }
        map->rows = (void *)(((uintptr_t)map->memory + CACHE_LINE_BYTES - 1) &
                             ~(uintptr_t)(CACHE_LINE_BYTES - 1));
        return 0;
}

void idmap_fini(struct idmap *map)
{
        if (!map)
                return;
        free(map->memory);
        free(map->lines);
        *map = (struct idmap){};
}

/* Returns the row of `key`, or the empty row where it belongs. */
static uint32_t find(const struct idmap *map, uint64_t key)
{
        uint32_t i = home(map, key);

        while (map->rows[i].key != key && map->rows[i].key != EMPTY)
                i = (i + 1) & map->mask;
        return i;
}

/* The map has as many lines as ids, so a free one always exists. */
static uint32_t new_line(struct idmap *map)
{
        uint32_t line = map->free_line;

        if (line == IDMAP_NONE)
                line = map->untouched_line++;
        else
                map->free_line = map->lines[line][0];
        memset(map->lines[line], 0xff, sizeof map->lines[line]);
        return line;
}

static void release_line(struct idmap *map, uint32_t line)
{
        map->lines[line][0] = map->free_line;
        map->free_line = line;
}

static uint64_t key_of(uint64_t id)
{
        return id / IDMAP_LINE + 1;
}

uint32_t idmap_get(const struct idmap *map, uint64_t id)
{
        const struct idmap_row *row = &map->rows[find(map, key_of(id))];

        return row->key == EMPTY ? IDMAP_NONE : map->lines[row->line][id % IDMAP_LINE];
}

bool idmap_put(struct idmap *map, uint64_t id, uint32_t value)
{
        struct idmap_row *row = &map->rows[find(map, key_of(id))];
        bool absent = row->key == EMPTY || map->lines[row->line][id % IDMAP_LINE] == IDMAP_NONE;

        assert(value != IDMAP_NONE);
        if (id == UINT64_MAX || (absent && map->count == map->capacity))
                return false;
        if (row->key == EMPTY)
                *row = (struct idmap_row){.key = key_of(id), .line = new_line(map)};
        row->used += absent;
        map->count += absent;
        map->lines[row->line][id % IDMAP_LINE] = value;
        return true;
}

/* Shifts later rows back instead of leaving a tombstone. */
static void remove_row(struct idmap *map, uint32_t hole)
{
        release_line(map, map->rows[hole].line);
        for (uint32_t i = (hole + 1) & map->mask; map->rows[i].key != EMPTY; i = (i + 1) & map->mask) {
                uint32_t wanted = home(map, map->rows[i].key);

                /* A row may move into the hole unless its home is behind the hole. */
                if (((i - wanted) & map->mask) < ((i - hole) & map->mask))
                        continue;
                map->rows[hole] = map->rows[i];
                hole = i;
        }
        map->rows[hole].key = EMPTY;
}

uint32_t idmap_remove(struct idmap *map, uint64_t id)
{
        uint32_t at = find(map, key_of(id)), value;
        struct idmap_row *row = &map->rows[at];

        if (row->key == EMPTY)
                return IDMAP_NONE;
        value = map->lines[row->line][id % IDMAP_LINE];
        if (value == IDMAP_NONE)
                return IDMAP_NONE;
        map->lines[row->line][id % IDMAP_LINE] = IDMAP_NONE;
        map->count--;
        if (--row->used == 0)
                remove_row(map, at);
        return value;
}

void idmap_prefetch(const struct idmap *map, uint64_t id)
{
        __builtin_prefetch(&map->rows[home(map, key_of(id))]);
}
