/* Shared by the files of the ROS: held fragments, and the send queues. */
#pragma once

#include "base/arena.h"
#include "base/idmap.h"
#include "base/util.h"
#include "core/ros.h"
#include "protocol/sequence.h"
#include "ros_number.h"

#define NO_ITEM UINT32_MAX
/* Defaults of struct ros_config. Frames that are requested before they arrive have separate entries, so they
 * and early frames cannot displace each other. */
#define ROS_EXPECTED_MAX 16384u
#define ROS_EXTRA_ITEMS 4096u
/* Value of `event` for a frame whose trigger is not known yet. */
#define ROS_NO_EVENT UINT64_MAX

/* The class of a frame. */
enum ros_frame { FRAME_GOOD, FRAME_LATE, FRAME_DUPLICATE, FRAME_IMPOSSIBLE };

struct ros_entry {
        uint64_t event;  /* ROS_NO_EVENT: its trigger is not known */
        uint64_t number; /* the frame's number, if frames carry numbers; otherwise the event */
        uint64_t at;
        uint32_t l1_id;
        struct ros_fragment fragment;
        uint32_t place;      /* index in `order` */
        uint32_t queued;     /* number of queued items */
        uint16_t queued_sfi; /* SFI of the newest queued item */
        /* All bytes in [queued_from, queued_to) are in items for that SFI. */
        uint32_t queued_from, queued_to;
        uint64_t wanted_ns;
        uint32_t wanted_to; /* when the frame arrives, the bytes below this offset are sent */
        uint16_t wanted_by; /* SFI to which they are then sent; UINT16_MAX: none */
        uint16_t pins;
        uint16_t copies; /* number of copies of the frame, until the frame is confirmed */
        bool arrived, filled, cleared;
        bool sent;               /* the last byte was sent at least once */
        bool expected;           /* the frame was requested before it began to arrive */
        bool triggered;          /* the frame was requested at least once, so it counts for XOFF */
        bool unrequested;        /* without level 2: only Clear showed the trigger, so no SFI got the frame */
        bool given_up;           /* the frame did not come in time, so the answer is "pending" */
        bool suspect;            /* the frame waits for a newer frame to confirm its number */
        bool announced;          /* the frame was announced to the DFM */
        bool in_run;             /* the frame arrived while frames made triggers */
        uint32_t next, previous; /* in the list `waiting` or `early`; NO_ITEM: none */
};

struct ros_list {
        uint32_t first, last;
};

/* One range to send. The items of an SFI form a list, as do the free items. */
struct ros_item {
        uint64_t event;
        uint32_t l1_id;
        uint32_t from_bytes, to_bytes;
        uint32_t bytes; /* payload; part of the bytes of the queue */
        /* In a queue: the next item. Free: the next free one, minus the index of the item behind this one, so
         * that memory from calloc() is a list of all items. */
        uint32_t next;
        uint32_t entry; /* entry of the event when the item was queued, or IDMAP_NONE */
        uint8_t status; /* answer if nothing is held; FRAGMENT_OK: none */
};

struct ros_queue {
        uint32_t first, last, n_items;
        uint64_t bytes; /* payload of all items */
        uint32_t transaction;
        uint64_t fragments, sent_bytes, unanswered;
        uint64_t dropped; /* number of packets that this ROS's own shaping dropped */
        bool totals_due;
};

struct ros_regions;

/* The stream of announcements to the DFM: the frames in the list `early`. The numbers [acked, end) are kept;
 * of these, [sent, end) wait to be sent again. */
struct ros_announced {
        uint32_t next;  /* first frame that is not announced yet; NO_ITEM: none */
        uint32_t n_new; /* number of these frames */
        uint64_t *numbers;
        uint32_t acked, sent, end;
        bool active;          /* the run of this DFM is in progress */
        bool reading;         /* frames may wait to be read */
        bool collecting;      /* fragments of frames that have arrived are not complete yet */
        bool has_state;       /* this process has received a KeepAlive of a DFM */
        bool stopping;        /* the run drains; `closing` follows once nothing is being collected */
        bool open;            /* the DFM has acknowledged this stream */
        bool closing, closed; /* closing: the run drains, so frames that arrive now are not announced; closed:
                                 the DFM knows that nothing follows */
        uint64_t sent_ns;
        uint64_t resend_ns, resend_after_ns;
};

