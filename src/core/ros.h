/* The readout (ROS) as a pure state machine. It joins a run, holds fragments in a bounded buffer until they
 * are cleared, and hands the caller the fragments to send, for push assignments and for requests alike. It
 * does not touch the payload: an entry refers to an offset in a buffer of the caller. One thread; ros_new()
 * makes all allocations.
 *
 * A fragment is HELD from its creation or arrival until it is cleared; sending does not end that. There are
 * two kinds of sources: fragments made on request (pattern, file: ros_config.describe), and frames that
 * arrive by themselves. Frames are counted, frame k for event k, or carry the number of their trigger. Only
 * triggered frames count for XOFF: frames ahead of the trigger wait in the front-end once the buffer is full.
 *
 * Every frame that was read counts in exactly one class: used, late, duplicate, impossible, dropped or left
 * over (see struct ros_counts). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dfm.h"
#include "protocol/budget.h"
#include "protocol/chunk.h"
#include "protocol/member.h"
#include "protocol/message.h"
#include "protocol/number.h"

/* A source's fragment of an event. */
struct ros_fragment {
        uint32_t bytes; /* at most EVB_FRAGMENT_MAX_BYTES; 0 unless the status is FRAGMENT_OK or _TRUNCATED */
        uint16_t order;
        uint8_t form, status; /* FRAGMENT_TRUNCATED: some of its frames are missing */
        uint32_t frames; /* number of frames in the time slice, or joined in the fragment; 0: it is a frame */
        uint32_t copies; /* number of copies of frames from the previous slice, in the overlap */
        bool joined;     /* its frames have the number of one trigger */
        bool after_stop; /* all of these came after the stop, so its number is not announced */
};

struct ros_config {
        struct member_config member;
        uint16_t index;
        uint32_t n_sfi;
        uint32_t entries;      /* maximum number of fragments held */
        uint32_t expected_max; /* maximum number of frames that can be requested before they arrive; 0: the
                                  default number */
        /* Items in the queue in addition to one for each held fragment: requests for ranges, and answers
         * without a fragment; 0: the default number. */
        uint32_t extra_items;
        uint64_t buffer_bytes;
        uint64_t keep_alive_ns;
        struct budget_plan control;
        /* Describes the fragment of an event, for sources that make fragments on request; pure. NULL: frames
         * arrive without a request. */
        void (*describe)(void *ctx, uint64_t event, uint32_t l1_id, struct ros_fragment *ret);
        void *describe_ctx;
        uint64_t wait_ns; /* how long a request waits for its frame before the answer is "pending"; 0: no
                             limit */
        /* Period of the counter in frames (protocol/number.h); 0: frames are counted. */
        uint64_t number_period;
        int64_t number_from; /* counter in the frame of trigger number 0 */
        bool regions;        /* level-2 clients may request fragments: see ros_regions.h */
        bool datagrams;      /* a frame that finds no room is lost; otherwise the front-end waits */
        bool level2;         /* frames of undecided events wait here, in half of the buffer */
        /* Numbered frames make the triggers: the ROS reports to the DFM the triggers that it has received
         * and, if it leads, the numbers of all other frames. */
        bool announces, leads;
        size_t message_bytes; /* size of the largest message, if `announces` */
};

/* After this many consecutive frames that do not follow the triggers, the board counts as restarted. If a
 * correct board delivers 1 % of its frames late, the probability of 16 late frames in a row is 1e-32. */
#define ROS_STRAYS_MAX 16u
/* Number of consecutive frames that must agree with the triggers again; a single frame may agree by
 * chance. */
#define ROS_AGREEING_MIN 4u

/* A fragment, or a part of it, for one SFI. */
struct ros_job {
        struct chunk_job job; /* its payload is NULL; `at` locates the bytes */
        uint64_t at;          /* in the buffer; ARENA_NONE: no bytes */
        uint32_t entry;       /* for ros_pin(); UINT32_MAX: no entry */
        bool fill;            /* the caller must generate the bytes now */
};

