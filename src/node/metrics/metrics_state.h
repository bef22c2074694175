/* The content of a node's metrics besides its counters. The event loop and the shaping thread write it, and
 * the thread of the HTTP server copies it, under a lock that no thread holds for longer than a copy. */
#pragma once

#include <pthread.h>

#include "base/histogram.h"
#include "conf/scenario.h"
#include "shape/model/tree_status.h"
#include "losses.h"
#include "writer.h"

/* Counters of one other node, by its position in the scenario. Those that do not fit the roles stay 0. */
struct metrics_peer {
        bool live;                   /* the DFM reports it as present */
        bool xoff;                   /* the DFM: this ROS requests that triggers be held back */
        uint64_t free_credits, held; /* the DFM, of an SFI: credits, and open events */
        uint64_t fragments; /* a ROS: sent to this SFI; an SFI: received from this ROS, of ended events */
        uint64_t fragments_lost, fragments_absent;
        /* An SFI: lost fragments before the windows of `losses`, and in the older window. */
        uint64_t lost_older, lost_newer, lost_recently;
        uint64_t packets, packets_lost;
        uint64_t bytes;        /* of payload, in these fragments */
        uint64_t queued_bytes; /* a ROS, of payload for this SFI */
};

/* A destination of a ROS's shaping, as the kernel reported it last. The kernel counts from zero in a new
 * class, and the totals continue. */
struct metrics_shaped {
        bool known;
        uint64_t rate_bps, backlog_bytes, limit_bytes;
        uint64_t bytes, packets, drops, overlimits;                     /* totals */
        uint64_t last_bytes, last_packets, last_drops, last_overlimits; /* of the kernel */
};

/* Over the last second or more. */
struct metrics_rates {
        double triggers_hz; /* of a DFM */
        double events_hz;   /* complete and partial */
        double fragments_hz, bytes_per_second;
        double busy_share; /* of the time, 0 to 1 */
};

struct metrics_state {
        struct metrics_rates rates;
        struct losses losses;
        uint32_t run; /* 0: not known yet */
        uint64_t open_events;
        bool busy;                              /* DFM */
        uint64_t waiting_triggers;              /* DFM */
        uint64_t credits, unwritten_events;     /* SFI */
        uint64_t held_fragments;                /* ROS */
        uint64_t mtu_failed_paths;              /* ROS */
        uint64_t buffer_used_bytes;             /* ROS and SFI */
        struct metrics_histogram event_latency; /* DFM */
        uint64_t latency_p50_ns, latency_p99_ns;
        struct metrics_histogram level2_latency;
        bool shaped; /* the tree of a ROS is installed as planned */
        size_t n_peers;
        struct metrics_peer *peers;
        struct metrics_shaped *shapings; /* of the same nodes */
};

/* The counts from which the rates of a node follow, at one time. */
struct metrics_sample {
        uint64_t now_ns, triggers, events, fragments, bytes, busy_ns;
};

/* The counts of earlier runs of the process, to which the present run adds. */
struct metrics_totals {
        struct metrics_histogram event_latency, level2_latency;
        size_t n_peers;
        struct metrics_peer *peers;
};

struct metrics_shared {
        pthread_mutex_t lock; /* protects `state` */
        struct metrics_state state;
};

int metrics_state_init(struct metrics_state *s, size_t n_peers); /* -ENOMEM */
void metrics_state_fini(struct metrics_state *s);
/* Both have the same number of peers. */
void metrics_state_copy(struct metrics_state *to, const struct metrics_state *from);

int metrics_totals_init(struct metrics_totals *t, size_t n_peers); /* -ENOMEM */
void metrics_totals_fini(struct metrics_totals *t);
/* Adds a run's counts for histograms and peers. */
void metrics_add_totals(struct metrics_totals *t, const struct metrics_state *run);
/* Another run begins: the core's counts are 0 again. The classes of shaping stay. */
void metrics_state_begin_run(struct metrics_state *s);
/* Adds the totals to the state of the present run. */
void metrics_continue(struct metrics_state *s, const struct metrics_totals *t);

/* An SFI lost this many fragments of a peer in this run; `moved` is what losses_record() returned. */
void metrics_record_lost(struct metrics_peer *p, uint64_t fragments_lost, bool moved);
/* Counts the values of a histogram up to each bound; one of its buckets on both sides of a bound is above. */
void metrics_fold(struct metrics_histogram *to, const struct histogram *from);
/* Changes the rates if a second has passed since `last`, which becomes `now`. */
void metrics_update_rates(struct metrics_rates *to, struct metrics_sample *last,
                          const struct metrics_sample *now);
/* Records the kernel's counts for the classes of a ROS's destinations. */
void metrics_set_shaping(struct metrics_state *to, const struct scenario *s, const struct tc_status *status);
