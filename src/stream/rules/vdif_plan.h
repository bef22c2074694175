/* What the beginning of a VDIF recording shows: the size of its frames, its threads, and how many frames
 * share a time. The offer of a stream has it (setup.h). Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/vdif.h"

/* The number of a thread has 10 bits. */
#define VDIF_PLAN_THREADS_MAX 1024u

struct vdif_plan {
        uint32_t frame_bytes, header_bytes;
        uint32_t frames_per_second; /* of one thread, as the frames show, or else the header; 0: unknown */
        uint32_t header_frames_per_second; /* as the first header states; 0: it does not */
        uint32_t n_threads;
        struct vdif_plan_thread {
                uint32_t thread;
                uint32_t frames;
                uint8_t header[VDIF_HEADER_BYTES]; /* of its first frame */
        } threads[VDIF_PLAN_THREADS_MAX];
        uint32_t frames;      /* of all threads */
        uint32_t most_frames; /* of one thread */
        uint32_t last_number; /* the highest number of a frame within its second */
};

/* Begins a plan with the first frame of the recording, without adding it. Returns -EBADMSG. */
int vdif_plan_begin(struct vdif_plan *p, const void *frame, size_t n);
/* Adds the next frame at the beginning of the recording, from the first one on, until it returns false:
 * enough has been seen. Damaged frames and fillers show nothing. */
bool vdif_plan_add(struct vdif_plan *p, const void *frame, size_t n);
/* Reads the header of any frame of the recording. Returns false if it is damaged: no header, or that of a
 * frame of another size. */
bool vdif_plan_read(const struct vdif_plan *p, const void *frame, size_t n, struct vdif_header *ret);
/* Frames of all threads that have the same time. */
uint32_t vdif_plan_frames_at_a_time(const struct vdif_plan *p);
