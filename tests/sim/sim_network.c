/* Virtual time: a heap of packets and timers, and the faults of the network. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "sim_internal.h"

static bool before(const struct sim_item *a, const struct sim_item *b)
{
        return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void push(struct sim *s, struct sim_item item)
{
        size_t i = s->n_heap++;

        if (s->n_heap > s->heap_size) {
                s->heap_size = MAX(2 * s->heap_size, (size_t)1024);
                s->heap = realloc(s->heap, s->heap_size * sizeof *s->heap);
                assert(s->heap);
        }
        item.order = s->order++;
        for (; i > 0 && before(&item, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
                s->heap[i] = s->heap[(i - 1) / 2];
        s->heap[i] = item;
}

bool sim_pop(struct sim *s, struct sim_item *ret)
{
        const struct sim_item *last;
        size_t i = 0;

        if (s->n_heap == 0)
                return false;
        *ret = s->heap[0];
        last = &s->heap[--s->n_heap];
        for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
                child += child + 1 < s->n_heap && before(&s->heap[child + 1], &s->heap[child]);
                if (!before(&s->heap[child], last))
                        break;
                s->heap[i] = s->heap[child];
        }
        s->heap[i] = *last;
        return true;
}

void sim_drop_items(struct sim *s)
{
        for (size_t i = 0; i < s->n_heap; i++)
                free(s->heap[i].bytes);
        free(s->heap);
}

static void deliver(struct sim *s, uint32_t node, const void *bytes, size_t n, uint64_t latency_ns)
{
        struct sim_item item = {.due_ns = s->now_ns + latency_ns,
                                .kind = ITEM_PACKET,
                                .node = node,
                                .bytes = malloc(MAX(n, (size_t)1)),
                                .n = n};

        memcpy(item.bytes, bytes, n);
        push(s, item);
}

void sim_send(struct sim *s, uint32_t node, const void *bytes, size_t n)
{
        uint64_t latency_ns = s->config.latency_ns;
        uint32_t overtaken = 0;

        if (s->nodes[node].cut || s->nodes[s->sender].cut)
                return;
        switch (fault_decide(&s->fault, &overtaken)) {
        case FAULT_LOSE:
                return;
        case FAULT_DOUBLE:
                deliver(s, node, bytes, n, latency_ns + latency_ns / 2);
                break;
        case FAULT_HOLD:
                latency_ns += overtaken * latency_ns;
                break;
        case FAULT_PASS:
                break;
        }
        deliver(s, node, bytes, n, latency_ns);
}

void sim_set_timer(struct sim *s, uint32_t node, uint64_t due_ns)
{
        if (due_ns == NEVER_NS || s->nodes[node].wake_ns == due_ns)
                return;
        s->nodes[node].wake_ns = due_ns;
        push(s, (struct sim_item){.due_ns = due_ns, .kind = ITEM_TIMER, .node = node});
}

void sim_send_frame(struct sim *s, uint32_t node, uint64_t trigger, uint64_t due_ns)
{
        push(s, (struct sim_item){.due_ns = due_ns, .kind = ITEM_FRAME, .node = node, .trigger = trigger});
}
