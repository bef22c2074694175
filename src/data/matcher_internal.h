/* Shared by the files of the matcher: its state, and the search for the offset (matcher_search.c). */
#pragma once

#include "data/frame_store.h"
#include "data/matcher.h"
#include "data/offset_search.h"

/* When a frame came. */
struct arrival {
        uint64_t turn_ns;          /* the turn that read it */
        uint64_t from_ns, read_ns; /* between these times; `read_ns` is 0 until it is known */
        enum count_state state;
        bool drifted; /* from this frame on, the time may be wrong by whole periods */
};

struct matcher {
        struct matcher_config config;
        struct frame_store store; /* the key of a frame is its time in ns, modulo 2^64, or its counter */
        struct frame_list waiting;
        struct arrival *arrivals; /* at the index of each stored frame */
        uint32_t arriving;        /* FRAME_NONE: none */
        uint32_t undated;         /* the first frame that waits and whose key is its counter; or FRAME_NONE */
        uint32_t n_open;          /* frames that wait and are COUNT_OPEN */
        uint32_t n_drifted;       /* frames that wait and are `drifted`; then `count` may be wrong, too */
        bool discards;
        bool drifted; /* no trigger has shown yet whether times are wrong by whole periods */
        struct board_count count;
        uint64_t emptied_ns, looked_ns; /* when the socket was empty, and when it should have been */

        struct known_triggers triggers;
        bool aligned;
        /* Counters were reset, and no frames have shown yet whether the clock of the board was, too. */
        bool was_reset;
        bool left;         /* a frame that followed this reset was left alone */
        uint64_t reset_ns; /* when this reset came */
        /* Lost datagrams of triggers: so far, before this reset, and before the first trigger after it. */
        uint64_t lost, lost_before, lost_after;
        bool begins; /* the first trigger belongs to the first frame, unless a search finds another offset */
        bool has_first, is_reset; /* a trigger came; a reset came after that */
        uint64_t first_here;      /* lowest number of a trigger before that reset */
        uint64_t alone_ns;    /* when the last frame came that waited in vain for the first trigger; or 0 */
        uint32_t searched;    /* frames and triggers when the search last failed */
        struct board_fit fit; /* of the previous run until the offset is found in this one */
        uint64_t matched_ns, matched_arrived_ns; /* the board's time of the newest match, and its arrival */
        uint64_t matched_number, matched_lost;   /* `lost` at that time */
        uint32_t alone, stepped; /* frames without a trigger since then, and those whose time was set */
        struct board_clock clock;
        struct matcher_counts counts;
};

/* With the first frames that wait, or some from all the time, and all triggers; or the last ones of both. */
enum search_part { PART_FIRST, PART_SPREAD, PART_LAST };

struct offset_search matcher_begin_search(const struct matcher *m, enum search_part part);
/* Searches if the number of frames has doubled since the last time, or half of those frames are gone. */
void matcher_search(struct matcher *m);
/* The oldest frame has waited long enough: it belongs to the first trigger if both began together, and the
 * other frames agree. That trigger may not have come here. If no offset is found, the frame belongs to none.
 */
void matcher_end_search(struct matcher *m);