enum ros_verdict {
        ROS_STORE,
        ROS_FULL,    /* no room now */
        ROS_DISCARD, /* late, duplicate or impossible, so its bytes are not needed */
};

/* Frames in slices of time or in joined fragments, counted by the outcome of their slice or fragment. */
struct ros_slice_counts {
        uint64_t used, late;
        uint64_t dropped; /* frames whose slice or fragment is a duplicate or impossible */
        uint64_t left_over;
        uint64_t copied; /* copies of frames; not a class, because each also counts in its own slice */
};

struct ros_counts {
        uint64_t fragments_sent; /* jobs sent completely */
        uint64_t unknown;        /* requests for fragments that are not held */
        uint64_t implausible;    /* requests for events far beyond all known events */
        uint64_t full;           /* fragments dropped for lack of room */
        uint64_t source_lost;
        uint64_t clear_gaps;     /* gaps in the sequence of Clear messages */
        uint64_t clear_suspects; /* Clears whose sequence number jumped too far to be trusted */
        uint64_t xoff;
        /* The frames of a front-end, each in one class. */
        uint64_t used;       /* the event of the frame was triggered, and has ended */
        uint64_t late;       /* the event of the frame had ended, or did not wait for the frame to be sent */
        uint64_t duplicate;  /* another frame had the same number */
        uint64_t impossible; /* the number is missing or far from all triggers, or the board is out of step */
        uint64_t dropped;    /* there was no room for the frame */
        uint64_t left_over;  /* the frame is held, or its trigger never came */
        uint64_t restarts;   /* how often the numbers fell out of step with the triggers */
        uint64_t absent;     /* ended events without a frame */
        uint64_t incomplete; /* of the used ones: slices and joined fragments without some of their frames */
        /* Duplicate and impossible frames from before the front-end restarted, while no trigger had arrived
         * yet. 0 if frames make the triggers. */
        uint64_t early_duplicate, early_impossible;
        /* Late frames that became no event although frames make the triggers: events of newer numbers had
         * ended when the number came, or the run was over. */
        uint64_t no_event;
        uint64_t pushed_out; /* part of `dropped`: displaced by newer frames before the first trigger */
        uint64_t discarded;  /* part of `late`: discarded before their trigger came */
        struct ros_slice_counts slices;
};

/* The counter and size of a frame, for log messages. */
struct ros_sample {
        bool has_counter;
        uint64_t counter;
        uint32_t bytes;
};

/* The newest frame of each kind. */
struct ros_samples {
        struct ros_sample duplicate, impossible;
        struct ros_sample stray; /* the front-end fell out of step with it */
        struct ros_sample incomplete;
};

struct ros;

int ros_new(struct ros **ret, const struct ros_config *config, uint64_t now_ns); /* -EINVAL, -ENOMEM */
struct ros *ros_free(struct ros *r);