struct ros {
        struct ros_config config;
        enum run_state run_state, state;
        struct member member;
        uint64_t keep_alive_due_ns;
        uint64_t sfi_live[EVB_SFI_MAX / 64];
        uint32_t sources, demand_number;
        uint16_t sfi_permille[EVB_SFI_MAX]; /* share of the planned rate */
        uint64_t rate_received_ns[EVB_SFI_MAX];
        uint64_t oldest, newest; /* events below `oldest` have ended; events from `newest` on are unknown */
        struct jump oldest_jump;
        struct sequence clears, keep_alives; /* sequence numbers of this DFM's messages */
        uint32_t breaks;                     /* resets after which no trigger comes for earlier frames */
        /* A reset that takes effect when all frames that came before its announcement are read; 0 resets:
         * none. */
        struct {
                uint32_t resets;
                uint64_t event, number;
        } reset;
        /* Numbers of frames that came in the run and that a new count made left over before the first
         * trigger. `in_doubt`: triggers before the last reset had such numbers, so the new count may be the
         * one that began with the reset. */
        struct {
                uint64_t from, end; /* end 0: no frame was left over */
                bool in_doubt;
        } left;
        /* This ROS joined after a reset, and none has come since: its first frames may be from before it. */
        bool missed_reset;
        uint32_t alive_sequence; /* sequence number of Alive, XON and XOFF */
        struct budget budget;    /* for messages from this ROS to the DFM's port */
        bool is_last;            /* the run has ended, and no trigger followed the newest one */
        bool unreliable, quiet, is_short;
        struct node_obstacle obstacle;

        struct ros_entry *entries;
        uint32_t *order;    /* all entries: the free ones, then the `n_held` held ones */
        uint32_t n_entries; /* entries for fragments, plus entries for expected frames */
        uint32_t n_held, n_expected, n_waiting, n_triggered;
        uint64_t triggered_bytes; /* buffer space of triggered fragments */
        struct idmap by_event;
        struct arena *arena;
        struct ros_list waiting; /* requested frames that have not arrived, the oldest request first */

        /* Frames that arrive by themselves. */
        struct ros_numbers numbers;
        struct idmap by_number; /* if frames carry numbers */
        struct ros_list early;  /* numbered frames whose trigger is not known, in order of arrival */
        struct ros_announced announced;
        uint32_t n_frames;    /* number of frames that are held and confirmed */
        uint64_t frame_bytes; /* buffer space that a recent large frame needed; 0: no frame came */
        uint32_t room_sent;   /* value in the last Alive */
        uint64_t left_behind; /* number of frames whose trigger never came */
        uint64_t arrived;     /* frames so far; if frames are counted, also the event of the next frame */
        uint64_t reported;    /* number of these frames in the last Alive */
        uint64_t report_ns;   /* time of the last Alive */
        uint64_t wanted; /* the DFM waits until this many frames have arrived; for a leading ROS, nonzero: it
                            waits for any frame; 0: it does not wait */
        uint64_t hungry_frames; /* `arrived` at the last check for missing frames */
        uint64_t hungry_ns;     /* since when expected frames have been missing; 0: none are */
        uint64_t hungry_looked_ns;
        bool hungry, left_out; /* expected frames are missing now; events do not wait for this ROS, according
                                  to the DFM */
        uint32_t arriving;     /* entry of the arriving frame, between ros_arrive() and ros_commit() */
        uint64_t arriving_number; /* UINT64_MAX: the frame has none */
        uint64_t last_number;     /* number of the previous frame */
        uint32_t first_copies;    /* number of frames with the first number of the board */
        uint32_t arriving_frames; /* number of frames in its slice of time */
        enum ros_frame arriving_as;
        bool refused, refused_expected; /* refused: the next frame already found no room; refused_expected: a
                                           trigger waits for this frame */
        uint32_t refused_held;          /* `n_held` then */
        /* `strays`: consecutive frames that are late, repeated, impossible, or not newer than all earlier
         * ones. `n_suspects`: how many of these would be good; they wait for a newer frame. */
        uint32_t strays, n_suspects;
        uint64_t first_stray; /* number of the first stray, updated with every 16th stray */
        uint64_t behind;      /* how far the first stray was behind the newest trigger */
        bool strays_are_late; /* all strays in this row are good or late */
        /* Some strays are impossible or repeated, and the row may be the beginning of a new count. */
        bool strays_may_begin;
        uint32_t suspects[ROS_STRAYS_MAX + 1];
        uint64_t unproved; /* lowest number of the suspects that were used since the newest frame; UINT64_MAX:
                              none were */
        /* A stray that leapt ahead, after which the next frames did not continue. The board may still
         * continue there, until as many frames have arrived as are needed to agree. */
        uint32_t leaper, after_leap; /* UINT32_MAX: none */
        uint64_t leapt;              /* number of such a stray that is already in an event; 0: none */
        bool out_of_step;
        /* Number of further KeepAlives until the DFM has certainly received the report that the front-end is
         * in step again; 0: it has. */
        uint32_t doubts;
        uint32_t agreeing; /* number of consecutive frames that agree with the triggers, while out of step */
        uint64_t out_of_step_ns; /* 0: not known yet */
        bool front_end_is_back;  /* the return of the front-end has not been reported to the DFM yet */
        bool xoff, xoff_sent;

