/* The arena and the id map, compared with simple models in random steps. */
#include "../test.h"

#include "base/arena.h"
#include "base/idmap.h"
#include "base/random.h"

DEFINE_FREEP(arena)

#define MIN_BLOCK 256u

TEST(arena_allocates_and_releases)
{
        enum { BLOCKS = 3001, STEPS = 60000, HELD = 400 };
        static uint8_t owned[BLOCKS];
        struct {
                uint64_t at, bytes;
        } held[HELD] = {};
        _cleanup_(arena_freep) struct arena *a;
        struct random r;
        uint64_t used = 0;

        random_init(&r, 1);
        assert_int_equal(arena_new(&a, BLOCKS * MIN_BLOCK, MIN_BLOCK, 64 * MIN_BLOCK), 0);
        assert_int_equal(arena_size_bytes(a), BLOCKS * MIN_BLOCK);
        for (int step = 0; step < STEPS; step++) {
                size_t k = random_below(&r, HELD);

                if (held[k].bytes > 0) {
                        for (uint64_t i = 0; i < held[k].bytes / MIN_BLOCK; i++)
                                owned[held[k].at / MIN_BLOCK + i] = 0;
                        arena_release(a, held[k].at);
                        used -= held[k].bytes;
                        held[k].bytes = 0;
                } else {
                        uint64_t wanted = random_below(&r, 20 * MIN_BLOCK),
                                 block = arena_block_bytes(a, wanted);
                        uint64_t at = arena_alloc(a, wanted);

                        assert_true(block >= MAX(wanted, UINT64_C(1)) && (block & (block - 1)) == 0);
                        if (at == ARENA_NONE)
                                continue;
                        assert_true(at % block == 0 && at + block <= arena_size_bytes(a));
                        for (uint64_t i = 0; i < block / MIN_BLOCK; i++)
                                assert_int_equal(owned[at / MIN_BLOCK + i]++, 0);
                        held[k].at = at, held[k].bytes = block;
                        used += block;
                }
                assert_int_equal(arena_used_bytes(a), used);
        }
        for (size_t k = 0; k < HELD; k++) {
                if (held[k].bytes > 0)
                        arena_release(a, held[k].at);
        }
        /* The free blocks are merged again: the largest blocks are available. */
        for (int i = 0; i < BLOCKS / 64; i++)
                assert_int_not_equal(arena_alloc(a, 64 * MIN_BLOCK), ARENA_NONE);
        assert_int_equal(arena_alloc(a, 64 * MIN_BLOCK), ARENA_NONE);
        assert_int_equal(arena_block_bytes(a, 65 * MIN_BLOCK), 0);
        assert_int_equal(arena_alloc(a, 65 * MIN_BLOCK), ARENA_NONE);
}

TEST(arena_rejects_invalid_sizes)
{
        struct arena *a = NULL;

        assert_true(arena_new(&a, 100, 256, 256) < 0);
        assert_true(arena_new(&a, 1000, 100, 200) < 0);
        assert_true(arena_new(&a, 4096, 256, 128) < 0);
        assert_null(a);
        assert_null(arena_free(NULL));
}

/* Sizes and orders at the limits of 64 bits, and above the size of the arena. */
TEST(arena_reports_sizes_that_never_fit)
{
        _cleanup_(arena_freep) struct arena *a;

        assert_int_equal(arena_new(&a, 5 * MIN_BLOCK, MIN_BLOCK, UINT64_C(1) << 60), 0);
        assert_int_equal(arena_block_bytes(a, 4 * MIN_BLOCK), 4 * MIN_BLOCK);
        assert_int_equal(arena_block_bytes(a, 4 * MIN_BLOCK + 1), 0);
        assert_int_equal(arena_block_bytes(a, UINT64_MAX), 0);
        assert_int_equal(arena_alloc(a, UINT64_MAX), ARENA_NONE);
        assert_int_equal(arena_alloc(a, 4 * MIN_BLOCK + 1), ARENA_NONE);
        assert_int_equal(arena_alloc(a, 4 * MIN_BLOCK), 0);
        assert_int_equal(arena_alloc(a, 0), 4 * MIN_BLOCK);
        assert_int_equal(arena_alloc(a, 0), ARENA_NONE);
        assert_int_equal(arena_used_bytes(a), 5 * MIN_BLOCK);
}

TEST(idmap_maps_ids)
{
        enum { IDS = 5000, CAPACITY = 2000 };
        static uint32_t model[IDS];
        _cleanup_(idmap_fini) struct idmap map;
        struct random r;
        uint32_t count = 0;

        random_init(&r, 2);
        memset(model, 0xff, sizeof model);
        assert_int_equal(idmap_init(&map, CAPACITY), 0);
        for (int step = 0; step < 300000; step++) {
                /* Consecutive ids, ids of which each needs a line, and ids that collide. */
                uint64_t k = random_below(&r, IDS), id = k % 3 == 0   ? k
                                                         : k % 3 == 1 ? k << 5 | 1ull << 32
                                                                      : k << 40;

                assert_int_equal(idmap_get(&map, id), model[k]);
                if (random_below(&r, 2)) {
                        bool fits = model[k] != IDMAP_NONE || count < CAPACITY;

                        assert_int_equal(idmap_put(&map, id, (uint32_t)step), fits);
                        if (fits) {
                                count += model[k] == IDMAP_NONE;
                                model[k] = (uint32_t)step;
                        }
                } else {
                        assert_int_equal(idmap_remove(&map, id), model[k]);
                        count -= model[k] != IDMAP_NONE;
                        model[k] = IDMAP_NONE;
                }
        }
        assert_int_equal(map.count, count);
        assert_false(idmap_put(&map, UINT64_MAX, 1));
        assert_int_equal(idmap_get(&map, UINT64_MAX), IDMAP_NONE);
        idmap_fini(NULL);
}
