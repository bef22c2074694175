/* Which trigger a frame belongs to. A trigger has an L1 ID of 32 bits, a frame a counter that starts over
 * after its period; both are extended to one count of this ROS, by the value nearest to the known numbers.
 * Only differences in that count have a meaning. This file is independent of fragments and entries. */
#pragma once

#include "protocol/event_set.h"
#include "protocol/number.h"

/* A frame agrees with the newest trigger if it is at most this far from it, in addition to four times the
 * usual lag. A counter of 16 bits or more has more than 200 times as many values, so a wrong frame rarely
 * agrees by chance. */
#define ROS_NUMBERS_AGREE 256u
/* A board that was dead for more triggers than this continues with the newest trigger, unless it restarted
 * its count. */
#define ROS_NUMBERS_GAP 16u

/* Progress of the frames since the last reset. */
struct ros_progress {
        bool behind;             /* frames have not reached the epoch after the reset yet */
        uint64_t previous_frame; /* newest of the frames since the reset that continued the previous epoch */
        bool is_mixed;           /* such a frame shows that those before it may be from after the reset */
};

/* The time between two resets of the counters. */
struct ros_epoch {
        uint64_t event, number; /* event and number of the newest trigger */
        uint32_t l1_id;
        uint64_t frame; /* number of the newest accepted frame */
        uint64_t first; /* lowest number of an accepted frame */
        bool continues; /* a trigger followed the first frame, so these are not the first frames of the next
                           epoch, which its announcement may come after */
        bool is_broken; /* at its end, numbers were repeated: the board has begun the next epoch */
};

/* The newest place where the numbers of consecutive frames do not follow each other. */
struct ros_gap {
        uint64_t size;   /* how many numbers were skipped; 0: none, the numbers went back, or by too much */
        uint64_t number; /* the first frame after it */
        /* How far each frame was ahead of the known triggers, at least: since the gap, and between the gap
         * before and this one. INT64_MAX: no frame came. */
        int64_t lead, lead_before;
};

/* The board began its present count again. */
struct ros_again {
        uint64_t until;  /* the last number before that; 0: it did not begin again */
        uint64_t frames; /* how many frames have repeated numbers since then */
};

struct ros_numbers {
        /* Period of a counter, at most NUMBER_PERIOD_MAX; 0: frames are counted. */
        uint64_t period;
        /* A multiple of the period, and at least 2^32. Numbers begin there, so that no number is negative. */
        uint64_t unit;
        uint64_t from;  /* counter of the trigger with number 0; less than `period` */
        uint64_t start; /* the first number is close to this one */
        bool has_trigger, has_frame;
        uint64_t joined; /* number of triggers when this ROS joined the run; UINT64_MAX: not known yet */
        /* Frames may be those of other triggers: this ROS joined so late that nothing shows in which period
         * its narrow counter was, or frames of two epochs may have been mixed. */
        bool may_be_off;
        struct ros_epoch now, previous;
        struct ros_gap gap;
        bool was_silent; /* no frame was accepted between two resets, although there were triggers */
        struct ros_again again;
        uint64_t first_event;   /* first event of the epoch `now`; 0: there is no other epoch */
        uint64_t first_number;  /* number near which the epoch began */
        uint64_t first_trigger; /* number of the trigger of `first_event`; UINT64_MAX: unknown */
        /* accepted: the progress after the last accepted frame; seen: the progress if the last examined frame
         * is accepted. A frame that finds no room is examined again. */
        struct ros_progress accepted, seen;
        uint64_t base;   /* lowest number of a frame of the previous epoch; 0: there is no previous epoch */
        uint64_t top;    /* highest number of a trigger of the previous epoch, plus 1 */
        uint64_t bottom; /* lowest number of a trigger of the run; UINT64_MAX: none is known */
        /* If the newest accepted frame leapt ahead: the number of the frame before it; UINT64_MAX: no frame
         * came before; 0: no leap. */
        uint64_t before;
        uint64_t lag;    /* mean lag of accepted frames behind the newest trigger, in sixteenths */
        uint64_t passed; /* no trigger up to this number is open */
        uint64_t mark_event, mark_number;
        struct event_set ended, used; /* numbers of ended events; used: only events that had their frame */
        struct event_set discarded;   /* numbers of frames that were discarded before a trigger came */
        struct event_set rejected; /* numbers of ended events that no SFI requested, because their frame had
                                      not arrived */
        uint64_t pushed_out_end; /* frames below this number were discarded before the first trigger, for lack
                                    of room */
};

