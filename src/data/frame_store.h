/* Memory for frames of a board that wait until their fragment is complete: those of a slice of time
 * (data/slicer.h), or of one trigger (data/joiner.h). In the fragment, each frame is preceded by its length
 * (32 bits, little-endian). One thread; frame_store_init() makes all allocations. */
#pragma once

#include <stdint.h>

#include "base/arena.h"

#define FRAME_NONE UINT32_MAX
/* Size of the length in front of each frame. */
#define FRAME_LENGTH_BYTES 4u

struct stored_frame {
        uint64_t at;
        uint64_t key; /* defined by the owner of the store: a time, or a position in the fragment */
        uint32_t bytes;
        /* In a list: the next frame. Free: the next free one, minus the index of the frame behind this one,
         * so that memory from calloc() is a list of all frames. */
        uint32_t next;
};

struct frame_list {
        uint32_t first, last; /* FRAME_NONE: it is empty */
        uint64_t bytes;       /* includes the lengths */
        uint32_t n;
};

#define FRAME_LIST_EMPTY ((struct frame_list){FRAME_NONE, FRAME_NONE, 0, 0})

struct frame_store {
        struct arena *arena;
        uint8_t *memory;
        uint64_t memory_bytes;
        struct stored_frame *frames;
        uint32_t frames_max;
        uint32_t free; /* first free frame; frames_max: none is free */
};

/* -EINVAL, -ENOMEM. Call frame_store_fini() after an error too. */
int frame_store_init(struct frame_store *s, uint32_t frames_max, uint64_t buffer_bytes);
void frame_store_fini(struct frame_store *s);

/* A frame that is in no list yet; FRAME_NONE: there is no room. */
uint32_t frame_store_add(struct frame_store *s, uint32_t bytes, uint64_t key);
uint8_t *frame_store_bytes(const struct frame_store *s, uint32_t i);
void frame_store_release(struct frame_store *s, uint32_t i);
/* Puts the frame behind frame `after` of the list; FRAME_NONE: at its beginning. */
void frame_store_insert(struct frame_store *s, struct frame_list *list, uint32_t after, uint32_t i);
void frame_store_append(struct frame_store *s, struct frame_list *list, uint32_t i);
/* Releases all frames of the list. */
void frame_store_empty(struct frame_store *s, struct frame_list *list);
/* Copies the frames of the list, each with its length; returns the end of the copy. */
uint8_t *frame_store_copy(const struct frame_store *s, const struct frame_list *list, uint8_t *to);
