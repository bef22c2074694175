/* Makes the header of a lost VDIF frame from the frames around it. No order of the frames is assumed. The
 * most recent place with the same preceding frames shows which frame follows, and how much later it is.
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/vdif.h"

/* Number of frames that are kept: four of each thread if there are VDIF_PLAN_THREADS_MAX threads. */
#define VDIF_FILL_HISTORY 4096u

struct vdif_fill {
        const struct vdif_plan *plan;
        uint32_t frames_per_second; /* number of frames of one thread, according to the frames; 0: unknown */
        bool confirmed;             /* a second ended as this rate predicts */
        uint32_t last_number;       /* the highest number of a frame within its second */
        /* All frames up to `next`, in the order of the recording; earlier frames follow from the plan. Times
         * are relative, so `frame` may exceed a second. */
        struct vdif_fill_frame {
                int64_t seconds, frame;
                uint32_t thread;
                bool sure; /* the frame arrived, or nothing contradicts it */
                uint8_t header[VDIF_HEADER_BYTES];
        } history[VDIF_FILL_HISTORY];
        int64_t next, oldest;
        /* Number of frames since the last frame whose time and thread are known: all frames, and lost
         * frames. */
        uint64_t run, run_lost;
        uint64_t unsure; /* lost frames whose time or thread is a guess */
};

/* The caller keeps ownership of the plan. */
void vdif_fill_begin(struct vdif_fill *f, const struct vdif_plan *plan);
/* Records the next frame of the recording, which has arrived. A damaged frame or a filler provides no
 * information. */
void vdif_fill_record(struct vdif_fill *f, const void *frame);
/* Learns the rate, if it is unknown, from the frame n frames after the next one. */
void vdif_fill_look_ahead(struct vdif_fill *f, uint64_t n, const void *frame);
/* Writes the header of the next frame, which is lost, and marks it invalid. */
void vdif_fill_make(struct vdif_fill *f, void *frame);

/* The properties that the beginning of a VDIF recording shows: the size of its frames, its threads, and how
 * many frames share a time. The offer of a stream contains it (setup.h). Pure. */

/* A thread number has 10 bits. */
#define VDIF_PLAN_THREADS_MAX 1024u

struct vdif_plan {
        uint32_t frame_bytes, header_bytes;
        /* Number of frames of one thread, according to the frames or, if they do not show it, the header; 0:
         * unknown. */
        uint32_t frames_per_second;
        uint32_t header_frames_per_second; /* according to the first header; 0: not stated */
        uint32_t n_threads;
        struct vdif_plan_thread {
                uint32_t thread;
                uint32_t frames;
                uint8_t header[VDIF_HEADER_BYTES]; /* of the thread's first frame */
        } threads[VDIF_PLAN_THREADS_MAX];
        uint32_t frames;      /* of all threads */
        uint32_t most_frames; /* maximum of the threads */
        uint32_t last_number; /* the highest number of a frame within its second */
};

/* Begins a plan with the first frame of the recording, without adding it. Returns -EBADMSG. */
int vdif_plan_begin(struct vdif_plan *p, const void *frame, size_t n);
/* Adds the next frame at the beginning of the recording, starting with the first, until it returns false:
 * enough frames have been added. Damaged frames and fillers are ignored. */
bool vdif_plan_add(struct vdif_plan *p, const void *frame, size_t n);
/* Decodes the header of any frame of the recording. Returns false if it is damaged: no header, or the header
 * of a frame of another size. */
bool vdif_plan_read(const struct vdif_plan *p, const void *frame, size_t n, struct vdif_header *ret);
/* Counts the frames that are missing between those of each thread, for frames without sequence numbers. */
struct vdif_missing {
        struct vdif_thread_seen {
                bool known;
                uint32_t seconds, frame; /* of the latest frame */
                uint64_t recent;         /* whether the 64 frames before it have arrived */
        } threads[VDIF_PLAN_THREADS_MAX];
        uint32_t last_number; /* the highest number of a frame within its second */
        int64_t frames;       /* missing, without those of the `seconds` that began */
        uint64_t seconds;     /* sum over all threads */
        uint64_t out_of_order, duplicate;
};

void vdif_missing_record(struct vdif_missing *m, const struct vdif_plan *plan, const void *frame);
/* Returns the number of missing frames. The rate follows from the frames or, if they do not show a higher
 * number, from the header of the first frame. */
uint64_t vdif_missing_frames(const struct vdif_missing *m, const struct vdif_plan *plan);

/* Divides a recording into scans, which begin at multiples of a time in UTC. */
struct vdif_scan {
        int64_t each_s; /* 0: the whole recording is one scan */
        int64_t end_s;  /* Unix time at which the present scan ends */
        int64_t last_s; /* time of the latest frame */
        /* Frames in the file of a scan that ends before their time, because no frame confirmed it. */
        uint64_t unconfirmed;
};

/* Whether this frame begins the next scan; if so, *ret_s is its time. A frame that is damaged or was filled
 * in does not. If its time is more than a second after that of the previous frame, the frame after it
 * (`next`; NULL: there is none) must be near it. */
bool vdif_scan_is_due(const struct vdif_scan *s, const struct vdif_plan *plan, const void *frame,
                      const void *next, int64_t *ret_s);
/* Whether vdif_scan_is_due() depends on the frame after this one. */
bool vdif_scan_needs_next(const struct vdif_scan *s, const struct vdif_plan *plan, const void *frame);
/* Begins a scan with a frame of this time. */
void vdif_scan_begin(struct vdif_scan *s, int64_t now_s);
/* Records the next frame of the scan. */
void vdif_scan_record(struct vdif_scan *s, const struct vdif_plan *plan, const void *frame);

/* Returns the number of frames of all threads that share a time. */
uint32_t vdif_plan_frames_at_a_time(const struct vdif_plan *p);
