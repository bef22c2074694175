/* Extends the time counter of a board, which starts over after a period. A frame comes between two times of
 * this machine: its socket was empty at the first one, and it was read by the second one. If these are close
 * together, they show how often the counter started over. If this process was held up between them, they do
 * not; then the counters themselves may show it, once a frame is read in time again. Pure; for one thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* All 0: no frame has come. */
struct board_count {
        /* The last frame that was read in time: its extended count, and when it came. */
        bool has_anchor;
        uint64_t anchor, anchor_ns;
        /* The extended count of the last frame, if less than a period passed from each frame to the next. */
        bool has_last;
        uint64_t last;
        /* The smallest delay of a frame that was read in time, plus a constant, and when it was updated. */
        uint64_t least_ns, least_at_ns;
        /* How much later than its trigger such a frame comes at most, and the time of the board's clock then.
         */
        uint64_t lag_ns, lag_at_ns;
        uint32_t n_apart; /* frames in a row that were read in time and do not fit the anchor */
};

enum count_state {
        COUNT_SURE,
        COUNT_OPEN,    /* the next sure frame shows whether the count is right */
        COUNT_UNKNOWN, /* it may be wrong by whole periods */
};

struct counted {
        uint64_t count;
        enum count_state state; /* SURE or OPEN */
        /* If it is SURE: what the counts of earlier OPEN frames become. */
        enum count_state earlier;
        /* The counts of earlier frames, SURE ones as well, have nothing to do with this one. */
        bool begins_anew;
        bool was_wrong; /* part of that: SURE ones were probably wrong */
        /* Since earlier frames, the clocks may have drifted apart by half a period. */
        bool drifted;
};

/* Times of the frames do not decrease; `from_ns` <= `until_ns`. */
struct counted board_count_extend(struct board_count *c, uint64_t tick_ns, unsigned bits, uint64_t counter,
                                  uint64_t from_ns, uint64_t until_ns);

/* A frame with this time of the board's clock belongs to a trigger that came here at `arrived_ns`. */
void board_count_follow_lag(struct board_count *c, uint64_t board_ns, uint64_t arrived_ns);
/* The counts since the clocks drifted apart are larger by so many periods; returns their time. */
uint64_t board_count_shift(struct board_count *c, uint64_t tick_ns, unsigned bits, int64_t by);

/* The counts that a frame between these times may have, if there are at most `max`: returns their number, and
 * the first one; the others follow, a period apart. 0: there are more, or it is not known. */
unsigned board_count_possible(const struct board_count *c, uint64_t tick_ns, unsigned bits, uint64_t counter,
                              uint64_t from_ns, uint64_t until_ns, unsigned max, uint64_t *ret_first);
/* How often a socket must be found empty, so that frames are read in time. */
uint64_t board_count_look_ns(uint64_t tick_ns, unsigned bits);