        struct ros_item *items;
        uint32_t free_item, n_items;
        /* Each SFI has this number of items for itself, and shares the remaining items with the other
         * SFIs. */
        uint32_t share, common;
        struct ros_queue *queues;
        uint64_t with_items[EVB_SFI_MAX / 64]; /* a bit for each SFI whose queue is not empty */

        struct ros_regions *regions; /* NULL: level-2 clients do not request fragments */

        struct ros_counts counts;
        struct ros_sample arriving_sample;
        struct ros_samples samples;
};

static inline bool ros_is_numbered(const struct ros *r)
{
        return r->numbers.period > 0;
}

/* Whether frame k belongs to event k. */
static inline bool ros_counts_frames(const struct ros *r)
{
        return !r->config.describe && !ros_is_numbered(r);
}

/* ros_hold.c */
uint32_t ros_hold(struct ros *r, uint64_t event, uint32_t l1_id,
                  const struct ros_fragment *f); /* UINT32_MAX: the buffer is full */
/* Makes an entry for a frame that has not arrived; UINT32_MAX: the buffer is full. */
uint32_t ros_expect(struct ros *r, uint64_t event, uint64_t number, uint32_t l1_id);
/* Finds memory for a frame, in the entry that expects it or in a new entry (UINT32_MAX). Returns UINT32_MAX
 * if the buffer is full. */
uint32_t ros_hold_frame(struct ros *r, uint32_t i, uint64_t number, const struct ros_fragment *f);
/* The frame of the entry did not arrive after all: the entry expects it again or, without a trigger, is
 * dropped. */
void ros_unhold_frame(struct ros *r, uint32_t i);
/* Whether a frame with this number arrived and was discarded before its trigger came. If so, the frame counts
 * as dropped or late, or as used if level 2 `rejected` its event. */
bool ros_was_discarded(struct ros *r, uint64_t number, bool rejected);
void ros_release(struct ros *r, uint32_t i); /* of a cleared entry */
/* The trigger of an early frame is known now. */
void ros_bind(struct ros *r, uint32_t i, uint64_t event, uint32_t l1_id);
void ros_record_triggered(struct ros *r, uint32_t i);
/* ros_request.c: records the end of an event that may never have been requested because level 2 rejected it.
 * Its frame was triggered nevertheless. */
void ros_record_ended(struct ros *r, uint64_t event, uint32_t l1_id);
void ros_drop(struct ros *r, uint32_t i); /* clears an entry */
/* Clears the entry of an early frame, to make room for newer frames before the first trigger. */
void ros_push_out(struct ros *r, uint32_t i);
void ros_stop_waiting(struct ros *r, uint32_t i);
void ros_forget_suspect(struct ros *r, uint32_t i);
/* Makes an early frame wait again until it is confirmed. */
void ros_unfinish(struct ros *r, uint32_t i);
/* Counts the frame, or its slice of `in_slice` frames, in this class. */
void ros_count_frame(struct ros *r, enum ros_frame as, uint32_t in_slice);
/* Counts a frame that makes no trigger, although its number is within the run, because the number came too
 * late to become an event. */
void ros_count_no_event(struct ros *r, uint32_t in_slice);
/* Whether a frame without a trigger counts in this way. */
bool ros_makes_no_event(const struct ros *r, const struct ros_entry *e);
void ros_clear(struct ros *r, uint64_t event);
void ros_clear_below(struct ros *r, uint64_t oldest);
void ros_check_room(struct ros *r);
void ros_list_append(struct ros *r, struct ros_list *list, uint32_t i);

/* ros_request.c */
void ros_send_to(struct ros *r, uint64_t now_ns, uint16_t sfi, const struct request_entry *q);
void ros_stop_waiting_for(struct ros *r, uint32_t sfi); /* arriving frames no longer go to this SFI */
uint64_t ros_wait_deadline_ns(const struct ros *r);

/* ros_arrive.c */
/* Number of events whose frames fit into half of the buffer, by the recent size of frames; 0: unknown. */
uint32_t ros_room(const struct ros *r);
/* ros_step.c */
/* The entry's frame is complete and confirmed. */
void ros_finish(struct ros *r, uint32_t i);
/* Whether repeated or impossible numbers have arrived since the last frame that was accepted at once: the
 * board may have restarted its count. */
bool ros_is_broken(const struct ros *r);
/* Whether a newer frame may belong to a still newer trigger, and have this number only because the board
 * restarted its count. */