/* `from`: the counter of the trigger with number 0, which may lie outside the period. -ENOMEM. */
int ros_numbers_init(struct ros_numbers *n, uint64_t period, int64_t from);
void ros_numbers_fini(struct ros_numbers *n);
/* Whether a number says little about the place of its frame, so that it is extended to the next value after
 * the previous frame. */
bool ros_numbers_are_narrow(const struct ros_numbers *n);
/* This ROS joined a run that has had so many triggers. Only the first call counts. */
void ros_numbers_join(struct ros_numbers *n, uint64_t triggers);
/* Records that a frame was discarded before its trigger came. */
void ros_numbers_discard(struct ros_numbers *n, uint64_t number);
/* Call this before the first trigger: later frames may have these numbers again. */
void ros_numbers_forget_discarded(struct ros_numbers *n);

/* `near`: the oldest frame that waits for its trigger; 0: none. */
uint64_t ros_numbers_of_trigger(struct ros_numbers *n, uint64_t event, uint32_t l1_id, uint64_t near);
/* The same without recording the trigger. */
uint64_t ros_numbers_find_trigger(const struct ros_numbers *n, uint64_t event, uint32_t l1_id, uint64_t near);
/* Until ros_numbers_accept(), queries about the number refer to this frame. */
uint64_t ros_numbers_of_frame(struct ros_numbers *n, uint64_t counter);
/* Accepts the frame, which will not arrive again. */
void ros_numbers_accept(struct ros_numbers *n);
/* How far the first frame of the present epoch is ahead of the first trigger (negative: behind it). 0: there
 * is no difference, it is unknown, or the frame is so far behind that it may be from before the epoch. */
int64_t ros_numbers_offset(const struct ros_numbers *n);
/* Whether the last frame and the last trigger also show this offset. `more`: further frames wait for room. */
bool ros_numbers_end_offset(const struct ros_numbers *n, int64_t offset, bool more);
/* Follows the order of frames: this one, accepted or not, came directly after the frame `last`. `repeated`:
 * an earlier frame has its number. */
void ros_numbers_record_order(struct ros_numbers *n, uint64_t number, uint64_t last, bool repeated);
/* By how much the numbers seem to have leapt ahead of the triggers in the run, if no trigger follows: as many
 * numbers were skipped as frames follow the last trigger. If these are few, all frames since then must also
 * have come that much earlier before their triggers. `more`: as above. 0: no, or nothing is known. */
uint64_t ros_numbers_end_gap(const struct ros_numbers *n, bool more);
/* Whether all frames seem to be those of the count before: no frame came in an earlier count, and the board
 * has repeated most frames of the present one, at least so many, up to the newest trigger. `last`: the newest
 * frame. */
bool ros_numbers_are_a_count_behind(const struct ros_numbers *n, uint64_t last, uint64_t least);
/* Whether triggers came in the present epoch, but none of the first 16 frames. */
bool ros_numbers_began_late(const struct ros_numbers *n);
/* How many numbers of a narrow counter follow the last trigger, if the last frame has the same counter as the
 * last trigger, or may have it (`more`): all frames may be whole periods older than their triggers. 0: it
 * does not. */
uint64_t ros_numbers_end_periods(const struct ros_numbers *n, bool more);
uint32_t ros_numbers_l1_id(const struct ros_numbers *n, uint64_t event, uint64_t number);

/* The number that identifies a frame to the DFM: its L1 ID or, before the first trigger, its counter. */
uint32_t ros_numbers_announced(const struct ros_numbers *n, uint64_t number);
/* The L1 ID that follows the highest L1 ID of a trigger; 0: no trigger is known. */
uint32_t ros_numbers_next_l1_id(const struct ros_numbers *n);

enum number_place {
        NUMBER_OPEN,
        NUMBER_PASSED, /* the events of that time have ended */
        NUMBER_FAR,    /* far from all known triggers and frames */
};

