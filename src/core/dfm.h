/* The data flow manager as a pure state machine: time and messages in, messages out. It admits nodes, accepts
 * triggers, assigns each event to an SFI with a free credit, and holds triggers back if no SFI has one. It
 * collects the ends of events, makes the ROSs clear those events, and accounts for every trigger exactly
 * once. One thread; dfm_new() makes all allocations.
 *
 * An event is FREE, with level 2 UNDECIDED (see dfm_level2.h), ASSIGNED (or waiting for another assignment),
 * possibly WRITING (built, with no time-out while its SFI writes it), and then complete, partial, lost or
 * rejected, and cleared. Both directions between DFM and SFI are reliable streams: entries are numbered,
 * acknowledged and resent. A DFM that finds nodes in a previous DFM's run resumes that run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"
#include "core/dfm_level2.h"
#include "core/dfm_processes.h"
#include "core/trigger.h"
#include "protocol/budget.h"
#include "protocol/member.h"
#include "protocol/message.h"
#include "protocol/trigger_packet.h"

/* The last run that a DFM on this machine began. */
struct dfm_previous {
        bool known;
        uint64_t cookie; /* 0: the run has ended */
        uint64_t age_ns; /* since the start of that run, at dfm_new() */
        bool stopped;    /* the run accepts no further triggers */
        bool failed;     /* it was stopped because of a fault */
};

/* Where triggers come from. */
enum dfm_trigger_source {
        DFM_TRIGGER_SCHEDULE,
        DFM_TRIGGER_OFFERED, /* dfm_offer() */
        DFM_TRIGGER_CLOCK,   /* one trigger for each slice of time that has passed */
        DFM_TRIGGER_FRAMES,  /* one trigger for each number that the ROSs announce (Numbers) */
};

struct dfm_config {
        uint32_t run; /* 0: unknown, so this DFM can only resume a run */
        /* The configuration sets no run number, so this DFM adopts the number of a run that it resumes. */
        bool run_is_free;
        bool follows;         /* this process has ended another run */
        uint64_t cookie;      /* of the run; random, not 0 */
        uint64_t incarnation; /* of this DFM; random, not 0 */
        struct dfm_previous previous;
        const struct dfm_processes *previous_processes; /* borrowed by dfm_new(); NULL: not known */
        struct member_keys keys;
        uint64_t occupied_ns; /* silence of a node after which another incarnation may replace it */
        uint32_t n_ros, n_sfi;
        bool push; /* after an assignment to its SFI, also announces the event to all ROSs */
        /* Front-ends may stop before the run: triggers that no front-end answers after dfm_stop() do not
         * count. */
        bool has_front_ends;
        enum trigger_kind trigger_kind;
        uint64_t trigger_rate_millihertz, trigger_burst;
        enum dfm_trigger_source trigger_source;
        uint32_t trigger_queue; /* maximum number of triggers that wait for a credit; without effect on the
                                   schedule, which stands still instead */
        uint64_t slice_ns;      /* length of a slice, for DFM_TRIGGER_CLOCK */
        uint64_t frame_wait_ns; /* how long after its trigger a frame may arrive; 0: no frames arrive without
                                   a request */
        /* For DFM_TRIGGER_FRAMES: the period of the counters of all boards, how long a number waits for the
         * other ROSs, and how many may wait. */
        uint64_t number_period;
        uint64_t window_ns;
        uint32_t announced_max;
        /* Shares of the credits or of the queue: above the first one the DFM becomes busy, below the second
         * it becomes ready again. */
        uint32_t busy_above_permille, busy_below_permille;
        uint64_t events;      /* maximum number of triggers; 0: unlimited */
        uint64_t duration_ns; /* how long triggers are accepted; 0: unlimited */
        uint64_t seed;
        uint32_t events_max;  /* maximum number of open events; beyond it the DFM is busy */
        uint32_t clear_group; /* events per Clear */
        uint64_t clear_after_ns;
        uint64_t event_timeout_ns;
        uint32_t reassign_max;
        uint64_t keep_alive_ns, node_timeout_ns;
        uint64_t start_timeout_ns; /* 0: node_timeout_ns */
        uint64_t leave_timeout_ns; /* how long the end of the run waits for SFIs to close their files */
        const struct ros_rule
                *ros_rules;   /* one for each ROS, borrowed by dfm_new(); NULL: all are required */
        size_t message_bytes; /* size of the largest message */
        struct budget_plan control;
        uint64_t utc_offset_ns; /* offset of the caller's clock to the time since 1970 */
        /* Describes event number `event` from its trigger. NULL: the DFM describes it from its own record of
         * the trigger, if any. */
        void (*info)(void *ctx, uint64_t event, struct event_info *ret);
        void *info_ctx;
        struct dfm_level2_config level2;
};

