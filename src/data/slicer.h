/* Collects the frames of a front-end that carry times into slices of time, for readout without triggers. The
 * frames of a slice become one fragment: each frame is preceded by its length, in the order of arrival. With
 * an overlap, the fragment begins with copies of the frames from the last part of the previous slice. A slice
 * closes when the board's time has passed its end by a window; frames that arrive later are late. Slices
 * without frames are closed too. A fragment that lacks a dropped frame of its slice or its overlap is
 * FRAGMENT_TRUNCATED. While the board is silent, no slice after that of its newest frame closes, because the
 * board may still have frames for it. One thread; all memory is allocated by slicer_new(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/ros.h"
#include "data/stats.h"

/* ---- The clock of a board, as its frames show it (board_clock.c). No memory of its own; 0 is a valid value.
 * ---- */

struct board_clock_point {
        uint64_t now_ns; /* by the caller's clock */
        int64_t ahead_ns;
};

#define BOARD_CLOCK_POINTS 64u

struct board_clock {
        /* After half a minute of frames: what the board's clock gains in a unit of time, by about how much
         * this may be wrong, and how far the clock is ahead of the caller's at one time. */
        bool known;
        double drift, error;
        struct board_clock_point at;
        struct board_clock_point points[BOARD_CLOCK_POINTS]; /* one for each interval with frames, a ring */
        uint32_t first, n;
        uint64_t interval_ns;
        struct board_clock_point best, previous; /* in this interval; of the previous frame */
        uint64_t begin_ns;
        bool has_best, has_previous;
};

/* A frame with a time arrived. Returns whether the drift was measured again. */
bool board_clock_record(struct board_clock *c, uint64_t now_ns, uint64_t time_ns);
/* How far the board's clock is ahead of the caller's now. Only if it is known. */
int64_t board_clock_ahead_ns(const struct board_clock *c, uint64_t now_ns);
/* Publishes the clock. `utc_ns`: the time `now_ns` of the caller's clock as time since 1970. */
void board_clock_account(const struct board_clock *c, uint64_t now_ns, uint64_t utc_ns,
                         struct node_stats *stats);

/* ---- The slices. ---- */

struct slicer_config {
        uint64_t slice_ns, overlap_ns, window_ns; /* overlap_ns is less than slice_ns */
        uint64_t tick_ns;                         /* time of one count */
        unsigned bits;                            /* width of the time counter */
        /* The slice of a frame is that of its time without the drift of the board's clock. */
        bool follows;
        uint32_t frames_max;
        /* Maximum number of open slices, a power of two; 0: 65536. */
        uint32_t slices_max;
        /* Maximum size of a slice's fragment. The frames of the slice itself may fill half of it, so that
         * there is room for an overlap. 0: EVB_FRAGMENT_MAX_BYTES, which is also the maximum. */
        uint32_t fragment_max_bytes;
        uint64_t buffer_bytes; /* for frames of slices that are not closed */
        /* After a silence of this length, no further frame is expected in the slices up to the slice of the
         * newest frame. If all frames are late for this long, the board's time was restarted. */
        uint64_t idle_max_ns;
};

struct slicer_counts {
        /* Each frame is passed on, late, dropped or left over, or waits for the end of its slice. */
        uint64_t frames;
        uint64_t passed;   /* passed to the core with their slice, and included in ros_counts() */
        uint64_t late;     /* frames whose slice was closed, or whose event no longer waited */
        uint64_t dropped;  /* frames that are incomplete, have no possible time, or are too large */
        uint64_t ahead;    /* dropped frames whose time leapt ahead of any time that the board reached */
        uint64_t ahead_ns; /* how far ahead the last such frame was at the end of the run */
        uint64_t waiting;
        uint64_t left_over; /* frames whose slice was open at the end of the run, and lies after the last
                               event */
        uint64_t restarts;  /* how often the board's time went back, or jumped far ahead */
};

struct slicer;

int slicer_new(struct slicer **ret, const struct slicer_config *config); /* -EINVAL, -ENOMEM */
struct slicer *slicer_free(struct slicer *s);

/* A frame of `bytes` bytes begins, with its time counter (NULL: none). ROS_STORE: copy its bytes to *ret_to.
 * ROS_DISCARD: read and discard it. Then call slicer_commit(), or slicer_skip() if the frame is incomplete.
 * ROS_FULL: there is no room now; try again, or call slicer_skip(). */
enum ros_verdict slicer_arrive(struct slicer *s, uint64_t now_ns, const uint64_t *counter, uint32_t bytes,
                               uint8_t **ret_to);
void slicer_commit(struct slicer *s, uint64_t now_ns);
void slicer_skip(struct slicer *s);

/* Closes slices, and passes them to the core as frames with their numbers, as far as the core has room.
 * `idle`: all frames that the board has sent were read. `full`: the oldest slice closes although more of its
 * frames may arrive. If an event no longer waits for its slice, the slice is skipped, and its frames are
 * late. Returns the number of slices passed. */
uint64_t slicer_deliver(struct slicer *s, uint64_t now_ns, bool idle, bool full, struct ros *core,
                        uint8_t *buffer);
/* Whether slices that were due found no room in the core, as of the last slicer_deliver(). After a stop:
 * slices that were due before. */
bool slicer_is_collecting(const struct slicer *s);
/* Publishes the classes of all frames, including those in slices that were passed to the core. */
void slicer_account(const struct slicer *s, const struct ros *core, struct node_stats *stats);
/* Returns when the oldest slice closes if no frame arrives; UINT64_MAX: never. */
uint64_t slicer_deadline_ns(const struct slicer *s);

const struct slicer_counts *slicer_counts(const struct slicer *s);
const struct board_clock *slicer_clock(const struct slicer *s);
