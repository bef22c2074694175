/* A buddy allocator of offsets. Its bookkeeping is separate from the memory, which it never accesses. */
#include "base/arena.h"

#include <assert.h>
#include <errno.h>

#include "base/util.h"

#define ORDERS_MAX 32
#define NO_BLOCK UINT32_MAX
/* State of a smallest block: inside a larger block, as in memory from calloc(), which is not touched where no
 * block is used; or the head of an allocated or free block of an order. */
#define INSIDE 0
#define USED(order) ((uint8_t)((order) + 1))
#define FREE(order) ((uint8_t)(0x80 | USED(order)))

/* The free blocks of an order form a doubly linked list; each is named by the index of its first smallest
 * block. */
struct arena {
        uint64_t min_block_bytes;
        uint64_t used_bytes;
        uint32_t n_blocks; /* number of smallest blocks */
        unsigned orders;
        uint32_t lists[ORDERS_MAX];
        uint32_t *next, *previous;
        uint8_t *state;
};

static void push(struct arena *a, uint32_t block, unsigned order)
{
        a->state[block] = FREE(order);
        a->previous[block] = NO_BLOCK;
        a->next[block] = a->lists[order];
        if (a->lists[order] != NO_BLOCK)
                a->previous[a->lists[order]] = block;
        a->lists[order] = block;
}

static void unlink_block(struct arena *a, uint32_t block, unsigned order)
{
        if (a->previous[block] == NO_BLOCK)
                a->lists[order] = a->next[block];
        else
                a->next[a->previous[block]] = a->next[block];
        if (a->next[block] != NO_BLOCK)
                a->previous[a->next[block]] = a->previous[block];
        a->state[block] = INSIDE;
}

/* Divides [0, n_blocks) into the largest aligned blocks that fit; the lowest are allocated first. */
static void fill_lists(struct arena *a)
{
        uint32_t end = a->n_blocks;

        while (end > 0) {
                unsigned order = (unsigned)__builtin_ctz(end);

                order = MIN(order, a->orders - 1);
                end -= UINT32_C(1) << order;
                push(a, end, order);
        }
}

int arena_new(struct arena **ret, uint64_t size_bytes, uint64_t min_block_bytes, uint64_t max_block_bytes)
{
        struct arena *a;

        if (min_block_bytes == 0 || (min_block_bytes & (min_block_bytes - 1)) != 0 ||
            max_block_bytes < min_block_bytes || (max_block_bytes & (max_block_bytes - 1)) != 0 ||
            size_bytes < min_block_bytes || size_bytes / min_block_bytes >= NO_BLOCK)
                return -EINVAL;
        a = calloc(1, sizeof *a);
        if (!a)
                return -ENOMEM;
        a->min_block_bytes = min_block_bytes;
        a->n_blocks = (uint32_t)(size_bytes / min_block_bytes);
        /* No block is larger than the arena. */
        a->orders = MIN((unsigned)__builtin_ctzll(max_block_bytes / min_block_bytes),
                        31 - (unsigned)__builtin_clz(a->n_blocks)) +
                    1;
        /* Only heads of free blocks have neighbours. */
        a->next = malloc(a->n_blocks * sizeof *a->next);
        a->previous = malloc(a->n_blocks * sizeof *a->previous);
        a->state = calloc(a->n_blocks, 1);
        if (!a->next || !a->previous || !a->state) {
                arena_free(a);
                return -ENOMEM;
        }
        for (unsigned i = 0; i < ORDERS_MAX; i++)
                a->lists[i] = NO_BLOCK;
        fill_lists(a);
        *ret = a;
        return 0;
}

struct arena *arena_free(struct arena *a)
{
        if (!a)
                return NULL;
        free(a->next);
        free(a->previous);
        free(a->state);
        free(a);
        return NULL;
}

/* The order of a block of `size_bytes`; `orders` or more if none is large enough. */
static unsigned order_of(const struct arena *a, uint64_t size_bytes)
{
        return size_bytes <= a->min_block_bytes
                       ? 0
                       : 64 - (unsigned)__builtin_clzll((size_bytes - 1) / a->min_block_bytes);
}

uint64_t arena_alloc(struct arena *a, uint64_t size_bytes)
{
        unsigned order = order_of(a, size_bytes), from = order;

        while (from < a->orders && a->lists[from] == NO_BLOCK)
                from++;
        if (from >= a->orders)
                return ARENA_NONE;
        uint32_t block = a->lists[from];

        unlink_block(a, block, from);
        while (from > order) {
                from--;
                push(a, block + (UINT32_C(1) << from), from);
        }
        a->state[block] = USED(order);
        a->used_bytes += a->min_block_bytes << order;
        return block * a->min_block_bytes;
}

void arena_release(struct arena *a, uint64_t offset)
{
        if (offset == ARENA_NONE)
                return;
        uint64_t index = offset / a->min_block_bytes;

        assert(offset % a->min_block_bytes == 0 && index < a->n_blocks && a->state[index] != INSIDE &&
               a->state[index] < FREE(0));
        uint32_t block = (uint32_t)index;
        unsigned order = a->state[block] - USED(0);

        a->used_bytes -= a->min_block_bytes << order;
        a->state[block] = INSIDE;
        for (; order + 1 < a->orders; order++) {
                uint32_t buddy = block ^ UINT32_C(1) << order;

                if (buddy >= a->n_blocks || a->state[buddy] != FREE(order))
                        break;
                unlink_block(a, buddy, order);
                block = MIN(block, buddy);
        }
        push(a, block, order);
}

uint64_t arena_size_bytes(const struct arena *a)
{
        return a->n_blocks * a->min_block_bytes;
}

uint64_t arena_used_bytes(const struct arena *a)
{
        return a->used_bytes;
}

uint64_t arena_block_bytes(const struct arena *a, uint64_t size_bytes)
{
        unsigned order = order_of(a, size_bytes);

        return order < a->orders ? a->min_block_bytes << order : 0;
}