/* Changes of a node or the run, for the log. */
enum dfm_notice_kind {
        NOTICE_JOINED,
        NOTICE_RESTARTED, /* another process replaced the node before its silence was noticed */
        NOTICE_LEFT,      /* it announced that it was leaving */
        NOTICE_SILENT,    /* silent for node_timeout_ns */
        NOTICE_REFUSED,   /* see `verdict`, and `key` or `run` */
        NOTICE_RESUMED,   /* a previous DFM's run continues; see `run` */
        NOTICE_UNRELIABLE,
        NOTICE_LEFT_OUT, /* a ROS's front-end is silent: events are built without that ROS */
        NOTICE_TAKEN_IN, /* the front-end of that ROS is no longer silent */
        NOTICE_FAILED,   /* the output of an SFI failed */
        NOTICE_OVERDUE,  /* the duration of the run had passed when it was resumed */
        NOTICE_APART,    /* the ROSs' frame numbers are far apart: see dfm_numbers_apart() */
        NOTICE_BEGUN,    /* triggers start, with the nodes that are present; see `run`. Not sent if the run is
                            overdue, nor after dfm_stop() */
};

struct dfm_notice {
        enum dfm_notice_kind kind;
        enum node_role role;
        uint16_t index;
        enum welcome_verdict verdict;
        uint16_t key;
        uint32_t run;
};

/* The run of a DFM at this moment. */
struct dfm_run_view {
        bool is_held, is_paused; /* by an operator */
        bool is_busy;            /* triggers are held back */
        bool waits_for_frames;   /* a trigger waits only for frames that ROSs count */
        bool waits_for_level2;   /* triggers are held back until level 2 has decided */
        bool is_overdue;         /* the run ended when it was resumed, because its duration had passed */
        bool was_unrecorded;     /* it was resumed without the record of the previous DFM */
        bool has_guessed;   /* it was resumed without all records and reports, so that the DFM had to guess
                             * how some events ended */
        uint64_t forgotten; /* events that were open when it was resumed, and that count as lost because no
                             * process has their triggers */
        uint32_t resets;    /* of the boards' counters, as in KeepAlive */
        uint32_t waiting;   /* triggers in the queue */
        uint32_t undecided; /* events without a decision of level 2 */
};