/* Processes a decoded control message. False: the message is invalid. */
bool ros_receive(struct ros *r, uint64_t now_ns, const struct message *m);
/* Makes the next message that is due (Alive, XON, XOFF, Totals). False: none is due. */
bool ros_step(struct ros *r, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t ros_deadline_ns(const struct ros *r);

/* An SFI at or after `from` with jobs to send; UINT32_MAX: none. */
uint32_t ros_next_with_jobs(const struct ros *r, uint32_t from);
/* Returns the oldest jobs for an SFI, at most n. They stay queued until ros_sent() reports that the first
 * `done` jobs are sent, and the bytes of the next job below `next_offset`. */
size_t ros_jobs(struct ros *r, uint32_t sfi, struct ros_job *jobs, size_t n);
void ros_sent(struct ros *r, uint32_t sfi, size_t done, uint32_t next_offset);
/* Data sent to the SFI may be lost with its connection: the next job starts from its beginning. The SFI
 * itself requests completed jobs again if needed. */
void ros_rewind(struct ros *r, uint32_t sfi);
/* The queue for one SFI. Jobs whose event has ended still count until ros_jobs() reaches them. */
struct ros_queued {
        uint32_t jobs;
        uint64_t bytes; /* of payload */
};

struct ros_queued ros_queued(const struct ros *r, uint32_t sfi);
/* Total sent to an SFI so far, including repeated data. */
struct ros_sent_to {
        uint64_t fragments, bytes; /* bytes of payload */
        uint64_t unanswered;       /* requests for data that the SFI had already requested again */
};

struct ros_sent_to ros_sent_to(const struct ros *r, uint32_t sfi);
/* Returns the number of the next data datagram to an SFI, and adds the `n` datagrams that the caller has
 * sent. */
uint32_t ros_transaction(const struct ros *r, uint32_t sfi);
void ros_count_datagrams(struct ros *r, uint32_t sfi, uint32_t n);
/* The caller uses the entry's bytes: they stay, even if cleared, until ros_unpin(). */
void ros_pin(struct ros *r, uint32_t entry);
void ros_unpin(struct ros *r, uint32_t entry);
/* An SFI left or restarted: drops everything queued for it. */
void ros_forget_sfi(struct ros *r, uint32_t sfi);

/* For sources whose frames arrive without a request. A frame of f->bytes bytes begins. `counter` is NULL if
 * the frame has none, or if frames are counted. ROS_STORE: the caller copies the frame to *ret_at and then
 * calls ros_commit(). ROS_DISCARD: the caller reads the frame and calls ros_commit(). ROS_FULL: the caller
 * tries again, or calls ros_skip(). */
enum ros_verdict ros_arrive(struct ros *r, const uint64_t *counter, const struct ros_fragment *f,
                            uint64_t *ret_at);
void ros_commit(struct ros *r);
/* Whether a frame with this counter would be late. If so, the caller skips the frame, which is not
 * counted. */
bool ros_pass_late(struct ros *r, uint64_t counter);
/* Whether the run has triggers at or below this counter, and also at or above it. */
bool ros_is_within_run(const struct ros *r, uint64_t counter);
/* Whether a frame with this number would count as duplicate. */
bool ros_has_frame(const struct ros *r, uint64_t counter);
/* Records that the next `n` frames were lost, or that the arriving frame broke off or could not be stored. */
void ros_skip(struct ros *r, uint64_t n);
/* Answers the requests that have waited for their frame for too long, and lets a reset of the counters take
 * effect if all earlier frames have been read. Call this after reading frames. */
void ros_expire(struct ros *r, uint64_t now_ns);
/* The process did not run for `away_ns` until now, and frames that arrived in this time may not have been
 * read yet: requests wait that much longer for their frames, and the ROS for its DFM. */
void ros_was_paused(struct ros *r, uint64_t now_ns, uint64_t away_ns);
/* The counters of the trigger and of the boards were reset: from this event on, they begin near `number`.
 * Call this function before the event is announced here. Triggers must pause until all frames of earlier
 * events have arrived. */
void ros_resynchronise(struct ros *r, uint64_t event, uint64_t number);
/* Number of resets of the counters after which no trigger comes for a frame that was read before. If frames
 * make the triggers, resets do not count, because they follow the frames. */
uint32_t ros_breaks(const struct ros *r);
/* Whether the numbers of the frames do not follow the triggers: the board may have restarted. */
bool ros_is_out_of_step(const struct ros *r);
/* Whether frames for which no trigger came fill the ROS at the end, and more wait for room. The functions
 * below then count only the frames that are held. */
bool ros_has_surplus(const struct ros *r);
/* How far the front-end's numbers seem to be ahead of the triggers' numbers; 0: they agree, or nothing is
 * known. `at_end`: no trigger follows, and the last frame agrees. If `at_end` is not set, the result is a
 * guess: the frame of the first trigger did not arrive in time, but the frame of one of the next triggers
 * did. */
int64_t ros_offset(const struct ros *r, bool at_end);
/* By how much the front-end's numbers seem to have leapt ahead of the triggers in the run, so that all later
 * frames are in events of other triggers; 0: they did not, or nothing is known. Known only at the end, if no
 * trigger follows. */
uint64_t ros_leap(const struct ros *r);
/* By how many triggers all frames of a narrow counter seem to be too late: whole periods of the counter, and
 * as many frames follow the last trigger. 0: they are not, or nothing is known. Known only at the end, if no
 * trigger follows. */
uint64_t ros_periods(const struct ros *r);
/* Returns the low 32 bits of the counter in a frame of the newest trigger, for messages. */
uint64_t ros_expected_counter(const struct ros *r);

/* The L1 ID of the first event of the run; false: not known, or the counters were reset since then. */
bool ros_first_l1_id(const struct ros *r, uint32_t *ret);
/* Whether the run is in progress, and this ROS has been part of it since before the first trigger. */
bool ros_has_all_triggers(const struct ros *r);

/* Sends the fragments of open events, then leaves; see ros_is_drained(). */
void ros_stop(struct ros *r, uint64_t now_ns);
/* Whether the run is over (or ros_stop() was called and no triggered fragment is held), and the send queues
 * are empty. */
bool ros_is_drained(const struct ros *r);
void ros_set_ended(struct ros *r, uint64_t now_ns);
enum run_state ros_run_state(const struct ros *r);
/* Whether the run has begun, and had no trigger when this ROS joined. */
bool ros_saw_begin(const struct ros *r);
/* The membership: cookie, run number, time of the DFM's last message, and any refusal by the DFM. */
const struct member *ros_member(const struct ros *r);
/* These functions set what Alive reports: frames may belong to other triggers (permanent); the front-end is
 * silent; why the ROS makes no progress. */
void ros_set_unreliable(struct ros *r);
/* Frames of the front-end were lost, or are in no event: a reason for status 1. */
void ros_set_short(struct ros *r, bool is_short);
void ros_set_quiet(struct ros *r, bool quiet);
/* A number that changes when a stop or a reset of the counters begins, which takes effect only after all
 * frames that came before have been read; 0: no stop and no reset waits. */
uint64_t ros_reads_first(const struct ros *r);
/* Whether the run drains. A DFM that is stopped while it resumes a run follows the boards up to then. */
bool ros_is_stopped(const struct ros *r);
/* `reading`: frames that came before the last change of ros_reads_first() may still wait to be read. */
void ros_set_reading(struct ros *r, bool reading);
/* Whether the run drains, and all frames that came before the stop were read. */
bool ros_is_stopping(const struct ros *r);
/* Frames that have arrived are not complete fragments yet, or their slices find no room. If the run is
 * stopped, the DFM waits for those that came before. */
void ros_set_collecting(struct ros *r, bool collecting);
/* Since when events or, if frames are counted, triggers have waited for the next frame; 0: none waits. Does
 * not include times in which none waited. If the DFM has left out the front-end, the wait continues until a
 * frame arrives. As of the last ros_expire(). */
uint64_t ros_hungry_since_ns(const struct ros *r);
void ros_set_obstacle(struct ros *r, const struct node_obstacle *o);
struct node_obstacle ros_obstacle(const struct ros *r);
/* The SFIs that the DFM reports as present: bit i % 64 of word i / 64. Before the run: all. */
const uint64_t *ros_sfi_live(const struct ros *r);
/* A number that changes whenever anything that affects this ROS's shaping changes. */
uint32_t ros_demand_number(const struct ros *r);
/* Number of ROSs that the DFM reports as present, including this one. Before the run: 0, unknown. */
uint32_t ros_sources(const struct ros *r);
/* Share of the planned rate, in thousandths, that each SFI's port sustains, as the SFIs report. */
const uint16_t *ros_sfi_permille(const struct ros *r);
/* Total number of packets to an SFI that this ROS's own shaping has dropped. */
void ros_set_dropped(struct ros *r, uint32_t sfi, uint64_t packets);

const struct ros_counts *ros_counts(const struct ros *r);
const struct ros_samples *ros_samples(const struct ros *r);
uint32_t ros_held(const struct ros *r);
/* Number of held fragments that belong to open events. */
uint32_t ros_triggered(const struct ros *r);
/* Whether XOFF applies: the DFM must hold triggers back. */
bool ros_is_off(const struct ros *r);
uint64_t ros_buffer_used_bytes(const struct ros *r);
