/* Makes the header of a VDIF frame that is lost from those around it. No order is presumed: the most recent
 * place where the same frames came before shows which one follows, and how much later it is. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/vdif.h"

/* Two sets of the most threads, with two frames of each. */
#define VDIF_FILL_HISTORY 4096u

struct vdif_fill {
        const struct vdif_plan *plan;
        uint32_t frames_per_second; /* of one thread, as the frames show; 0: unknown */
        bool confirmed;             /* a second has ended as this rate says */
        uint32_t last_number;       /* the highest number of a frame within its second */
        /* Of all frames up to `next`, in the order of the recording; what is before the first one follows
         * from the plan. Times are relative: `frame` may exceed a second. */
        struct vdif_fill_frame {
                int64_t seconds, frame;
                uint32_t thread;
                bool sure; /* it arrived, or nothing contradicts it */
                uint8_t header[VDIF_HEADER_BYTES];
        } history[VDIF_FILL_HISTORY];
        int64_t next, oldest;
        /* Since the last frame whose time and thread are known: all, and those that were lost. */
        uint64_t run, run_lost;
        uint64_t unsure; /* lost frames whose time or thread is a guess */
};

/* The plan stays with the caller. */
void vdif_fill_begin(struct vdif_fill *f, const struct vdif_plan *plan);
/* The next frame of the recording has arrived. One that is damaged, or a filler, tells nothing. */
void vdif_fill_record(struct vdif_fill *f, const void *frame);
/* Learns the rate, if it is not known, from the frame that comes n frames after the next one. */
void vdif_fill_look_ahead(struct vdif_fill *f, uint64_t n, const void *frame);
/* The next frame is lost: writes its header, marked invalid. */
void vdif_fill_make(struct vdif_fill *f, void *frame);

/* What the beginning of a VDIF recording shows: the size of its frames, its threads, and how many frames
 * share a time. The offer of a stream has it (setup.h). Pure. */

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
