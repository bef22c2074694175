/* Collects the frames of a front-end that carry times into slices of time, for readout without triggers. The
 * frames of a slice become one fragment: each with its length before it, in the order of arrival. With an
 * overlap, the frames of the last part of the slice before come first, as copies. A slice closes when the
 * board's time has passed its end by a window; frames that come later are late. Slices without frames are
 * closed too. While the board is silent, no slice after that of its newest frame closes: nothing shows that
 * the board has nothing in it. One thread; all memory is allocated by slicer_new(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/ros.h"
#include "data/stats.h"

struct slicer_config {
        uint64_t slice_ns, overlap_ns, window_ns; /* overlap_ns is less than slice_ns */
        uint64_t tick_ns;                         /* time of one count */
        unsigned bits;                            /* of the counter of time */
        uint32_t frames_max;
        /* Slices that may be open at the same time, a power of two; 0: 65536. */
        uint32_t slices_max;
        /* Of a slice's fragment; its own frames have half of it, so that an overlap has room. 0:
         * EVB_FRAGMENT_MAX_BYTES, which is also the most. */
        uint32_t fragment_max_bytes;
        uint64_t buffer_bytes; /* for frames of slices that are not closed */
        /* After such a silence, no further frame is expected in the slices up to that of the newest one. If
         * for so long all frames are late, the board's time began again. */
        uint64_t idle_max_ns;
};

struct slicer_counts {
        /* Each is passed, late, dropped or left over, or waits for the end of its slice. */
        uint64_t frames;
        uint64_t passed;   /* to the core with their slice, where ros_counts() has them */
        uint64_t late;     /* their slice was closed, or its event did not wait */
        uint64_t dropped;  /* broke off, had no possible time, or did not fit */
        uint64_t ahead;    /* of these: their time leapt ahead, and the board never came to it, */
        uint64_t ahead_ns; /* at the end of the run by this much for the last one */
        uint64_t waiting;
        uint64_t left_over; /* their slice was open at the end of the run, and lies after its last event */
        uint64_t restarts;  /* times that the board's time went back, or far ahead */
};

struct slicer;

int slicer_new(struct slicer **ret, const struct slicer_config *config); /* -EINVAL, -ENOMEM */
struct slicer *slicer_free(struct slicer *s);

/* A frame of `bytes` begins, with its counter of time (NULL: it has none). ROS_STORE: its bytes go to
 * *ret_to. ROS_DISCARD: read it. Then slicer_commit(), or slicer_skip() if it breaks off. ROS_FULL: there is
 * no room now; try again, or call slicer_skip(). */
enum ros_verdict slicer_arrive(struct slicer *s, uint64_t now_ns, const uint64_t *counter, uint32_t bytes,
                               uint8_t **ret_to);
void slicer_commit(struct slicer *s, uint64_t now_ns);
void slicer_skip(struct slicer *s);

/* Passes the slices that close to the core as frames with their numbers, as far as it has room. `idle`: all
 * frames that the board has sent were read. `full`: the oldest slice closes although frames of it may still
 * come. Slices whose event does not wait any longer are left out: their frames are late. Returns the number
 * of slices passed. */
uint64_t slicer_deliver(struct slicer *s, uint64_t now_ns, bool idle, bool full, struct ros *core,
                        uint8_t *buffer);
/* Publishes the classes of all frames, those in slices that the core has included. */
void slicer_account(const struct slicer *s, const struct ros *core, struct node_stats *stats);
/* When the oldest slice closes if no frame comes; UINT64_MAX: it does not. */
uint64_t slicer_deadline_ns(const struct slicer *s);

const struct slicer_counts *slicer_counts(const struct slicer *s);
