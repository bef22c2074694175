/* Keeps frames of a board in lists until they are copied into a fragment. */
#include "data/frame_store.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "protocol/event.h"
#include "sys/memory.h"

#define BLOCK_MIN_BYTES 64u

int frame_store_init(struct frame_store *s, uint32_t frames_max, uint64_t buffer_bytes)
{
        int r;

        *s = (struct frame_store){.memory_bytes = buffer_bytes, .frames_max = frames_max};
        s->frames = calloc(frames_max, sizeof *s->frames);
        s->memory = memory_map(buffer_bytes);
        r = arena_new(&s->arena, buffer_bytes, BLOCK_MIN_BYTES, EVB_FRAGMENT_MAX_BYTES);
        if (r < 0 || !s->frames || !s->memory)
                return r < 0 ? r : -ENOMEM;
        return 0;
}

void frame_store_fini(struct frame_store *s)
{
        arena_free(s->arena);
        memory_unmap(s->memory, s->memory_bytes);
        free(s->frames);
        *s = (struct frame_store){};
}

uint32_t frame_store_add(struct frame_store *s, uint32_t bytes, uint64_t key)
{
        uint32_t i = s->free;
        uint64_t at = i == s->frames_max ? ARENA_NONE : arena_alloc(s->arena, MAX(bytes, 1u));

        if (at == ARENA_NONE)
                return FRAME_NONE;
        s->free = i + 1 + s->frames[i].next;
        s->frames[i] = (struct stored_frame){.at = at, .key = key, .bytes = bytes, .next = FRAME_NONE};
        return i;
}

uint8_t *frame_store_bytes(const struct frame_store *s, uint32_t i)
{
        return s->memory + s->frames[i].at;
}

void frame_store_release(struct frame_store *s, uint32_t i)
{
        arena_release(s->arena, s->frames[i].at);
        s->frames[i].next = s->free - (i + 1);
        s->free = i;
}

void frame_store_insert(struct frame_store *s, struct frame_list *list, uint32_t after, uint32_t i)
{
        uint32_t *link = after == FRAME_NONE ? &list->first : &s->frames[after].next;

        s->frames[i].next = *link;
        *link = i;
        if (s->frames[i].next == FRAME_NONE)
                list->last = i;
        list->bytes += FRAME_LENGTH_BYTES + s->frames[i].bytes;
        list->n++;
}

void frame_store_append(struct frame_store *s, struct frame_list *list, uint32_t i)
{
        frame_store_insert(s, list, list->last, i);
}

void frame_store_empty(struct frame_store *s, struct frame_list *list)
{
        for (uint32_t i = list->first, next; i != FRAME_NONE; i = next) {
                next = s->frames[i].next;
                frame_store_release(s, i);
        }
        *list = FRAME_LIST_EMPTY;
}

uint8_t *frame_store_copy(const struct frame_store *s, const struct frame_list *list, uint8_t *to)
{
        for (uint32_t i = list->first; i != FRAME_NONE; i = s->frames[i].next) {
                const struct stored_frame *f = &s->frames[i];
                uint32_t length = htole32(f->bytes);

                memcpy(to, &length, FRAME_LENGTH_BYTES);
                memcpy(to + FRAME_LENGTH_BYTES, s->memory + f->at, f->bytes);
                to += FRAME_LENGTH_BYTES + f->bytes;
        }
        return to;
}
