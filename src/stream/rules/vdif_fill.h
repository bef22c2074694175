/* Makes the header of a VDIF frame that is lost from those around it. No order is presumed: the most recent
 * place where the same frames came before shows which one follows, and how much later it is. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vdif_plan.h"

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
void vdif_fill_note(struct vdif_fill *f, const void *frame);
/* Learns the rate, if it is not known, from the frame that comes n frames after the next one. */
void vdif_fill_look_ahead(struct vdif_fill *f, uint64_t n, const void *frame);
/* The next frame is lost: writes its header, marked invalid. */
void vdif_fill_make(struct vdif_fill *f, void *frame);
