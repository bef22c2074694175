/* The tree of a ROS's shaping: planned, installed, compared with the kernel's tree, and repaired. One thread
 * at a time: the starting thread until the node is ready, then the thread of shaping.c. */
#pragma once

#include "conf/scenario.h"
#include "data/stats.h"
#include "shape/model/tree_status.h"
#include "shape/kernel/shaper.h"
#include "shape/kernel/watch.h"
#include "metrics/metrics.h"

/* The keys of [qos] that may change at run time. */
struct shaping_rates {
        uint64_t rate_bps, burst_bytes, limit_bytes; /* SCENARIO_AUTO: planned */
};

/* The values on which the plan depends, from the ROS's core and its operator. */
struct shaping_demand {
        struct shaping_rates rates;
        uint64_t sfi_live[EVB_SFI_MAX / 64]; /* bit i % 64 of word i / 64: SFI i is present */
        uint64_t sources;               /* number of ROSs that send to each SFI; 0: all of the scenario */
        uint16_t permille[EVB_SFI_MAX]; /* share of the planned rate that each SFI's port sustains */
};

struct shaping_tree {
        struct scenario *scenario; /* a private copy, because another thread changes the original */
        const struct scenario_node *self;
        struct node_stats *stats;
        struct metrics *metrics; /* NULL: none */
        bool check_only;         /* opening only checks, without changes */
        struct tc_device device;
        struct tc_shaper *shaper;
        struct tc_watch *watch;
        enum tc_backend backend;
        enum tc_fair fair;
        enum tc_offload offload;          /* AUTO is resolved: NO, or REQUIRED if the device can */
        size_t super_packet_bytes;        /* constant after opening, as the next one */
        uint32_t overhead_bytes;          /* what the plan adds to each packet */
        uint64_t burst_bytes;             /* of each queue, while the device stays the same; 0: not planned */
        struct shaping_demand demand;     /* the demand of the current plan; has at least one SFI */
        uint64_t reduced_ns[EVB_SFI_MAX]; /* since when an SFI's share has been reduced; 0: not reduced */
        bool wanted[EVB_SFI_MAX];
        struct tc_destination destinations[EVB_SFI_MAX];
        bool changed;      /* `demand` is not installed yet */
        uint64_t again_ns; /* when to apply the plan again, because a class is draining or the kernel refused
                              a change */
        uint64_t insist_ns;
        uint64_t look_ns;           /* when to compare with the kernel */
        uint64_t settle_ns;         /* when to compare after a change by another program; NEVER_NS: none */
        uint64_t well_ns;           /* time of the last comparison in which the tree was complete */
        uint64_t event_ns;          /* time of the first change by another program since then */
        uint64_t unshaped_since_ns; /* NEVER_NS: the tree is as planned */
        uint64_t unshaped_ns;       /* sum of earlier unshaped times */
        _Atomic bool unshaped;      /* read by other threads: the tree differs from the plan */
        bool gone;                  /* the device is gone */
        bool link_changed;          /* the kernel announced a change of the device */
        uint64_t drops;             /* last count of the kernel */
        uint64_t other_drops;       /* the same for packets that are not data */
        struct tc_port port;        /* counts of the device at port_ns */
        uint64_t port_ns;
        uint64_t row_drops[EVB_SFI_MAX];       /* last count of the kernel for each SFI */
        _Atomic uint64_t dropped[EVB_SFI_MAX]; /* total for each SFI; read by the loop */
        char actor[96];
        char refused[ERROR_MESSAGE_MAX]; /* the last refusal, logged once */
};

/* For a node without a tree: warns if an earlier node or `evb qos` left a tree on the device of this node. */
void shaping_tree_warn_of_earlier(const struct scenario *s, const struct scenario_node *self);
/* Finds the device, tunes it, installs the tree. Errors are logged. */
int shaping_tree_open(struct shaping_tree *t);
/* Removes the tree and restores the earlier settings. */
void shaping_tree_close(struct shaping_tree *t);
/* Adapts the plan to a new demand. */
void shaping_tree_follow(struct shaping_tree *t, uint64_t now_ns, const struct shaping_demand *demand);
/* Performs the steps that are due. With `wanted`, also compares the tree with the kernel's tree and reads the
 * counters. */
void shaping_tree_turn(struct shaping_tree *t, bool wanted);
/* In shaping_request.c: makes the plan for the demand. -EINVAL: the request is impossible; -ENOMEM. */
int shaping_tree_plan(struct shaping_tree *t, struct tc_plan *ret, struct error *error);
struct shaping_rates shaping_rates_of(const struct scenario *s);
void shaping_rates_set(struct scenario *s, const struct shaping_rates *rates);
/* Whether a plan with these rates is possible for all SFIs and ROSs. Any thread may call it with copies of
 * the tree's values. Errors as for shaping_tree_plan(). */
int shaping_rates_check(const struct scenario *s, const struct scenario_node *self,
                        const struct tc_device *device, enum tc_backend backend, size_t super_packet_bytes,
                        struct error *error);
/* In shaping_request.c: returns the size of the largest super-packet that a ROS should send to such a
 * queue. */
size_t shaping_tree_super_packet_bytes(const struct tc_share *s);
/* Counts the drops that the kernel reports. In a new class, e.g. after a repair, the kernel counts from zero,
 * but the totals continue. */
void shaping_tree_count_drops(struct shaping_tree *t, const struct tc_status *status, bool repaired);
/* Counts and logs what the port of the device has counted since the last call. Returns false if it has
 * counted nothing, and so nothing is logged. */
bool shaping_tree_report_port(struct shaping_tree *t, uint64_t now_ns, const struct tc_port *now);
uint64_t shaping_tree_deadline_ns(const struct shaping_tree *t);
