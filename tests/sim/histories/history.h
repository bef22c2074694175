/* A random history of the simulated system: the values that the seed draws, the faults of the nodes, and the
 * checks at its end. */
#pragma once

#include "site.h"
#include "site_joins.h"
#include "site_live.h"
#include "site_slices.h"
#include "data/reasons.h"

/* X(name, meaning): what a history may contain. A seed draws the same numbers whatever is switched off. */
#define HISTORY_FEATURES(X)                                                                                  \
        X(network, "the network loses, repeats and delays packets")                                          \
        X(level2, "a level-2 farm decides")                                                                  \
        X(box, "a trigger box makes the triggers")                                                           \
        X(boards, "boards send frames with numbers")                                                         \
        X(frames, "the numbers of the frames make the triggers")                                             \
        X(faulty, "boards miss, delay and repeat frames, pause, restart and lie")                            \
        X(slices, "frames carry times, and slices of time are the events")                                   \
        X(leaps, "times and numbers leap ahead, or back, once, for a while or for good")                     \
        X(dfm, "the DFM is replaced")                                                                        \
        X(resumed, "also while frames make the triggers, or slices of time")                                 \
        X(cut, "SFIs are cut off and return")                                                                \
        X(sfi, "SFIs are replaced, or die")                                                                  \
        X(ros, "ROSs are cut off or replaced, or die")                                                       \
        X(disk, "the SFIs' disks stall")                                                                     \
        X(small, "the ROSs have room for few frames, and boards that wait, or do not")                       \
        X(stop, "the run is stopped right after the last trigger of the box")                                \
        X(mixed, "the counters of the boards have different periods, and start over early")                  \
        X(joins, "boards send several frames for each trigger, which are joined")                            \
        X(pause, "an operator pauses the run, and resumes or stops it")                                      \
        X(narrow, "counters have fewer than 15 bits, and frames come in order")                              \
        X(reset, "the trigger box resets all counters once")                                                 \
        X(all, "all nodes are stopped, not the DFM alone")                                                   \
        X(close, "the DFM, an SFI, and the DFM again are replaced within 0.1 s")                             \
        X(clocks, "the clocks of boards whose frames have times differ, and drift")                          \
        X(live, "consumers of live events, alone and in groups, come, sleep, lie and die")                   \
        X(delays, "some of them use mode all, so the SFIs wait for them")                                    \
        X(acknowledged, "no files are written: an event is complete when consumers have acknowledged it")

enum history_feature {
#define X(name, meaning) HISTORY_##name,
        HISTORY_FEATURES(X)
#undef X
                HISTORY_FEATURES_COUNT
};

#define HISTORY_ALL ((1u << HISTORY_FEATURES_COUNT) - 1)

enum history_act {
        ACT_DFM,
        ACT_CUT_SFI,
        ACT_REPLACE_SFI,
        ACT_KILL_SFI,
        ACT_CUT_ROS,
        ACT_REPLACE_ROS,
        ACT_KILL_ROS,
        ACT_PAUSE
};

/* Happens to one node, which returns `for_ns` later. A pause of 0 lasts until the stop. */
struct history_action {
        enum history_act act;
        uint32_t index;
        uint64_t at_ns, for_ns;
};

#define HISTORY_ACTIONS_MAX 10
#define HISTORY_ROS_MAX 4

/* The trigger box sends all of its triggers, whether or not a DFM accepts them. */
struct history_box {
        bool on, obeys; /* obeys busy, while a DFM runs */
        bool stops;     /* stops the run after its last trigger */
        uint64_t sent, due;
        bool asked, confirmed; /* the reset of boards.reset_at was sent, and the DFM became busy by it */
        uint64_t last_ns;      /* when it sent its last entry */
};

/* Frames with times: each board sends this number, one after each period. */
struct history_frames {
        uint64_t n, first_ns, period_ns;
        double late;
        uint64_t late_ns;
        /* The first board holds back frames due in this interval, and sends nothing for a while before a
         * frame. */
        uint64_t held_from_ns, held_until_ns, silent_from, silent_ns;
        /* The times of these frames of the first board are ahead, or back. */
        uint64_t leap_from, leap_n;
        int64_t leap_ns;
        /* Of each board: how far its clock is ahead, and what it gains in a second. */
        uint64_t ahead_ns[HISTORY_ROS_MAX];
        int64_t drift_ppm[HISTORY_ROS_MAX];
};

struct history {
        uint64_t seed;
        unsigned features;
        struct site_config config;
        struct history_action actions[HISTORY_ACTIONS_MAX];
        size_t n_actions;
        struct history_box box;
        struct history_frames times;
        struct random random; /* of the box */
        struct site *site;
        uint64_t cookie;             /* of the run */
        bool stops_all;              /* SFIs and ROSs are stopped with the DFM */
        uint64_t frames, classified; /* of ROS processes that ended */
        bool has_deaths;             /* a process ended before the run did */
        uint32_t dead_ross;          /* bit i: a process of ROS i ended */
        bool has_lost_ros;           /* one that took part, before the end of the run */
        int status;                  /* as the product judges it */
        struct reasons reasons;
        char violation[400]; /* "": all holds */
        const char *kind;    /* its format */
        struct site_live_result live;
};

/* draw.c */
void history_draw(struct history *h, uint64_t seed, unsigned features);
/* Whether the time of this frame is not the board's. */
bool history_leaps(const struct history_frames *f, uint32_t ros, uint64_t frame);
/* Until the last trigger. */
uint64_t history_run_ns(const struct history *h);
/* Whether the last frames of all boards are in the same slice of time. A board is absent from a slice in
 * which only others sent their last frame: it is unknown that it has nothing to send. */
bool history_ends_together(const struct history *h);
void history_describe(const struct history *h);
/* play.c: runs it to its end. */
void history_play(struct history *h);
/* judge.c: the exit status, by the product's own rules. */
void history_judge(struct history *h);
/* checks.c: what must hold. Only the first violation is kept. */
void history_check(struct history *h);
void history_record_frames(struct history *h, uint32_t ros);
void history_violate(struct history *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
