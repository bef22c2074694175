/* The data flow manager as a pure state machine: time and messages in, messages out. It lets nodes join,
 * takes triggers, assigns each event to an SFI with a free credit, holds triggers back without one, learns
 * of finished events, lets the ROSs clear them, and accounts for every trigger exactly once. One thread;
 * nothing is allocated after dfm_new().
 *
 * An event is FREE, ASSIGNED (or waiting to be assigned again), perhaps WRITING (built, while its SFI
 * writes it: no time-out runs), then ended: complete, partial or lost, and cleared. Both directions
 * between DFM and SFI are reliable streams: entries are numbered, acknowledged, and sent again. A DFM that
 * starts while nodes are in a former DFM's run takes that run up. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evb/base/histogram.h"
#include "evb/core/policy.h"
#include "evb/core/trigger.h"
#include "evb/protocol/member.h"
#include "evb/protocol/message.h"

/* The last run that a DFM on this machine began. */
struct dfm_former {
        bool known;
        uint64_t cookie; /* 0: it has ended */
        uint64_t age_ns; /* since that run began */
};

struct dfm_config {
        uint32_t run;
        /* no number is configured: the run takes the number of a run that is taken up */
        bool run_is_free;
        uint64_t cookie;      /* of the run, random, not 0 */
        uint64_t incarnation; /* of this DFM, random, not 0 */
        struct dfm_former former;
        struct member_keys keys;
        uint64_t occupied_ns; /* silence of a node before another incarnation takes its place */
        uint32_t n_ros, n_sfi;
        bool push; /* whom it tells: all, or the SFI alone */
        enum policy_id policy;
        enum trigger_kind trigger_kind;
        uint64_t trigger_rate_millihertz, trigger_burst;
        uint64_t events;      /* triggers to take; 0: no end */
        uint64_t duration_ns; /* then no more triggers; 0: no end */
        uint64_t seed;
        uint32_t events_max;  /* open events at most; more is busy */
        uint32_t clear_group; /* events per Clear */
        uint64_t clear_after_ns;
        uint64_t event_timeout_ns;
        uint32_t reassign_max;
        uint64_t keep_alive_ns, node_timeout_ns;
        size_t message_bytes;   /* largest message */
        uint64_t utc_offset_ns; /* added to the caller's clock: time since 1970 */
        /* What the trigger knows of event number `event`; NULL: nothing but number and time. */
        void (*info)(void *ctx, uint64_t event, struct event_info *ret);
        void *info_ctx;
};

/* What happened to a node or the run, for the log. */
enum dfm_notice_kind {
        NOTICE_JOINED,
        NOTICE_RESTARTED, /* another process took its place before its silence was noticed */
        NOTICE_LEFT,      /* it said so */
        NOTICE_SILENT,    /* not heard for node_timeout_ns */
        NOTICE_REFUSED,   /* `verdict`, and `key` or `run` */
        NOTICE_TAKEN_UP,  /* a former DFM's run goes on; `run` */
        NOTICE_UNRELIABLE,
        NOTICE_FAILED,  /* an SFI's output has failed */
        NOTICE_OVERDUE, /* the duration of the run that it took up had passed */
        NOTICE_BEGUN,   /* triggers come from now on, with the nodes that are there; `run` */
};

struct dfm_notice {
        enum dfm_notice_kind kind;
        enum node_role role;
        uint16_t index;
        enum welcome_verdict verdict;
        uint16_t key;
        uint32_t run;
};

/* A node's state, as the DFM sees it. */
struct dfm_node_view {
        bool live, heard; /* present now; present at any time */
        bool holds_back;  /* a ROS: XOFF */
        enum node_reason reason;
        uint32_t reason_ms;
        uint64_t frames;
        bool unreliable;
        bool failed;   /* an SFI: its output */
        bool vanished; /* an SFI: it fell silent after it was assigned events, and was not heard since */
};

struct dfm_counts {
        uint64_t triggers, assigned, reassigned;
        uint64_t complete, partial, lost;
        uint64_t ended_again; /* finished by a second SFI after the event had ended */
        uint64_t foreign;     /* messages of another run, or of a node that has not joined */
        uint64_t fragments_expected, fragments_received, fragments_lost;
        uint64_t payload_bytes;                       /* of complete events */
        uint64_t busy_ns;                             /* up to the last step */
        uint64_t first_complete_ns, last_complete_ns; /* 0: none */
};

/* To whom a message goes: one node, or all (index MESSAGE_TO_ALL, any role). */
#define MESSAGE_TO_ALL UINT16_MAX

struct message_to {
        enum node_role role;
        uint16_t index;
};

struct dfm;

/* -EINVAL, -ENOMEM. */
int dfm_new(struct dfm **ret, const struct dfm_config *config, uint64_t now_ns);
struct dfm *dfm_free(struct dfm *d);

/* Takes a decoded message; one that makes no sense is ignored and false is returned. */
bool dfm_receive(struct dfm *d, uint64_t now_ns, const struct message *m);
/* Makes the next message that is due. False: nothing more now; call again at dfm_deadline_ns() or after a
 * receive. */
bool dfm_step(struct dfm *d, uint64_t now_ns, struct message_to *ret_to, struct message *ret);
uint64_t dfm_deadline_ns(const struct dfm *d);

/* The caller did not run for `away_ns` until now: nodes and events get that time once more, as nothing of
 * theirs was heard. */
void dfm_was_away(struct dfm *d, uint64_t now_ns, uint64_t away_ns);
/* Replaces config.utc_offset_ns. The times of a run's events follow one offset, so it has no effect once the
 * run has begun. */
void dfm_set_utc_offset(struct dfm *d, uint64_t utc_offset_ns);
/* No more triggers: finish what is open and end the run. */
void dfm_stop(struct dfm *d, uint64_t now_ns);
enum run_state dfm_state(const struct dfm *d);
/* The run is over and every live node knows it, or has had its time to. */
bool dfm_is_done(const struct dfm *d);

const struct dfm_counts *dfm_counts(const struct dfm *d);
/* Trigger to end of event. */
const struct histogram *dfm_latency_ns(const struct dfm *d);
uint32_t dfm_open_events(const struct dfm *d);
bool dfm_is_busy(const struct dfm *d);
/* Nodes that are there now. */
uint32_t dfm_live(const struct dfm *d, enum node_role role);
struct dfm_node_view dfm_view(const struct dfm *d, enum node_role role, uint16_t index);
/* The run: its number and cookie, which change when a former DFM's run is taken up. */
uint32_t dfm_run(const struct dfm *d);
uint64_t dfm_cookie(const struct dfm *d);
/* Time since the run began; 0: not yet. */
uint64_t dfm_age_ns(const struct dfm *d, uint64_t now_ns);
/* Frames were lost before a ROS counted them, or the ROSs counted different numbers: events may mix
 * triggers. */
bool dfm_is_unreliable(const struct dfm *d);
/* The run ended when it was taken up, as its duration had passed. */
bool dfm_is_overdue(const struct dfm *d);
/* Takes the oldest notice; the last 64 are kept. */
bool dfm_take_notice(struct dfm *d, struct dfm_notice *ret);
/* Whether the run has begun. */
bool dfm_has_begun(const struct dfm *d);