enum number_place ros_numbers_place(const struct ros_numbers *n, uint64_t number);
/* Whether the number is close to the newest trigger. After repeated or impossible numbers (`broken`), it must
 * not lag further than earlier frames did: a board that restarted its count soon after the beginning is only
 * a few numbers behind. */
bool ros_numbers_agree(const struct ros_numbers *n, uint64_t number, bool broken);
/* Whether the number is behind the triggers although it follows a break: a gap after all accepted frames or,
 * if `broken`, impossible frames or repeated ones that may have started a new count. */
bool ros_numbers_lag(const struct ros_numbers *n, uint64_t number, bool broken);
/* How far the number is behind the newest trigger. */
uint64_t ros_numbers_behind(const struct ros_numbers *n, uint64_t number);
/* The number of triggers after the newest accepted frame. */
uint64_t ros_numbers_unanswered(const struct ros_numbers *n);
/* Whether a board that restarted its count a short time ago may have this number: the number is close to the
 * board's first one, or to counter 0. */
bool ros_numbers_is_beginning(const struct ros_numbers *n, uint64_t number);
bool ros_numbers_is_first(const struct ros_numbers *n, uint64_t number);
/* Whether a frame with this number was only overtaken by the newest one: it follows an earlier frame. */
bool ros_numbers_is_overtaken(const struct ros_numbers *n, uint64_t number);
/* Whether the number is newer than the numbers of all accepted frames. */
bool ros_numbers_advances(const struct ros_numbers *n, uint64_t number);
/* Whether this ROS has joined a run that began some time ago, and has not accepted a frame yet. The ROS may
 * have been restarted while its board continued. */
bool ros_numbers_have_joined(const struct ros_numbers *n, uint64_t oldest);
/* If this ROS has joined such a run: whether a frame with this number belongs to an event that is still
 * open. */
bool ros_numbers_may_begin(const struct ros_numbers *n, uint64_t number, uint64_t oldest);
/* If this ROS has joined such a run: whether a frame with this number belongs to an event that may have ended
 * earlier. */
bool ros_numbers_precede(const struct ros_numbers *n, uint64_t number, uint64_t oldest);
/* Whether only the newest accepted frame leapt ahead, so that this number follows the frame before it, or
 * follows the triggers if there is no such frame. `broken`: the number must also be ahead of the triggers. */
bool ros_numbers_step_back(const struct ros_numbers *n, uint64_t number, bool broken);
/* The number of the newest accepted frame. */
uint64_t ros_numbers_newest(const struct ros_numbers *n);
/* Records an accepted frame. */
void ros_numbers_record_frame(struct ros_numbers *n, uint64_t number);
/* Records an accepted frame as the newest one. */
void ros_numbers_believe(struct ros_numbers *n, uint64_t number);

/* The counter of a frame with this number. */
uint64_t ros_numbers_counter(const struct ros_numbers *n, uint64_t number);
/* Whether the number is neither before the first trigger nor after the last one. */
bool ros_numbers_is_within(const struct ros_numbers *n, uint64_t number);
/* Whether the number precedes the run, or the reset, although the board has already sent a frame of the run,
 * or one from after the reset. */
bool ros_numbers_is_below_run(const struct ros_numbers *n, uint64_t number);
/* Whether the number is further below the run or the reset than late frames can be. A board sends its frames
 * in order, so such a number is wrong. */
bool ros_numbers_is_far_below_run(const struct ros_numbers *n, uint64_t number);
/* The counter that a frame of the newest trigger has. */
uint64_t ros_numbers_expected(const struct ros_numbers *n);

/* Records that every event below `oldest` has ended. Returns whether `passed` has changed. */
bool ros_numbers_record_oldest(struct ros_numbers *n, uint64_t oldest);
/* The board's counter restarts at an unknown value, and all events have ended. */
void ros_numbers_restart(struct ros_numbers *n);
/* The counters of the trigger and the boards were reset: from this event on, they begin near `number`.
 * `broken`: the last frames repeated numbers. */
void ros_numbers_reset(struct ros_numbers *n, uint64_t event, uint64_t number, bool broken);
