/* A binary heap that tracks the position of each item. */
#include "evb/base/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int heap_init(struct heap *h, uint32_t capacity)
{
        *h = (struct heap){
                .nodes = calloc(capacity, sizeof *h->nodes),
                .places = calloc(capacity, sizeof *h->places),
                .capacity = capacity,
        };
        if (!h->nodes || !h->places) {
                heap_fini(h);
                return -ENOMEM;
        }
        for (uint32_t i = 0; i < capacity; i++)
                h->places[i] = HEAP_NONE;
        return 0;
}

void heap_fini(struct heap *h)
{
        free(h->nodes);
        free(h->places);
        *h = (struct heap){};
}

static bool comes_before(const struct heap_node *a, const struct heap_node *b)
{
        return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

static void set(struct heap *h, uint32_t at, const struct heap_node *node)
{
        h->nodes[at] = *node;
        h->places[node->item] = at;
}

static uint32_t rise(struct heap *h, uint32_t at, const struct heap_node *node)
{
        for (uint32_t up; at > 0 && comes_before(node, &h->nodes[up = (at - 1) / 2]); at = up)
                set(h, at, &h->nodes[up]);
        return at;
}

static uint32_t sink(struct heap *h, uint32_t at, const struct heap_node *node)
{
        for (uint32_t down; (down = 2 * at + 1) < h->n; at = down) {
                if (down + 1 < h->n && comes_before(&h->nodes[down + 1], &h->nodes[down]))
                        down++;
                if (!comes_before(&h->nodes[down], node))
                        break;
                set(h, at, &h->nodes[down]);
        }
        return at;
}

/* Puts the node at the free position `at`, or at its correct position above or below. */
static void settle(struct heap *h, uint32_t at, struct heap_node node)
{
        at = rise(h, at, &node);
        set(h, sink(h, at, &node), &node);
}

void heap_put(struct heap *h, uint32_t item, uint64_t key, uint64_t tie)
{
        uint32_t at = h->places[item];

        assert(item < h->capacity);
        settle(h, at == HEAP_NONE ? h->n++ : at, (struct heap_node){key, tie, item});
}

void heap_remove(struct heap *h, uint32_t item)
{
        uint32_t at = h->places[item];

        if (at == HEAP_NONE)
                return;
        h->places[item] = HEAP_NONE;
        if (at != --h->n)
                settle(h, at, h->nodes[h->n]);
}

bool heap_has(const struct heap *h, uint32_t item)
{
        return h->places[item] != HEAP_NONE;
}

uint32_t heap_first(const struct heap *h)
{
        return h->n > 0 ? h->nodes[0].item : HEAP_NONE;
}

uint64_t heap_first_key(const struct heap *h)
{
        return h->n > 0 ? h->nodes[0].key : UINT64_MAX;
}