bool ros_is_doubtful(const struct ros *r, uint64_t number);
/* Records a frame that is not good, or not confirmed yet. */
void ros_record_stray(struct ros *r, uint64_t number, enum ros_frame as);
/* Follows a frame with this number. True: the number is accepted at once. False: it is not newer than all
 * earlier numbers, or the board may have restarted its count. */
bool ros_follow(struct ros *r, uint64_t number);
/* Accepts a complete frame that may be stored. */
void ros_accept_numbered(struct ros *r, uint32_t i);
/* The frames that came before the announcement of a reset have been read, so it takes effect. */
void ros_end_reset(struct ros *r);
/* Whether frames of the last reset's count may be in events from before the reset: the triggers before it
 * came to this ROS later than these frames, and the board's first frame after the reset was not the first of
 * its count. */
bool ros_began_early(const struct ros *r);
/* KeepAlive reports a reset of the boards' counters. */
void ros_record_reset(struct ros *r, uint64_t now_ns, const struct message *keep_alive);
/* Whether frames make the triggers, but a frame with this number would come too late to make one. */
bool ros_comes_too_late(const struct ros *r, uint64_t number);
/* The run is over: frames that wait to be confirmed or announced become no event. */
void ros_end_suspects(struct ros *r);
/* The run is stopped, so frames that are only late are used, although no newer one confirms them: unless one
 * is far below the newest, as when the board leapt ahead and back. */
void ros_end_wait_of_suspects(struct ros *r);
/* If only the newest frame was ahead, and this number follows the frame before it, continues from this
 * number. */
bool ros_step_back(struct ros *r, uint64_t number);
void ros_end_frames(struct ros *r);
/* Accepts the unconfirmed frame if nothing contradicts its number. False: it stays unconfirmed. */
bool ros_trust_suspect(struct ros *r, uint32_t i);

/* ros_announced.c */
int ros_announced_init(struct ros *r); /* -ENOMEM */
void ros_announced_fini(struct ros *r);
/* The frame is now the last one in `early`; or it leaves that list. */
void ros_announce_number(struct ros *r, uint32_t i);
void ros_announced_remove(struct ros *r, uint32_t i);
/* Whether with this KeepAlive, frames that come later came after the stop. */
bool ros_announced_closes(const struct ros *r, const struct message *keep_alive);
/* Follows the state of the run. */
void ros_announced_record_state(struct ros *r, const struct message *keep_alive);
/* Starts another stream, which announces all frames without a trigger again. */
void ros_announced_restart(struct ros *r);
bool ros_make_announcement(struct ros *r, uint64_t now_ns, struct message *m);
uint64_t ros_announced_deadline_ns(const struct ros *r);
bool ros_receive_numbers_ack(struct ros *r, uint64_t now_ns, const struct message *m);

/* ros_queue.c */
/* Returns the end of the range up to `to_bytes`: on a block boundary, or at the end of the fragment. */
uint32_t ros_range_end(const struct ros_fragment *f, uint32_t to_bytes);
/* Queues the range that `what` names of the event, which has this entry; IDMAP_NONE: nothing is held, and the
 * answer is `status`. */
void ros_enqueue(struct ros *r, uint32_t sfi, uint32_t entry, const struct request_entry *what,
                 uint8_t status);
/* Whether all bytes of the entry in [from, to) are queued for this SFI. The answer may be a false negative,
 * but never a false positive. */
bool ros_is_queued(const struct ros_entry *e, uint32_t sfi, uint32_t from, uint32_t to);
void ros_empty_queue(struct ros *r, uint32_t sfi);

/* ros_regions.c: the other files of the ROS call these functions when something happens for which requests of
 * level-2 clients may wait. Those that take a ROS accept one without regions of interest. */
int ros_regions_init(struct ros *r); /* -ENOMEM */
void ros_regions_fini(struct ros *r);
void ros_regions_wake_all(struct ros_regions *g, uint64_t number); /* for ros_regions_wake() */
/* The frame with this number has arrived, will not come, or is no longer needed: requests for it are
 * answered. Most ROSs have no regions, and this function is called twice for each fragment. */
static inline void ros_regions_wake(struct ros *r, uint64_t number)
{
        if (r->regions)
                ros_regions_wake_all(r->regions, number);
}
/* The event has ended. */
void ros_regions_record_ended(struct ros *r, uint64_t event);
/* The ROS follows a reset of the counters, after which triggers have other numbers. */
void ros_regions_record_resets(struct ros *r);
/* All events below `oldest` have ended. */
void ros_regions_record_oldest(struct ros *r, uint64_t oldest);
/* Answers the requests that have waited for too long. */
void ros_regions_expire(struct ros *r, uint64_t now_ns);
/* See ros_was_paused(). */
void ros_regions_postpone(struct ros *r, uint64_t now_ns, uint64_t by_ns);
uint64_t ros_regions_deadline_ns(const struct ros *r);
