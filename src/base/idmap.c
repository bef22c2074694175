/* Maps event numbers to indices by linear probing. Deletion shifts the rest of a run back instead of leaving
 * a tombstone. */
#include "evb/base/idmap.h"

#include <errno.h>
#include <stdlib.h>

#include "evb/base/util.h"

#define EMPTY UINT64_MAX

/* Cells per cache line. Consecutive event numbers share a line. */
#define LINE_BITS 2u

/* Fibonacci hashing of lines: an even distribution for one multiplication. */
static uint32_t home(const struct idmap *map, uint64_t id)
{
        uint32_t line = (uint32_t)(((id >> LINE_BITS) * UINT64_C(0x9E3779B97F4A7C15)) >> 32);

        return (line << LINE_BITS | (uint32_t)(id & ((1u << LINE_BITS) - 1))) & map->mask;
}

int idmap_init(struct idmap *map, uint32_t capacity)
{
        uint32_t cells = 4;

        if (capacity > UINT32_C(1) << 30)
                return -EINVAL;
        while (cells < 2 * capacity)
                cells *= 2;
        *map = (struct idmap){.mask = cells - 1, .capacity = capacity};
        map->cells = aligned_alloc(64, cells * sizeof *map->cells);
        if (!map->cells)
                return -ENOMEM;
        for (uint32_t i = 0; i < cells; i++)
                map->cells[i].id = EMPTY;
        return 0;
}

void idmap_fini(struct idmap *map)
{
        if (!map)
                return;
        free(map->cells);
        *map = (struct idmap){};
}

/* The cell of `id`, or the empty cell for it. */
static uint32_t find(const struct idmap *map, uint64_t id)
{
        uint32_t i = home(map, id);

        while (map->cells[i].id != id && map->cells[i].id != EMPTY)
                i = (i + 1) & map->mask;
        return i;
}

uint32_t idmap_get(const struct idmap *map, uint64_t id)
{
        const struct idmap_cell *cell = &map->cells[find(map, id)];

        return cell->id == id && id != EMPTY ? cell->value : IDMAP_NONE;
}

bool idmap_put(struct idmap *map, uint64_t id, uint32_t value)
{
        struct idmap_cell *cell = &map->cells[find(map, id)];

        if (cell->id == EMPTY) {
                if (map->count == map->capacity || id == EMPTY)
                        return false;
                map->count++;
                cell->id = id;
        }
        cell->value = value;
        return true;
}

uint32_t idmap_remove(struct idmap *map, uint64_t id)
{
        uint32_t hole = find(map, id), value;

        if (map->cells[hole].id != id || id == EMPTY)
                return IDMAP_NONE;
        value = map->cells[hole].value;
        for (uint32_t i = (hole + 1) & map->mask; map->cells[i].id != EMPTY; i = (i + 1) & map->mask) {
                uint32_t wanted = home(map, map->cells[i].id);

                /* An entry may move into the hole unless its home is behind the hole. */
                if (((i - wanted) & map->mask) < ((i - hole) & map->mask))
                        continue;
                map->cells[hole] = map->cells[i];
                hole = i;
        }
        map->cells[hole].id = EMPTY;
        map->count--;
        return value;
}

void idmap_prefetch(const struct idmap *map, uint64_t id)
{
        __builtin_prefetch(&map->cells[home(map, id)]);
}