/* State of a node as the DFM sees it. */
struct dfm_node_view {
        bool live, received;    /* present now; present at any time */
        bool holds_back;        /* a ROS: it has sent XOFF */
        bool left_out;          /* a ROS: events do not wait for it */
        bool is_missing_frame;  /* a ROS that counts frames: the next trigger waits for a frame of its
                                   front-end */
        bool behind;            /* a ROS that has not received the last reset yet, so triggers wait for it */
        uint64_t received_ns;   /* time of the node's last message */
        uint32_t credits, held; /* an SFI: free credits, and open events */
        uint16_t reason;        /* enum node_reason, or one of a later version */
        uint16_t reason_node;
        uint32_t reason_ms;
        uint64_t frames;
        /* A ROS that counts frames, at the end of a run with triggers from outside: how many more frames it
         * has than there were triggers, once its front-end is silent or finds no room. */
        uint64_t extra_frames;
        bool has_more_frames;  /* further ones wait for room in the ROS */
        uint32_t free_credits; /* of an SFI */
        bool unreliable;
        bool failed;   /* an SFI: its output failed */
        bool vanished; /* an SFI: silent, and may hold events that it did not report as finished */
        bool replaced; /* an SFI: another process took its place, and the previous process may hold such
                          events; a required ROS with a front-end: another process took its place in the run
                        */
        bool unknown;  /* an SFI: one of its processes may have built events not reported to this DFM */
        /* An SFI: events built by processes that ended without reporting their files closed. `unclosed`
         * counts earlier processes, `left_open` the last one, if it is not present. */
        uint64_t unclosed, left_open;
        bool unfinished; /* at the end of the run: an SFI that had events, or a required ROS with a front-end,
                            did not report that it left */
        bool cut_short;  /* a ROS that makes triggers did not report its last number before the stop */
        bool faulty;     /* an SFI that found a fault which the ends of its events do not show */
        bool short_of_frames; /* a required ROS: frames of its front-end are in no event, or were not
                                 accounted for */
};

/* The newest frame numbers of two ROSs, and the distance between them. */
struct dfm_apart {
        uint16_t ahead, behind; /* ROSs */
        uint64_t by;
};

struct dfm_counts {
        uint64_t triggers, assigned, reassigned;
        uint64_t complete, partial, lost;
        uint64_t not_taken;   /* last triggers before a stop that no board read out; not in `triggers` */
        uint64_t abandoned;   /* of offered.not_taken, those that came before the run drained */
        uint64_t rejected;    /* by level 2, or by its time-out */
        uint64_t ended_again; /* ends reported by a second SFI after the event had ended */
        uint64_t foreign;     /* messages of another run, or of a node that has not joined */
        uint64_t fragments_expected, fragments_received, fragments_lost, fragments_absent;
        uint64_t payload_bytes; /* of complete events */
        uint64_t busy_ns;       /* up to the last step */
        uint64_t paused_ns;     /* up to the last step; not part of busy_ns */
        struct dfm_offered offered;
        struct dfm_announced announced;
        /* 0: not yet */
        uint64_t first_trigger_ns, first_complete_ns, last_complete_ns;
};

/* Why an event is lost. */
enum dfm_loss {
        DFM_LOSS_REPORTED, /* reported by its SFI, which received no fragment or could not write the event */
        DFM_LOSS_OVERDUE,  /* its SFI did not report its end in time */
        DFM_LOSS_GONE,     /* its SFI left, fell silent or restarted */
        DFM_LOSS_NO_SFI,   /* no SFI accepted it */
        DFM_LOSS_FAILED,   /* the event was open when an output failed, or when another fault ended the run */
        DFM_LOSS_STALLED,  /* the run made no progress */
        DFM_LOSS_UNKNOWN,  /* its trigger is unknown, because this DFM resumed the run */
        DFM_LOSS_OPEN,     /* the event was open when this DFM ended */
        DFM_LOSSES,
};

/* The receiver of a message: one node, all nodes (index MESSAGE_TO_ALL, any role), or all ROSs
 * (MESSAGE_TO_ROSS). A Request to all goes to all ROSs. */
#define MESSAGE_TO_ALL UINT16_MAX
#define MESSAGE_TO_ROSS (UINT16_MAX - 1)

struct message_to {
        enum node_role role;
        uint16_t index;
};

struct dfm;

/* -EINVAL, -ENOMEM. */
int dfm_new(struct dfm **ret, const struct dfm_config *config, uint64_t now_ns);
struct dfm *dfm_free(struct dfm *d);

/* Processes a decoded message. False: the message is invalid and had no effect. */
bool dfm_receive(struct dfm *d, uint64_t now_ns, const struct message *m);
/* Makes the next message that is due. False: none is due; call again at dfm_deadline_ns() or after a
 * receive. */
