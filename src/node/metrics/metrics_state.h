/* The content of a node's metrics except its counters. The event loop and the shaping thread write it, and
 * the thread of the HTTP server copies it, under a lock that is held only briefly. */
#pragma once

#include <pthread.h>

#include "base/histogram.h"
#include "conf/scenario.h"
#include "protocol/message.h"
#include "shape/model/tree_status.h"
#include "losses.h"
#include "writer.h"

/* Counters of one other node, by its position in the scenario. Counters that do not apply to the roles stay
 * 0. */
struct metrics_peer {
        bool live;                   /* the DFM reports it as present */
        bool xoff;                   /* the DFM: this ROS requests a hold of triggers */
        uint64_t free_credits, held; /* the DFM, for an SFI: free credits, and open events */
        uint64_t fragments; /* a ROS: sent to this SFI; an SFI: received from this ROS, in ended events */
        uint64_t fragments_lost, fragments_absent;
        /* In an SFI: number of fragments lost before the older and the newer window of `losses` began, and
         * since the older one began. */
        uint64_t lost_older, lost_newer, lost_recently;
        uint64_t packets, packets_lost;
        uint64_t bytes;        /* payload of these fragments */
        uint64_t queued_bytes; /* a ROS: bytes of payload queued for this SFI */
};

/* A destination of a ROS's shaping, as last reported by the kernel. In a new class, the kernel counts from
 * zero, but the totals continue. */
struct metrics_shaped {
        bool known;
        uint64_t rate_bps, backlog_bytes, limit_bytes;
        uint64_t bytes, packets, drops, overlimits;                     /* totals */
        uint64_t last_bytes, last_packets, last_drops, last_overlimits; /* last counts of the kernel */
};

/* Average rates over the last second or more. */
struct metrics_rates {
        double triggers_hz; /* of a DFM */
        double events_hz;   /* complete and partial */
        double fragments_hz, bytes_per_second;
        double busy_share; /* fraction of the time, 0 to 1 */
        uint64_t at_ns;    /* end of this second */
};

struct metrics_state {
        struct metrics_rates rates;
        struct losses losses;
        uint32_t run; /* 0: not known yet */
        uint64_t open_events;
        bool busy;                          /* DFM */
        uint64_t waiting_triggers;          /* DFM */
        uint64_t credits, unwritten_events; /* SFI */
        uint64_t rate_permille;             /* SFI: share of the planned rate; 0: unknown */
        uint64_t held_fragments;            /* ROS */
        uint64_t mtu_failed_paths;          /* ROS */
        enum node_reason front_end;         /* ROS: what is wrong with its front-end */
        bool board_clock_known;             /* ROS: see struct node_stats */
        uint64_t board_ahead_ns, board_drift_ppb;
        uint64_t buffer_used_bytes;             /* ROS and SFI */
        struct metrics_histogram event_latency; /* DFM */
        uint64_t latency_p50_ns, latency_p99_ns;
        struct metrics_histogram level2_latency;
        bool shaped; /* the tree of a ROS is installed as planned */
        size_t n_peers;
        struct metrics_peer *peers;
        struct metrics_shaped *shapings; /* one for each peer */
};

/* Counts at one time, from which rates are computed. */
struct metrics_sample {
        uint64_t now_ns, triggers, events, fragments, bytes, busy_ns;
};

struct metrics_shared {
        pthread_mutex_t lock; /* protects `state` */
        struct metrics_state state;
};

int metrics_state_init(struct metrics_state *s, size_t n_peers); /* -ENOMEM */
void metrics_state_fini(struct metrics_state *s);
/* Both states must have the same number of peers. */
void metrics_state_copy(struct metrics_state *to, const struct metrics_state *from);

/* Adds the counts of a run, or of several, for histograms and peers. */
void metrics_add_run(struct metrics_state *to, const struct metrics_state *run);
/* Resets the core's counts for another run. Keeps the classes of shaping. */
void metrics_state_begin_run(struct metrics_state *s);

/* Records the number of fragments from a peer that an SFI lost in this run; `moved` is the result of
 * losses_record(). */
void metrics_record_lost(struct metrics_peer *p, uint64_t fragments_lost, bool moved);
/* Counts the values of a histogram up to each bound. If a bucket contains a bound, its values count above the
 * bound. */
void metrics_fold(struct metrics_histogram *to, const struct histogram *from);
/* Updates the rates if a second has passed since `last`, and then copies `now` to `last`. */
void metrics_update_rates(struct metrics_rates *to, struct metrics_sample *last,
                          const struct metrics_sample *now);
/* Records the kernel's counts for the classes of a ROS's destinations. */
void metrics_set_shaping(struct metrics_state *to, const struct scenario *s, const struct tc_status *status);
