/* How the frames of a VDIF recording follow each other: one frame of each thread, in an order that repeats,
 * then the next frame number. With it the receiver makes the header of any frame that is lost. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/format/vdif.h"

#define VDIF_PLAN_THREADS_MAX 256u

struct vdif_plan {
        uint32_t frame_bytes, header_bytes;
        uint32_t frames_per_second; /* of one thread; 0: unknown */
        uint32_t n_threads;
        struct vdif_plan_thread {
                uint32_t thread;
                uint8_t header[VDIF_HEADER_BYTES]; /* of its first frame */
        } threads[VDIF_PLAN_THREADS_MAX];
        /* The last noted frame: its sequence number, time, and index in `threads`. */
        uint64_t sequence;
        uint32_t seconds, frame, position;
};

/* Begins a plan with the first frame of the recording. Returns -EBADMSG. */
int vdif_plan_begin(struct vdif_plan *p, const void *frame, size_t n);
/* Adds the next frame at the beginning of the recording, until it returns false: the threads repeat, or the
 * frame belongs to another recording. */
bool vdif_plan_add(struct vdif_plan *p, const void *frame, size_t n);
/* Whether a frame that has arrived belongs to the recording: one of its threads, and the same size. Learns
 * the number of frames per second from it, if that is not known and a second has ended. */
bool vdif_plan_takes(struct vdif_plan *p, uint64_t sequence, const void *frame, size_t n);
/* Notes a frame that vdif_plan_takes() accepted, in the order of their sequence numbers. */
void vdif_plan_note(struct vdif_plan *p, uint64_t sequence, const void *frame);
/* Writes the header of the frame with this sequence number, marked invalid. Its time follows from the last
 * noted frame. */
void vdif_plan_fill(const struct vdif_plan *p, uint64_t sequence, void *frame);