bool dfm_step(struct dfm *d, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t dfm_deadline_ns(const struct dfm *d);

/* Outcome of an offered trigger. */
enum dfm_offer {
        OFFER_QUEUED,
        OFFER_MARKER, /* it was a marker, not a trigger */
        OFFER_REFUSED,
        OFFER_REPEATED,
        OFFER_IMPLAUSIBLE,
        OFFER_NOT_TAKEN,
};

/* Offers a trigger from outside: it waits in the queue until its event is assigned. */
enum dfm_offer dfm_offer(struct dfm *d, uint64_t now_ns, const struct trigger_entry *t);
/* Offers a trigger that arrived after later triggers of the same sender. */
enum dfm_offer dfm_offer_overtaken(struct dfm *d, uint64_t now_ns, const struct trigger_entry *t);
/* Call this after each datagram with triggers. `next`: sequence number after the newest datagram; `is_empty`:
 * it had no entry; `lost`: total number of datagrams that were lost since the caller started. */
void dfm_count_datagrams(struct dfm *d, uint32_t next, bool is_empty, uint64_t lost);
/* Whether the DFM accepts triggers, as of the last step or offer. */
struct busy_packet dfm_busy(const struct dfm *d);
/* Whether triggers are held back because the counters were reset. */
bool dfm_waits_for_reset(const struct dfm *d);
/* Whether frames make the triggers, and either the required ROSs agree on no number or some of their numbers
 * were too far ahead. Returns the two ROSs that differ most. False also if no ROS is far from the others. */
bool dfm_numbers_apart(const struct dfm *d, struct dfm_apart *ret);
uint32_t dfm_leaders(const struct dfm *d);

/* The caller did not run for `away_ns` until now. The time-outs of nodes and events are extended by that
 * time, because nothing could be received. */
void dfm_was_paused(struct dfm *d, uint64_t now_ns, uint64_t away_ns);
/* Replaces config.utc_offset_ns. The times of a run's events follow one offset, so it has no effect once the
 * run has begun. */
void dfm_set_utc_offset(struct dfm *d, uint64_t utc_offset_ns);
/* Settings that can be changed while the DFM runs. */
struct dfm_settings {
        uint64_t leave_timeout_ns;
        enum trigger_kind trigger_kind;
        uint64_t trigger_rate_millihertz;
};

/* Changes all settings, in any state. A new rate applies from the next trigger on: see trigger_change(). */
void dfm_change(struct dfm *d, uint64_t now_ns, const struct dfm_settings *to);
/* Accepts no further triggers, finishes the open events and ends the run. Triggers that came before the stop
 * and wait still become events; so do frames that came before it, if frames make the triggers. A run that is
 * being resumed drains once the nodes that are still joining have reported. Events of other nodes count as
 * lost unless their end is known. If dfm_awaits_run(), the DFM first waits a short time for a node of that
 * run. */
void dfm_stop(struct dfm *d, uint64_t now_ns);
/* Whether dfm_stop() was called; a run that has had all its triggers drains without a stop. */
bool dfm_is_stopped(const struct dfm *d);
/* The same as dfm_stop(), because the run made no progress: the nodes exit with status 1. */
void dfm_stop_stalled(struct dfm *d, uint64_t now_ns);
/* Ends all open events of a draining run as lost, because nothing else would end them, and returns the number
 * of these events. An SFI may still build some of them. */
uint32_t dfm_abandon(struct dfm *d, uint64_t now_ns);
/* Call this when the DFM ends, perhaps before its run: the events that are still open count as lost, and the
 * triggers that wait as abandoned. */
void dfm_close_accounts(struct dfm *d, uint64_t now_ns);
/* After a stop, triggers no longer become events, even if they came before the stop: they count as
 * counts.abandoned. */
void dfm_abandon_triggers(struct dfm *d);
/* Whether there is work to do: an event is open, or a trigger is held back. A run has no work if its next
 * trigger has not come, or if no front-end has sent a frame for it. */
bool dfm_has_work(const struct dfm *d);
/* A number that changes whenever level 2 accepts an event, or an event ends without being lost. */
uint64_t dfm_progress(const struct dfm *d);
enum run_state dfm_state(const struct dfm *d);
/* Whether the run is over, and every live node knows this or has had enough time to learn it. */
bool dfm_is_done(const struct dfm *d);

/* Number of events that one SFI lost for this reason; UINT16_MAX: of all events lost for it, including those
 * without an SFI. Lost events without a reason were counted by an earlier DFM, or no SFI has reported them
 * since. */
uint64_t dfm_lost(const struct dfm *d, uint16_t sfi, enum dfm_loss why);
const struct dfm_counts *dfm_counts(const struct dfm *d);
/* Time from the trigger to the end of an event. */
const struct histogram *dfm_latency_ns(const struct dfm *d);
uint32_t dfm_open_events(const struct dfm *d);
/* Number of nodes that are present. */
uint32_t dfm_live(const struct dfm *d, enum node_role role);
struct dfm_run_view dfm_run_view(const struct dfm *d);
struct dfm_node_view dfm_view(const struct dfm *d, enum node_role role, uint16_t index);
/* Number and cookie of the run, which change when a previous DFM's run is resumed. */
uint32_t dfm_run(const struct dfm *d);
uint64_t dfm_cookie(const struct dfm *d);
/* Time since the start of the run, or of the run that this DFM awaits (dfm_awaits_run()); 0: no run. */
uint64_t dfm_age_ns(const struct dfm *d, uint64_t now_ns);
/* Whether frames were lost before a ROS counted them, or a ROS counted another number of frames than another
 * one, or more than there were triggers. Events may then mix triggers. */
bool dfm_is_unreliable(const struct dfm *d);
/* Whether ROSs counted different numbers of frames. */
bool dfm_frames_differ(const struct dfm *d);
/* Removes and returns the oldest notice. The DFM keeps up to 64 notices. */
bool dfm_pop_notice(struct dfm *d, struct dfm_notice *ret);
/* Whether the run has started. */
bool dfm_has_begun(const struct dfm *d);
/* Whether there is a run: it has started, or an earlier DFM began it and this DFM waits for its nodes. */
bool dfm_is_in_run(const struct dfm *d);
/* Whether the run of an earlier DFM has not ended and none of its nodes has joined yet. Once all required
 * nodes are new processes, this DFM no longer waits for that run. */
bool dfm_awaits_run(const struct dfm *d);

/* Whether a new run could begin if it had a number. */
bool dfm_needs_number(const struct dfm *d, uint64_t now_ns);

/* ---- Run control: an operator may hold the start of a run, and pause its triggers. ---- */

/* Holds the start: the run does not begin, even if all nodes are present. Has no effect on a run that has
 * begun, or that a previous DFM began. */
void dfm_hold_start(struct dfm *d);
/* Releases the start: the run begins as usual. Missing nodes must then join within dfm.start-timeout. */
void dfm_release_start(struct dfm *d, uint64_t now_ns);
/* Whether all required nodes are present. */
bool dfm_is_ready(const struct dfm *d);

/* Sets the metadata of the run, at most METADATA_MAX, which each SFI receives before it receives events. Has
 * no effect once the run has begun, nor in a run that a previous DFM began, which keeps its metadata. */
void dfm_set_metadata(struct dfm *d, uint64_t now_ns, const struct metadata_entry *entries, uint16_t n);

/* Pauses the triggers of a run in progress, or ends the pause; has no effect otherwise. Open events continue.
 * The schedule of the DFM's own triggers stands still, and does not catch up later. Triggers from outside and
 * slices of time that come during the pause are not accepted, but triggers already in the queue still become
 * events. Frames that make triggers wait until the pause ends. */
void dfm_pause(struct dfm *d, uint64_t now_ns, bool on);
