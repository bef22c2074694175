/* Finds the trigger of each frame of a board that has a clock instead of a count of triggers: a frame belongs
 * to the trigger whose time is within a window of its own. The clock of the board may begin at any time, and
 * drift. Triggers come from the box, in the datagrams that the DFM receives too (trigger_times). Each frame
 * that matches is passed to the core with the number of its trigger. One thread; the functions that end in
 * _new() make all allocations. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/ros.h"
#include "data/board_count.h"
#include "data/context.h"
#include "data/offset_search.h"
#include "data/reasons.h"
#include "data/slicer.h"
#include "data/stats.h"
#include "protocol/trigger_packet.h"

/* The clock of the board in the previous run of this process; all 0: it is not known. */
struct matcher_past {
        struct board_fit fit;
        struct board_count count;
};

struct matcher_config {
        uint64_t window_ns; /* maximum distance from a trigger, in either direction */
        uint64_t tick_ns;   /* time of one count */
        unsigned bits;      /* width of the time counter */
        uint32_t frames_max;
        uint64_t buffer_bytes; /* for frames whose trigger is not known yet */
        uint64_t search_ns;    /* how long frames wait while the offset of the clock is not known */
        struct matcher_past past;
};

struct matcher_counts {
        /* Each frame is passed or dropped, is without a trigger, or waits. */
        uint64_t frames;
        uint64_t passed;    /* to the core, and included in ros_counts() */
        uint64_t alone;     /* no trigger is within the window */
        uint64_t doubled;   /* dropped: an earlier frame belongs to their trigger */
        uint64_t no_time;   /* dropped: they are too short for a time */
        uint64_t no_room;   /* dropped: broken off, or the buffer was full */
        uint64_t ambiguous; /* part of `passed`: two triggers are within the window */
        uint64_t waiting;
        uint64_t untimed; /* triggers without a time */
        uint64_t lost;    /* how often frames stopped matching, so that the offset was searched again */
        uint64_t wrong;   /* part of `lost`: the offset was probably wrong from the beginning */
        /* How often the offset of the previous run denied that the first frame is the first trigger's. */
        uint64_t contradicted;
        /* Part of `alone`: since triggers came, or since the offset was lost, no offset was found. */
        uint64_t no_offset;
        uint64_t early;    /* how often no offset was assumed, as frames came before the first trigger */
        uint64_t unproven; /* part of `alone`: read so late that their time is not sure, while there were
                              triggers */
        /* How often frames came so much later than others that the time of earlier ones was probably wrong.
         */
        uint64_t turned;
        uint32_t not_here; /* triggers of the run before the first one that came here */
        uint64_t doubled_number, ambiguous_number; /* of the triggers of the last such frames */
};

struct matcher;

int matcher_new(struct matcher **ret, const struct matcher_config *config); /* -EINVAL, -ENOMEM */
struct matcher *matcher_free(struct matcher *m);

/* A trigger, or a reset of the counters. `begins`: the first trigger of a run, if the board has sent no
 * frames of earlier ones. */
void matcher_trigger(struct matcher *m, uint64_t now_ns, const struct trigger_entry *e, bool begins);
/* Number of the box's datagrams that were lost on their way here. Call this before the triggers of each
 * datagram. */
void matcher_set_lost(struct matcher *m, uint64_t datagrams);
/* The low 32 bits of the number of the run's first trigger, as the DFM knows it: triggers before the first
 * one that came here are lost. */
void matcher_set_first(struct matcher *m, uint32_t number);
/* A frame of `bytes` begins. The results are those of slicer_arrive(); call matcher_commit() or
 * matcher_skip() likewise. */
enum ros_verdict matcher_arrive(struct matcher *m, uint64_t now_ns, const uint64_t *counter, uint32_t bytes,
                                uint8_t **ret_to);
void matcher_commit(struct matcher *m);
void matcher_skip(struct matcher *m);
struct matcher_turn {
        uint64_t now_ns;     /* as for matcher_arrive() */
        uint64_t read_ns;    /* after all frames so far were read */
        uint64_t emptied_ns; /* when nothing more was left to read; it does not decrease */
        bool full;           /* the oldest frame waits no longer for its trigger */
};

/* Passes frames to the core, as far as their triggers are known and it has room. Call this in each turn,
 * after frames were read. Returns the number of frames passed. */
uint64_t matcher_deliver(struct matcher *m, const struct matcher_turn *turn, struct ros *core,
                         uint8_t *buffer);
/* Returns when the oldest frame stops waiting for its trigger, or when to find out whether the socket is
 * empty; UINT64_MAX: never. */
uint64_t matcher_deadline_ns(const struct matcher *m);

/* Whether the offset of the board's clock is known. */
bool matcher_is_aligned(const struct matcher *m);
/* Whether frames wait for others, so that events must wait for this board although the core receives none. */
bool matcher_is_searching(const struct matcher *m);
/* Whether frames may be in events of other triggers. */
bool matcher_is_unreliable(const struct matcher *m);
/* Publishes the classes of all frames, and the clock. */
void matcher_account(const struct matcher *m, const struct ros *core, struct node_stats *stats);
/* At the end: adds frames that are in no event although they should be, and uncertain ones. */
void matcher_reasons(const struct matcher *m, struct reasons *to);
const struct matcher_counts *matcher_counts(const struct matcher *m);
/* For the next run of this process. */
struct matcher_past matcher_past(const struct matcher *m);
/* Its clock is that of the triggers. */
const struct board_clock *matcher_clock(const struct matcher *m);

/* Receives the datagrams of the trigger box from the group of trigger.source. */
struct trigger_times;

/* Borrows the matcher, the core and the context's members. `fresh`: the board sent nothing at the end of an
 * earlier run. Errors are logged. */
int trigger_times_new(struct trigger_times **ret, const struct data_context *c, struct matcher *m,
                      const struct ros *core, bool fresh);
/* These functions accept NULL. */
struct trigger_times *trigger_times_free(struct trigger_times *t);
/* Receives for a bounded time; call this before frames are read. */
void trigger_times_turn(struct trigger_times *t, uint64_t now_ns);
uint64_t trigger_times_deadline_ns(const struct trigger_times *t);
void trigger_times_reasons(const struct trigger_times *t, struct reasons *to);
