/* Packets without payload, and queues of them that grow as needed. The user of a queue must limit its
 * size. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim_internal.h"

#define FIRST_SIZE 16u

/* The model does not cover running out of memory, so the program cannot continue. */
void *sim_must(void *memory)
{
        if (!memory)
                abort();
        return memory;
}

struct sim_packet *sim_packet_new(const void *head, size_t head_bytes, size_t datagram_bytes)
{
        struct sim_packet *p = sim_must(malloc(sizeof *p + head_bytes));

        *p = (struct sim_packet){
                .refs = 1,
                .head_bytes = (uint32_t)head_bytes,
                .frame_bytes = (uint32_t)datagram_bytes + SIM_HEADERS_BYTES,
        };
        memcpy(p->head, head, head_bytes);
        return p;
}

void sim_packet_release(struct sim_packet *p)
{
        if (--p->refs == 0)
                free(p);
}

static void grow(struct sim_queue *q)
{
        uint32_t size = MAX(2 * q->size, FIRST_SIZE);
        struct sim_entry *entries = sim_must(malloc(size * sizeof *entries));

        for (uint32_t i = 0; i < q->n; i++)
                entries[i] = q->entries[(q->first + i) & (q->size - 1)];
        free(q->entries);
        q->entries = entries;
        q->first = 0;
        q->size = size;
}

void sim_queue_put(struct sim_queue *q, uint64_t at_ps, struct sim_packet *p)
{
        if (q->n == q->size)
                grow(q);
        q->entries[(q->first + q->n++) & (q->size - 1)] = (struct sim_entry){at_ps, p};
        q->bytes += p->frame_bytes;
}

struct sim_entry sim_queue_pop(struct sim_queue *q)
{
        struct sim_entry e = q->entries[q->first];

        assert(q->n > 0);
        q->first = (q->first + 1) & (q->size - 1);
        q->n--;
        q->bytes -= e.packet->frame_bytes;
        return e;
}

void sim_queue_clear(struct sim_queue *q)
{
        while (q->n > 0)
                sim_packet_release(sim_queue_pop(q).packet);
}

void sim_queue_fini(struct sim_queue *q)
{
        sim_queue_clear(q);
        free(q->entries);
        *q = (struct sim_queue){};
}
