/* A binary heap that tracks the position of each item, and a ring for items that are added in order: a node
 * that sorts before or after all others in the ring needs no place in the heap. */
#include "base/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define CAPACITY_MAX (UINT32_C(1) << 29)
/* Set in `places` for items in the ring, and for those in `nodes`. An absent item has neither, as in memory
 * from calloc(), so that a large queue with few items touches few pages. */
#define IN_QUEUE (UINT32_C(1) << 31)
#define IN_NODES (UINT32_C(1) << 30)
#define ABSENT 0u
/* The ring grows in both directions, from the middle of its free-running indices. */
#define MIDDLE (UINT64_C(1) << 63)

int heap_init(struct heap *h, uint32_t capacity)
{
        uint32_t ring = 2;

        if (capacity > CAPACITY_MAX)
                return -EINVAL;
        /* Room for twice the items: if the ring is full, at least half of its nodes have been removed. */
        while (ring < 2 * capacity)
                ring *= 2;
        *h = (struct heap){
                .nodes = calloc(capacity, sizeof *h->nodes),
                .queue = calloc(ring, sizeof *h->queue),
                .places = calloc(capacity, sizeof *h->places),
                .head = MIDDLE,
                .tail = MIDDLE,
                .queue_mask = ring - 1,
                .capacity = capacity,
        };
        if (!h->nodes || !h->queue || !h->places) {
                heap_fini(h);
                return -ENOMEM;
        }
        return 0;
}

void heap_fini(struct heap *h)
{
        free(h->nodes);
        free(h->queue);
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
        h->places[node->item] = at | IN_NODES;
}

static uint32_t rise(struct heap *h, uint32_t at, const struct heap_node *node)
{
        for (uint32_t up; at > 0 && comes_before(node, &h->nodes[up = (at - 1) / 2]); at = up)
                set(h, at, &h->nodes[up]);
        return at;
}

static uint32_t sink(struct heap *h, uint32_t at, const struct heap_node *node)
{
        for (uint32_t down; (down = 2 * at + 1) < h->n_nodes; at = down) {
                if (down + 1 < h->n_nodes && comes_before(&h->nodes[down + 1], &h->nodes[down]))
                        down++;
                if (!comes_before(&h->nodes[down], node))
                        break;
                set(h, at, &h->nodes[down]);
        }
        return at;
}

/* Stores the node at the free position `at`, or moves it up or down to its correct position. */
static void settle(struct heap *h, uint32_t at, struct heap_node node)
{
        at = rise(h, at, &node);
        set(h, sink(h, at, &node), &node);
}

static void remove_from_heap(struct heap *h, uint32_t at)
{
        if (at != --h->n_nodes)
                settle(h, at, h->nodes[h->n_nodes]);
}

static struct heap_node *in_queue(const struct heap *h, uint64_t at)
{
        return &h->queue[at & h->queue_mask];
}

static void set_in_queue(struct heap *h, uint64_t at, const struct heap_node *node)
{
        *in_queue(h, at) = *node;
        h->places[node->item] = (uint32_t)(at & h->queue_mask) | IN_QUEUE;
}

/* Closes the gaps of removed nodes. */
static void close_gaps(struct heap *h)
{
        uint64_t to = h->head;

        for (uint64_t at = h->head; at < h->tail; at++) {
                if (in_queue(h, at)->item != HEAP_NONE)
                        set_in_queue(h, to++, in_queue(h, at));
        }
        h->tail = to;
}

/* False: the node belongs between two others. */
static bool put_in_queue(struct heap *h, const struct heap_node *node)
{
        bool last = h->head == h->tail || !comes_before(node, in_queue(h, h->tail - 1));

        if (!last && !comes_before(node, in_queue(h, h->head)))
                return false;
        if (h->tail - h->head > h->queue_mask)
                close_gaps(h);
        set_in_queue(h, last ? h->tail++ : --h->head, node);
        return true;
}

static void remove_from_queue(struct heap *h, uint32_t at)
{
        h->queue[at].item = HEAP_NONE;
        while (h->head < h->tail && in_queue(h, h->head)->item == HEAP_NONE)
                h->head++;
        while (h->head < h->tail && in_queue(h, h->tail - 1)->item == HEAP_NONE)
                h->tail--;
}

void heap_put(struct heap *h, uint32_t item, uint64_t key, uint64_t tie)
{
        const struct heap_node node = {key, tie, item};

        assert(item < h->capacity);
        /* An item in the heap moves to its new position; an item in the ring is removed and added again. */
        if (h->places[item] & IN_NODES) {
                settle(h, h->places[item] & ~IN_NODES, node);
                return;
        }
        heap_remove(h, item);
        if (!put_in_queue(h, &node))
                settle(h, h->n_nodes++, node);
}

void heap_remove(struct heap *h, uint32_t item)
{
        uint32_t at = h->places[item];

        if (at == ABSENT)
                return;
        h->places[item] = ABSENT;
        if (at & IN_QUEUE)
                remove_from_queue(h, at & ~IN_QUEUE);
        else
                remove_from_heap(h, at & ~IN_NODES);
}

/* NULL: the queue is empty. */
static const struct heap_node *first(const struct heap *h)
{
        const struct heap_node *queued = h->head < h->tail ? in_queue(h, h->head) : NULL,
                               *other = h->n_nodes > 0 ? &h->nodes[0] : NULL;

        return !queued || (other && comes_before(other, queued)) ? other : queued;
}

uint32_t heap_first(const struct heap *h)
{
        const struct heap_node *node = first(h);

        return node ? node->item : HEAP_NONE;
}

uint64_t heap_first_key(const struct heap *h)
{
        const struct heap_node *node = first(h);

        return node ? node->key : UINT64_MAX;
}
